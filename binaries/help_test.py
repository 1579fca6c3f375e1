"""Tests that every binary shows its flags without importing TensorFlow."""

import ast
import os
import pathlib
import re
import subprocess
import sys

from absl.testing import absltest
from absl.testing import parameterized
import pytest

from binaries import commands_testing
from gtrxl_tf import __main__ as gtrxl
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
  @pytest.mark.medium
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

  @parameterized.parameters(
      ('compare', ['--models=gtrxl', '--models=lstm', '--root_dir=x', '--gin_file=x'],
       'Not started: --models is given 2 times: expected it once\n'),
      ('train', [], 'Not started: --root_dir is missing: expected gtrxl train '
       '--gin_file=gin/gtrxl/numpad_2x2_cpu.gin --root_dir=runs/numpad_2x2 '
       "--gin_bindings='Experiment.seed = 1'\n"),
      ('train', ['--root_dir=x'], 'Not started: --gin_file is missing: expected it, or '
       '--env, as --env=CartPole-v1\n'),
      ('train', ['--root_dir=x', '--gin_file=x', '--core=lstm'],
       'Not started: --core without --env: expected --gin_file and --gin_bindings alone, '
       'or --env\n'),
      ('train', ['--root_dir=x', '--env=CartPole-v1', '--core=lstmm'],
       "Not started: core = 'lstmm': expected one of gru, gtrxl, gtrxl_highway, "
       'gtrxl_input, gtrxl_no_identity, gtrxl_output, gtrxl_sigtanh, gtrxl_thin, lstm, '
       'lstm_large, mamba, memoryless, merlin, rl_mem, trxl, trxl_i\n'),
      ('compare', ['--root_dir=x', '--env=CartPole-v1,TMaze'],
       'Not started: --env=CartPole-v1,TMaze: expected ids alone, as CartPole-v1, or '
       'classes alone, as TMaze\n'),
      ('train', ['--root_dir=', '--gin_file=x'],
       'Not started: --root_dir is empty: expected a folder\n'),
      ('train', ['--root_dir=gs://mine/run', '--gin_file=x'],
       'Not started: --root_dir=gs://mine/run: expected a folder on a disk: a bucket has '
       'no locks, renames and appends\n'),
      ('train', ['--root_dir=x', '--ginfile=x'], 'Not started: Unknown command line flag '
       "'ginfile'. Did you mean: gin_file ?\n"),
      ('learner', ['--gin_file=x', '--root_dir=x', '--inference_device=GPU:1'],
       'Not started: --inference_device without --inference_port: expected both\n'),
      ('learner', ['--gin_file=x', '--root_dir=x', '--inference_port=8001'],
       'Not started: --inference_port without --server: expected both\n'),
      ('actor', ['--gin_file=x', '--server=localhost:8000', '--metrics_host=0.0.0.0'],
       'Not started: --metrics_host without --metrics_port: expected both\n'),
      ('serve', ['--policy_dir=x', '--host='],
       'Not started: --host is empty: expected a host, or 0.0.0.0 for all interfaces\n'),
      ('train', ['--gin_file=~/no.gin', '--root_dir=x'],
       f'Not started: {pathlib.Path.home()}/no.gin: no such gin file, neither at this '
       'path nor in this library\n'),
      ('report', [],
       'Not started: RUNS is missing: expected gtrxl report runs/numpad_2x2\n'),
      ('report', ['runs/a', 'runs/b', '--episodes=0'],  # Flags may follow runs.
       'Not started: flag --episodes=0: 0 is not a positive integer\n'))
  @pytest.mark.medium
  def test_arguments_that_are_missing_or_wrong_are_one_line(
      self, command, arguments, expected):
    done = subprocess.run(
        [sys.executable, '-m', 'gtrxl_tf', command, *arguments],
        cwd=_FOLDER.parent, capture_output=True, text=True, check=False)
    self.assertEqual((done.returncode, done.stdout, done.stderr), (2, '', expected))

  @parameterized.parameters(*_BINARIES)
  def test_the_first_example_has_all_flags_that_are_required(self, binary):
    text = (_FOLDER / f'{binary}.py').read_text(encoding='utf-8')
    tree = ast.parse(text)
    required = [
        call.args[0].value for call in ast.walk(tree) if isinstance(call, ast.Call)
        and any(x.arg == 'required' for x in call.keywords)]
    if 'from . import settings' in text or 'from . import part' in text:
      required.append('gin_file')
    example = re.search(rf'^  gtrxl {binary} (?:.*\\\n)*.*', ast.get_docstring(
        tree, clean=False) or '', re.MULTILINE)
    for flag in required:
      self.assertIn(f'--{flag}=', example[0])

  def test_a_command_that_does_not_exist(self):
    done = subprocess.run(
        [sys.executable, '-m', 'gtrxl_tf', 'trian'],
        cwd=_FOLDER.parent, capture_output=True, text=True, check=False)
    self.assertEqual(done.returncode, 2)
    self.assertEqual(done.stderr, "gtrxl: no command 'trian'. Did you mean train? "
                     '`gtrxl --help` lists the commands.\n')

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

  @parameterized.parameters('', 'os.abort()', 'import no_such_package')
  def test_what_tensorflow_prints_when_it_is_imported_is_noise_but_for_errors(self, end):
    package = self.create_tempdir('tensorflow')
    package.create_file('__init__.py', content=(
        'import os\nos.write(2, b"WARNING: All log messages before absl::InitializeLog() '
        'is called\\nI0000 00:00:1.2 oneDNN\\nE0000 a fault\\n")\n' + end))
    done = subprocess.run(
        [sys.executable, '-c', 'from gtrxl_tf.launch import program; import tensorflow, os; '
         'os.write(2, b"I0000\\n")'],
        cwd=_FOLDER.parent, capture_output=True, text=True, check=False, env={
            **os.environ, 'PYTHONPATH': os.path.dirname(package.full_path),
            'TF_CPP_MIN_LOG_LEVEL': '2'})
    self.assertEqual(bool(done.returncode), bool(end))
    said = done.stderr.splitlines()
    self.assertEqual(said[0], 'E0000 a fault')
    self.assertIn(said[-1], ('E0000 a fault', 'I0000', "ModuleNotFoundError: No module "
                             "named 'no_such_package'"))


if __name__ == '__main__':
  absltest.main()
