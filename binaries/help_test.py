"""Tests that every binary shows its flags without importing TensorFlow."""

import ast
import pathlib
import subprocess
import sys

from absl.testing import absltest
from absl.testing import parameterized

from binaries import commands_testing
from binaries import gtrxl
from gtrxl_tf.benchmarks import learner_hlo
from gtrxl_tf.benchmarks import tpu_compiler
from gtrxl_tf.training import devices
from gtrxl_tf.training import evaluation

_FOLDER = pathlib.Path(__file__).parent
_BINARIES = gtrxl.commands()
_PRINT_HELP = '''
import runpy, sys
name = sys.argv[0] = sys.argv.pop()
sys.argv.append('--help')
try:
  runpy.run_module(name, run_name='__main__')
except SystemExit:
  heavy = {'tensorflow', 'matplotlib', 'reverb', 'numpy'} & set(sys.modules)
  sys.exit(str(heavy) if heavy else 0)
'''


class HelpTest(parameterized.TestCase):

  @parameterized.parameters(*_BINARIES)
  def test_help_imports_nothing_heavy(self, binary):
    done = subprocess.run(
        [sys.executable, '-c', _PRINT_HELP, f'binaries.{binary}'],
        cwd=_FOLDER.parent, capture_output=True, text=True, check=False)
    self.assertEqual(done.returncode, 0, done.stderr)
    self.assertIn('USAGE: ', done.stdout)
    for flag in commands_testing.flags(_FOLDER / f'{binary}.py'):
      self.assertRegex(done.stdout, rf'(?m)^ +--(\[no\])?{flag}:')

  def test_an_argument_without_a_flag_is_refused(self):
    done = subprocess.run(
        [sys.executable, '-m', 'binaries.train', '--root_dir=x', '--gin_file=x.gin',
         '--gin_bindings', 'Experiment.seed = 1', 'Experiment.seed = 2'],
        cwd=_FOLDER.parent, capture_output=True, text=True, check=False)
    self.assertEqual(done.returncode, 2)
    self.assertRegex(done.stderr, r"^Not started: 'Experiment.seed = 2' follows no flag: "
                     r'expected --FLAG=VALUE, .*\n$')

  @parameterized.parameters(*_BINARIES)
  def test_every_binary_refuses_them(self, binary):
    self.assertIn('def main(argv) -> None:\n  binaries.refuse_arguments(argv)\n',
                  (_FOLDER / f'{binary}.py').read_text(encoding='utf-8'))

  @parameterized.parameters(
      ('learner', 'strategy', list(devices.STRATEGIES)),
      ('evaluate', 'num_environments', evaluation.NUM_ENVIRONMENTS))
  def test_flags_agree_with_the_library(self, binary, flag, expected):
    tree = ast.parse((_FOLDER / f'{binary}.py').read_text(encoding='utf-8'))
    calls = {node.args[0].value: node for node in ast.walk(tree)
             if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
             and node.func.attr.startswith('DEFINE_')}
    values = [ast.literal_eval(x) for x in calls[flag].args[1:3]]
    self.assertIn(expected, values)

  def test_tpu_check_names_the_existing_steps(self):
    text = (_FOLDER / 'tpu_check.py').read_text(encoding='utf-8')
    self.assertIn(f'_NAMES = {list(learner_hlo.STEPS)}', text)
    self.assertIn(f"'tpus', {list(tpu_compiler.TOPOLOGIES)}", text)


if __name__ == '__main__':
  absltest.main()
