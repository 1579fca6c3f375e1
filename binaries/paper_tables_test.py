"""The GTrXL paper's experiments, as gin files and commands, have the paper's settings.

`testdata/gtrxl_tables.md` is a transcription of the paper's tables.
"""

import argparse
import inspect
import shlex
from typing import NamedTuple

from absl.testing import absltest
from absl.testing import parameterized
import gin

from binaries import commands_testing
from gtrxl_tf import config
from gtrxl_tf import configurables  # noqa: F401 (for gin)
from gtrxl_tf.launch import variants

_GIN = commands_testing.ROOT / 'gin'

# A model's name in the paper, by the name of its files.
_NAMES = {
    'lstm': 'LSTM', 'lstm_dmlab30': 'LSTM', 'lstm_2x2_twice_as_long': 'LSTM',
    'lstm_4x4_twice_as_long': 'LSTM', 'lstm_large_dmlab30': 'Large LSTM',
    'trxl': 'TrXL', 'trxl_i': 'TrXL-I', 'gtrxl': 'GTrXL (GRU)',
    'gtrxl_input': 'GTrXL (Input)', 'gtrxl_output': 'GTrXL (Output)',
    'gtrxl_highway': 'GTrXL (Highway)', 'gtrxl_sigtanh': 'GTrXL (SigTanh)',
    'gtrxl_thin': 'Thin GTrXL (GRU)', 'gtrxl_no_identity': 'GTrXL (GRU)',
}


class _Command(NamedTuple):
  """A command of docs/gtrxl.md."""
  what: str      # Figures and tables.
  gin_file: str  # Its name without the suffix.
  models: dict   # Gin files by label.
  seeds: int


def _commands():
  found = {}
  text = (commands_testing.ROOT / 'docs/gtrxl.md').read_text(encoding='utf-8')
  for line in text.splitlines():
    if line.startswith(('| Figure', '| Table')):
      [command] = commands_testing.commands(line)
      parser = argparse.ArgumentParser()
      parser.add_argument('--gin_file', required=True)
      parser.add_argument('--models', default='gtrxl')
      parser.add_argument('--seeds', type=int, default=1)
      given = parser.parse_args(shlex.split(command)[1:])
      what = line.split('|')[1].strip()
      found[what] = _Command(what, given.gin_file.split('/')[-1].removesuffix('.gin'),
                             variants.models(given.models.split(',')), given.seeds)
  return found


_COMMANDS = _commands()


def _settings(name):
  """All settings of a configurable: gin's, and the defaults of the rest."""
  defaults = {
      name: parameter.default for name, parameter in inspect.signature(
          gin.get_configurable(name)).parameters.items()}
  return {**defaults, **gin.get_bindings(name, resolve_references=False)}


class CommandsTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    gin.clear_config()
    self.addCleanup(gin.clear_config)

  def parse(self, gin_file, model_files):
    gin.clear_config()
    config.parse([str(_GIN / 'gtrxl' / f'{gin_file}.gin'), *model_files], [])

  def paper_names(self, what):
    return {_NAMES[label] for label in _COMMANDS[what].models}

  def test_commands_compare_the_models_of_the_figures(self):
    gates = {'TrXL', 'TrXL-I', 'GTrXL (GRU)', 'GTrXL (Input)', 'GTrXL (Output)',
             'GTrXL (Highway)', 'GTrXL (SigTanh)'}
    for what, models in {
        'Figure 2: DMLab-30': {'LSTM', 'GTrXL (GRU)'},
        'Figure 4, Table 1: gates': {'LSTM', *gates},
        'Figure 6, Table 2: parameters': {
            'LSTM', 'Large LSTM', 'Thin GTrXL (GRU)', *gates}}.items():
      with self.subTest(what):
        self.assertEqual(self.paper_names(what), models)

  @parameterized.parameters(*_COMMANDS)
  def test_bounds_of_kl_are_drawn_from_the_papers_ranges(self, what):
    command = _COMMANDS[what]
    for label, files in command.models.items():
      with self.subTest(label):
        self.parse(command.gin_file, files)
        is_lstm = 'LSTM' in _NAMES[label]
        self.assertEqual(
            gin.query_parameter('epsilon_alpha/log_uniform.high'),
            0.025 if is_lstm and command.gin_file == 'dmlab30' else 0.1)

  @parameterized.parameters('2x2', '4x4')
  def test_an_lstm_is_trained_twice_as_long_on_numpad(self, size):
    command = _COMMANDS[f'Figure 3: Numpad {size}']
    steps = {}
    for label, files in command.models.items():
      self.parse(command.gin_file, files)
      steps[label] = gin.query_parameter('OnlineExperiment.environment_steps')
      self.assertIn(_NAMES[label], ('LSTM', 'GTrXL (GRU)'))
    self.assertEqual(steps[f'lstm_{size}_twice_as_long'], 2 * steps['lstm'])
    self.assertEqual(steps['lstm'], steps['gtrxl'])


if __name__ == '__main__':
  absltest.main()
