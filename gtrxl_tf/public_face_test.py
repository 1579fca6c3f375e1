"""Tests of `import gtrxl_tf`: the modules that it loads, and its attributes."""

import subprocess
import sys

from absl.testing import absltest
from absl.testing import parameterized
import pytest

import gtrxl_tf

_CHANGES = """
import importlib, os, sys
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

  def test_environments_with_their_own_packages_are_imported_when_used(self):
    before, after = _python("""
import sys
from gtrxl_tf import environments
loaded = lambda: print(*[name for name in dir(environments)
                         if f'gtrxl_tf.environments.{name}' in sys.modules])
loaded()
environments.Atari, environments.AppleMaze
loaded()""")
    self.assertContainsSubset(['t_maze', 'numpad'], before.split())
    self.assertContainsSubset(['apple_maze', 'atari', 'maze_room'],
                              set(after.split()) - set(before.split()))

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
  def test_nothing_of_gym_is_printed(self):
    printed = subprocess.run(
        [sys.executable, '-c', 'import gtrxl_tf; gtrxl_tf.agents; gtrxl_tf.networks\n'
         'from gtrxl_tf import specs'], capture_output=True, text=True, check=True)
    self.assertNotIn('Gym has been unmaintained', printed.stderr)


if __name__ == '__main__':
  absltest.main()
