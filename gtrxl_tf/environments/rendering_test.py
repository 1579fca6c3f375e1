"""Tests for rendering."""

# pylint: disable=protected-access

import ctypes
import os
import subprocess
import sys
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from gtrxl_tf.environments import opengl
from gtrxl_tf.environments import rendering
from gtrxl_tf.settings import config


class FakeEgl:
  """An EGL library with devices; some of them can be initialised.

  ctypes calls back into Python, so calls are made as into the real library.
  """

  def __init__(self, devices: list[bool], extensions: bool = True):
    @ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p),
                      ctypes.POINTER(ctypes.c_int))
    def query_devices(most, handles, number):
      number[0] = min(most, len(devices))
      for i in range(number[0]):
        handles[i] = 100 + i
      return 1

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p)
    def get_display(platform, handle, attributes):
      assert platform == 0x313F and attributes is None
      return handle + 100

    functions = {b'eglQueryDevicesEXT': query_devices,
                 b'eglGetPlatformDisplayEXT': get_display} if extensions else {}
    self.eglGetProcAddress = mock.Mock(
        side_effect=lambda name: name in functions and ctypes.cast(
            functions[name], ctypes.c_void_p).value)
    self.eglInitialize = lambda display, *_: int(devices[display.value - 200])


class ChooseBackendTest(parameterized.TestCase):

  def _chosen(self, libraries, **environ) -> str:
    """MUJOCO_GL after the choice, where only `libraries` can be loaded."""
    def load(name):
      if name not in libraries:
        raise OSError(f'{name}: cannot open shared object file')
      return libraries[name]

    with mock.patch.dict(os.environ, environ):
      for name in {'MUJOCO_GL', 'DISPLAY'} - set(environ):
        os.environ.pop(name, None)
      with (mock.patch.object(ctypes, 'CDLL', side_effect=load),
            mock.patch.object(rendering, '_backend', opengl.backend)):
        rendering.choose_backend()
      return os.environ.get('MUJOCO_GL', 'unset')

  @parameterized.parameters(
      ([True], 'egl'), ([False, True], 'egl'), ([False], 'osmesa'), ([], 'osmesa'))
  def test_egl_is_taken_where_a_device_works(self, devices, expected):
    libraries = {'libEGL.so.1': FakeEgl(devices), 'libGL.so.1': None,
                 'libOSMesa.so.8': None}
    self.assertEqual(self._chosen(libraries), expected)

  def test_egl_without_opengl_or_the_extensions_is_not_taken(self):
    self.assertEqual(self._chosen({'libEGL.so.1': FakeEgl([True])}), 'unset')
    self.assertEqual(
        self._chosen({'libEGL.so.1': FakeEgl([True], extensions=False),
                      'libGL.so.1': None}), 'unset')

  def test_osmesa_is_taken_without_egl(self):
    self.assertEqual(self._chosen({'libOSMesa.so.6': None}), 'osmesa')
    self.assertEqual(self._chosen({}), 'unset')

  def test_a_choice_and_a_display_are_kept(self):
    libraries = {'libOSMesa.so.8': None}
    self.assertEqual(self._chosen(libraries, MUJOCO_GL='glfw'), 'glfw')
    self.assertEqual(self._chosen(libraries, DISPLAY=':0'), 'unset')

  @parameterized.parameters(
      ('import os; os.abort()', '', []),  # As a driver might.
      ('print("")', '', []), ('print("egl\\n/a_dri.so")', 'egl', ['/a_dri.so']))
  def test_a_process_of_its_own_tries_the_libraries(self, program, backend, libraries):
    program = self.create_tempfile(content=program).full_path
    with mock.patch.object(opengl, '__file__', program), mock.patch.object(
        ctypes, 'CDLL') as load:
      self.assertEqual(rendering._backend.__wrapped__(), backend)
    # Otherwise Mesa and XLA would take each other's LLVM.
    self.assertEqual(load.mock_calls, [
        mock.call(x, os.RTLD_NOW | os.RTLD_DEEPBIND) for x in libraries])

  def test_the_process_says_what_draws_here(self):
    said = subprocess.run([sys.executable, '-I', opengl.__file__], check=True, text=True,
                          stdout=subprocess.PIPE).stdout.splitlines()
    self.assertIn(said[0], ('', 'egl', 'osmesa'))


class RequireBackendTest(parameterized.TestCase):

  @parameterized.parameters(
      ('', '', r'Walker cannot draw images: found no .* libosmesa6'),
      ('off', ':0', r'Walker cannot draw images with MUJOCO_GL=off: expected egl'))
  def test_the_error_says_why_there_are_no_images(self, backend, display, message):
    with mock.patch.dict(os.environ, MUJOCO_GL=backend, DISPLAY=display):
      with self.assertRaisesRegex(config.ConfigError, message):
        rendering.require_backend('Walker')


if __name__ == '__main__':
  absltest.main()
