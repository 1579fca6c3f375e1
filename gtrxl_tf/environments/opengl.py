"""Says by which OpenGL MuJoCo can draw here; a program of its own, see `rendering`.

It prints a value of MUJOCO_GL, if any, and Mesa's libraries that draw with it.
"""

import contextlib
import ctypes
import pathlib
import re

_PLATFORM_DEVICE = 0x313F  # From the EGL extension EXT_platform_device.


def backend() -> str:
  """Returns a value of MUJOCO_GL that draws without a display; '' if none does."""
  for name, *libraries in (('egl', 'libGL.so.1', 'libEGL.so.1'),
                           ('osmesa', 'libOSMesa.so.8'), ('osmesa', 'libOSMesa.so.6')):
    with contextlib.suppress(OSError, AttributeError):
      *_, library = map(ctypes.CDLL, libraries)
      if name != 'egl' or _has_device(library):
        return name
  return ''


def _has_device(egl: ctypes.CDLL) -> bool:
  """Returns whether dm_control's EGL backend finds a display; it may lack a driver."""
  egl.eglGetProcAddress.restype = ctypes.c_void_p
  query_devices = egl.eglGetProcAddress(b'eglQueryDevicesEXT')
  get_display = egl.eglGetProcAddress(b'eglGetPlatformDisplayEXT')
  if not query_devices or not get_display:
    return False
  query_devices = ctypes.CFUNCTYPE(
      ctypes.c_uint, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p),
      ctypes.POINTER(ctypes.c_int))(query_devices)
  get_display = ctypes.CFUNCTYPE(
      ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p)(get_display)

  devices, num_devices = (ctypes.c_void_p * 10)(), ctypes.c_int()
  if not query_devices(len(devices), devices, ctypes.byref(num_devices)):
    return False
  displays = (get_display(_PLATFORM_DEVICE, device, None)
              for device in devices[:num_devices.value])
  return any(display and egl.eglInitialize(ctypes.c_void_p(display), None, None)
             for display in displays)


if __name__ == '__main__':
  print(backend())
  for library in set(re.findall(r'/\S*(?:_dri\.|libgallium|libOSMesa)\S*',
                                pathlib.Path('/proc/self/maps').read_text('utf-8'))):
    print(library)
