"""Tests of `import gtrxl_tf`: the modules that it loads, and its attributes."""

import importlib.util
import os
import subprocess
import sys

from absl.testing import absltest
from absl.testing import parameterized
import pytest

import gtrxl_tf

_CHANGES = """
import importlib, os, sys
import importlib.util
os.environ['TF_USE_LEGACY_KERAS'] = '0'  # The user has chosen, see KerasTest.
modules, environment = dict(sys.modules), dict(os.environ)
import gtrxl_tf
changed = [name for name, module in modules.items() if sys.modules.get(name) != module]
print(*changed, *set(os.environ.items()) ^ set(environment.items()))
print(*sorted({name for name in sys.modules if name not in modules}))
"""


def _python(code: str) -> list[str]:
  """The lines that `code` prints in a new process."""
  done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True,
                        check=False)
  assert done.returncode == 0, done.stderr
  return done.stdout.splitlines()


class PublicFaceTest(parameterized.TestCase):

  def test_the_import_loads_nothing_else_and_changes_nothing(self):
    changed, loaded = _python(_CHANGES)
    self.assertEqual(changed, '')
    self.assertEqual(loaded, 'gtrxl_tf')

  @parameterized.parameters('environments', 'datasets')
  def test_works_without_tensorflow(self, room):
    [loaded] = _python(f'import sys, gtrxl_tf; gtrxl_tf.{room}; print(*[name for name '
                       "in ('tensorflow', 'tf_agents', 'dm_control', 'matplotlib') "
                       'if name in sys.modules])')
    self.assertEqual(loaded, '')

  @pytest.mark.medium
  def test_losses_offer_their_modules(self):
    [loaded] = _python('import gtrxl_tf; print(gtrxl_tf.losses.vmpo.__name__)')
    self.assertEqual(loaded, 'gtrxl_tf.losses.vmpo')

  @parameterized.parameters(*gtrxl_tf.__all__)
  def test_offers(self, name):
    self.assertIn(name, dir(gtrxl_tf))
    self.assertIsNotNone(getattr(gtrxl_tf, name))

  def test_refuses_what_it_does_not_have(self):
    with self.assertRaisesRegex(AttributeError, "'gtrxl_tf' has no attribute 'core'"):
      gtrxl_tf.core  # pylint: disable=pointless-statement,no-member
    with self.assertRaises(ImportError):
      from gtrxl_tf import nothing  # noqa: F401

  @pytest.mark.medium
  def test_the_library_does_without_the_packages_of_online(self):
    [loaded] = _python("""
import sys
for name in 'reverb', 'tf_agents', 'tensorflow_probability':
  sys.modules[name] = None
from gtrxl_tf import agents, networks
from gtrxl_tf.launch import configurables, train
[getattr(agents, name) for name in agents.__all__]
print(train.__name__)""")
    self.assertEqual(loaded, 'gtrxl_tf.launch.train')


_HAS_TF_KERAS = importlib.util.find_spec('tf_keras') is not None
_KERAS = """
import os
{before}
import gtrxl_tf, tensorflow as tf
{after}
print('tf_keras' in tf.keras.layers.Layer.__module__, os.environ.get('TF_USE_LEGACY_KERAS'))"""


@absltest.skipUnless(_HAS_TF_KERAS, 'tf_keras is not installed')
@pytest.mark.medium
class KerasTest(parameterized.TestCase):

  def _chosen(self, before, after=''):
    environment = {name: value for name, value in os.environ.items()
                   if name != 'TF_USE_LEGACY_KERAS'}
    done = subprocess.run(
        [sys.executable, '-c', _KERAS.format(before=before, after=after)], text=True,
        env=environment, capture_output=True, check=False)
    self.assertEqual(done.returncode, 0, done.stderr)
    return done.stdout.strip()

  @parameterized.parameters('', 'import tensorflow')
  def test_keras_2_is_chosen(self, before):
    self.assertEqual(self._chosen(before), 'True 1')

  def test_an_import_of_tensorflow_keras_finds_the_same(self):
    self.assertEqual(self._chosen('import tensorflow', """
from tensorflow.keras import layers
assert layers.Layer is tf.keras.layers.Layer"""), 'True 1')

  @parameterized.parameters(
      ("os.environ['TF_USE_LEGACY_KERAS'] = '0'", 'False 0'),
      ('import tensorflow; tensorflow.keras.layers', 'False None'),
      ('from tensorflow.keras import layers', 'False None'))
  def test_the_user_s_choice_is_followed(self, before, expected):
    self.assertEqual(self._chosen(before), expected)

  def test_networks_refuse_keras_3_in_one_line(self):
    done = subprocess.run(
        [sys.executable, '-c', 'from gtrxl_tf import networks'], text=True,
        env={**os.environ, 'TF_USE_LEGACY_KERAS': '0'}, capture_output=True, check=False)
    self.assertRegex(
        done.stderr.splitlines()[-1], r'^ImportError: networks, .* need Keras 2; .*'
        r'tf.keras is Keras 3\..*: expected TF_USE_LEGACY_KERAS=1, or unset')


if __name__ == '__main__':
  absltest.main()
