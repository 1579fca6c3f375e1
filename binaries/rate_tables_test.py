"""RATE's experiments, as gin files and commands, have the paper's settings.

`testdata/rate_tables.md` is a transcription of the paper's tables.
"""

import math
import re

from absl.testing import absltest
from absl.testing import parameterized
import gin
import pytest

from binaries import commands_testing
from binaries import paper_tables_testing
from gtrxl_tf.environments import minigrid_memory
from gtrxl_tf.settings import config
from gtrxl_tf.training import optimizers
from gtrxl_tf.training.offline import experiment

_ROOT = commands_testing.ROOT
_TABLES = paper_tables_testing.tables('rate_tables.md')
_COMMANDS = paper_tables_testing.commands('docs/rate.md')
_TRAINED = {what: command for what, command in _COMMANDS.items() if command.names}
_value = paper_tables_testing.value
_setting = paper_tables_testing.setting

# The name of each experiment in Tables 7 to 10, by its gin file.
_FILES = {
    'vizdoom_two_colors': 'ViZDoom-Two-Colors', 't_maze': 'T-Maze',
    't_maze_9': 'T-Maze', 't_maze_15': 'T-Maze', 't_maze_30': 'T-Maze',
    't_maze_valves': 'T-Maze', 'memory_maze': 'Memory Maze',
    'minigrid_memory': 'Minigrid-Memory',
    'action_associative_retrieval': 'Action Associative Retrieval',
    'atari_breakout': 'Atari', 'atari_qbert': 'Atari', 'atari_seaquest': 'Atari',
    'atari_pong': 'Atari', 'mujoco_halfcheetah': 'MuJoCo', 'mujoco_hopper': 'MuJoCo',
    'mujoco_walker2d': 'MuJoCo',
}

# The setting of each row of Table 8 that all models share.
_SHARED = {
    'Number of layers': 'RATE.num_layers',
    'Number of attention heads': 'RATE.num_heads',
    'Embedding dimension': 'RATE.model_dim',
    'Context length K': 'OfflineExperiment.segment_length',
    'Number of segments': 'OfflineExperiment.num_segments',
    'Hidden dropout': 'RATE.dropout',
    'Attention dropout': 'RATE.attention_dropout',
    'Batch size': 'OfflineExperiment.batch_size',
    'Weight decay': 'AdamW.weight_decay',
    'Learning rate': 'AdamW.learning_rate',
}
_CACHE = 'Number of cached tokens (mem_len)'
# The setting of each row that only RATE has, and with a cache, TrXL.
_OF_RATE = {
    'Number of memory tokens': 'RATE.num_memory_tokens',
    _CACHE: 'RATE.cache_length',
    'MRV number of attention heads': 'RATE.retention_heads',
}
_OTHER_ROWS = {
    'Max epochs', 'Optimizer', 'MRV activation', 'AdamW (beta_1, beta_2)',
    'Loss function',  # It follows the kind of action, see `agents.DecisionAgent`.
}

# Where an experiment differs from Table 8; docs/rate.md lists what concerns all of it.
_DIFFERENCES = {
    # With K = 10, episodes would end after 30 steps, before the turn to be learned.
    ('minigrid_memory', 'Context length K'): 30,
    # Appendix F: (3 K + 2 m) N.
    ('minigrid_memory', _CACHE): 360,
    # Table 6 has 5 segments of 30 steps.
    ('t_maze_valves', 'Number of segments'): 5,
    # Table 1 has T = 9 and T = 30.
    ('t_maze_9', 'Context length K'): 3,
    ('t_maze_30', 'Context length K'): 10,
    # Figures 21 and 22 have T = K = 15.
    ('t_maze_15', 'Context length K'): 15,
    ('t_maze_15', 'Number of segments'): 1,
}

# What an epoch of Table 8 takes, in items of a batch.
_EPOCHS = {
    'vizdoom_two_colors': 5000, 't_maze': 6000, 'minigrid_memory': 10_000,
    't_maze_9': 6000, 't_maze_30': 6000, 't_maze_15': 2000, 't_maze_valves': 10_000,
    'memory_maze': 1700,  # Windows that return 2 or more; estimated in the file.
    'atari_breakout': 500_000, 'atari_qbert': 500_000, 'atari_seaquest': 500_000,
    'atari_pong': 500_000,
    # The published code's epoch has 1,000 batches.
    'mujoco_halfcheetah': 4_096_000, 'mujoco_hopper': 4_096_000,
    'mujoco_walker2d': 4_096_000,
}

_NAMES = {
    'rate': 'RATE', 'rmt': 'RMT', 'trxl': 'TrXL', 'dt': 'DT', 'oracle_dt': 'OracleDT',
    'dlstm': 'DLSTM', 'dgru': 'DGRU', 'dmamba': 'DMamba', 'mambadm': 'MambaDM',
    'cql': 'CQL', 'cql_sac': 'CQL', 'tap': 'TAP',
}
# A column without a model here.
_NO_MODELS = {'Random'}


def _models_of(number):
  """The names of the models of each command for a table."""
  return {what: {_NAMES[label] for label in command.models}
          for what, command in _TRAINED.items() if re.search(rf'Table {number}\b', what)}


class RateTablesTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    gin.clear_config()
    self.addCleanup(gin.clear_config)

  def parse(self, name, model='rate'):
    gin.clear_config()
    config.parse(
        [f'gin/rate/{name}.gin', f'gin/rate/models/{model}.gin'], [])

  @parameterized.parameters(*_COMMANDS)
  @pytest.mark.medium
  def test_settings_of_commands_are_read(self, what):
    for _ in _COMMANDS[what].parse_each():
      pass

  def test_every_file_of_the_papers_size_has_a_command(self):
    files = {path.stem for path in (_ROOT / 'gin/rate').glob('*.gin')
             if not re.search('_cpu|training_memory', path.stem)}
    self.assertEqual(set(_FILES), files)
    self.assertEqual(
        {name for command in _TRAINED.values() for name in command.names}, files)

  def test_every_figure_and_table_of_experiments_has_a_command(self):
    named = ' '.join(_COMMANDS)
    figures = set()
    for first, word, last in re.findall(r'Figures? (\d+)(?: (to|and) (\d+))?', named):
      last = int(last or first)
      figures.update(range(int(first), last + 1) if word == 'to' else [int(first), last])
    drawings = {1, 2, 8, 12}
    self.assertEqual(figures, set(range(1, 25)) - drawings)
    tables = {int(x) for x in re.findall(r'Table (\d+)', named)}
    self.assertEqual(tables, set(range(1, 12)) - {7, 8, 9, 10})  # Settings.

  @parameterized.product(
      name=[x for x in _FILES if _FILES[x] in _TABLES['8']['Optimizer']],
      model=('rate', 'rmt', 'trxl', 'dt'))
  @pytest.mark.medium
  def test_table_8(self, name, model):
    self.parse(name, model)
    table = {row: cells[_FILES[name]] for row, cells in _TABLES['8'].items()}
    self.assertEqual({*_SHARED, *_OF_RATE, *_OTHER_ROWS}, set(table))
    rows = {**_SHARED, **(_OF_RATE if model == 'rate' else {})}
    if model == 'trxl' and _value(table[_CACHE]) > 2:  # It has no other memory.
      rows[_CACHE] = _OF_RATE[_CACHE]
    for row, setting in rows.items():
      with self.subTest(row):
        paper = _value(table[row])
        expected = _DIFFERENCES.get((name, row), paper)
        self.assertEqual(_setting(setting), expected)
        self.assertEqual(expected != paper, (name, row) in _DIFFERENCES)
    self.assertEqual((_setting('AdamW.beta_1'), _setting('AdamW.beta_2')),
                     _value(table['AdamW (beta_1, beta_2)']))
    self.assertIsNone(_setting('Experiment.optimizer'))
    self.assertIs(experiment.OfflineExperiment.default_optimizer,
                  getattr(optimizers, table['Optimizer']))
    self.assertEqual(
        _setting('RATE.retention_activation'),
        'leaky_relu' if name == 'atari_pong' else table['MRV activation'].lower())
    self.assertEqual(
        _setting('OfflineExperiment.learner_steps'),
        math.ceil(_value(table['Max epochs']) * _EPOCHS[name]
                  / _value(table['Batch size'])))

  @parameterized.parameters(  # One run is enough for maps.
      what for what in _TRAINED if ' maps of ' not in what and 'learner step' not in what)
  def test_table_9(self, what):
    command = _TRAINED[what]
    for name in command.names:
      if _FILES[name] != 'Action Associative Retrieval':  # Not all of it is there.
        self.parse(name)
        self.assertEqual(_setting('Experiment.evaluation_episodes'),
                         _value(_TABLES['9'][_FILES[name]]['N_seeds']))
      if not what.startswith('Figure 4: '):  # Nothing is trained there.
        self.assertEqual(command.seeds, _value(_TABLES['9'][_FILES[name]]['N_runs']))

  @parameterized.parameters(*_FILES)
  def test_tables_7_and_10(self, name):
    self.parse(name)
    is_image = _TABLES['7'][_FILES[name]]['Obs. type'] == 'Image'
    self.assertEqual(str(_setting('DecisionNetwork.torso')),
                     '@ConvTorso()' if is_image else '@VectorTorso()')
    cells = _TABLES['10'].get(_FILES[name])
    if cells:
      self.assertEqual(cells['O'], 'Conv2D x 3' if is_image else 'Linear')
      self.assertEqual(
          cells['A'] == 'Linear', _TABLES['7'][_FILES[name]]['Actions'] == 'Continuous')
    if is_image:
      self.assertEqual(
          [_setting(f'ConvTorso.{x}') for x in ('channels', 'kernel_sizes', 'padding')],
          [_value(x) for x in cells['Conv. configuration'].split(' / ')])
    else:
      self.assertEqual(_setting('VectorTorso.units'), ())

  def test_an_agent_in_minigrid_sees_as_much_as_in_table_7(self):
    self.parse('minigrid_memory')
    seen = _TABLES['7']['Minigrid-Memory']['Obs. info']
    self.assertTrue(_setting('MinigridMemory.pixels'))
    self.assertIsNone(_setting('MinigridMemory.view'))
    view = minigrid_memory._PIXELS_VIEW  # pylint: disable=protected-access
    self.assertIn(f'{view}x{view}', seen)

  @parameterized.parameters(1, 2, 3, 4, 5)
  def test_result_tables_have_the_models_of_the_commands(self, number):
    columns = {x for cells in _TABLES[str(number)].values() for x in cells}
    found = _models_of(number)
    self.assertNotEmpty(found)
    for what, names in found.items():
      with self.subTest(what):
        self.assertLessEqual(columns - _NO_MODELS, names)

  def test_table_1_is_trained_and_tested_on_its_lengths(self):
    lengths = [int(x) for row in _TABLES['1'] for x in re.findall(r'K = T = (\d+)', row)]
    found = []
    for name in _COMMANDS['Table 1: T-Maze'].names:
      self.parse(name)
      found.append(_setting('%context_steps'))
      # A corridor of L takes L + 2 steps.
      self.assertIn(found[-1] - 2, _setting('Experiment.tasks')['corridor_length'])
      self.assertEqual(
          max(_setting('Collector.tasks')['corridor_length']), found[-1] - 2)
    self.assertEqual(found, lengths)

  def test_table_5_is_tested_on_its_lengths(self):
    self.parse('t_maze')
    for length in re.findall(r'\(T = (\d+)\)', ' '.join(_TABLES['5'])):
      self.assertIn(int(length) - 2, _setting('Experiment.tasks')['corridor_length'])

  def test_table_6(self):
    [command] = [x for what, x in _COMMANDS.items() if 'Table 6' in what]
    valves = {'none': 'RATE w/o MRV', 'gate': 'RATE (MRV-G)', 'gru': 'RATE (MRV-GRU)',
              'lstm': 'RATE (MRV-LSTM)', 'ca1': 'RATE (MRV-CA-1)',
              'ca2': 'RATE (MRV-CA-2)'}
    self.assertEqual({valves[point.value] for point in command.sweep}, set(_TABLES['6']))
    self.parse('t_maze_valves')
    self.assertEqual([length + 2 for length in
                      _setting('Experiment.tasks')['corridor_length']],
                     [int(x) for x in _TABLES['6']['RATE w/o MRV']])

  def test_the_results_quote_table_6(self):
    text = (_ROOT / 'docs/results/rate.md').read_text(encoding='utf-8')
    quoted = re.findall(
        r'\n\| \**(none|CA-1|CA-2|G|GRU|LSTM)\** \|.*\| (0\.\d\d) \|(?=\n)', text)
    self.assertLen(quoted, len(_TABLES['6']))
    for valve, score in quoted:
      row = 'RATE w/o MRV' if valve == 'none' else f'RATE (MRV-{valve})'
      self.assertStartsWith(_TABLES['6'][row]['900'], score)

  def test_the_results_quote_tables_3_5_and_11(self):
    text = (_ROOT / 'docs/results.md').read_text(encoding='utf-8')
    pong = {model: cell.split()[0] for model, cell in _TABLES['3']['Pong'].items()}
    self.assertIn(f'| {pong["RATE"]} and {pong["DT"]}, raw |', text)
    last = _TABLES['5']['T-Maze: SR (T = 900)']['RATE'].split()[0]
    self.assertIn(f'| {last} ± 0.07, ten runs |', text)
    memory = {row: _value(cells['GPU mem.'].removesuffix('Gb'))
              for row, cells in _TABLES['11'].items()}
    ratios = [size / memory[row.replace('DT', 'RATE')]
              for row, size in memory.items() if row.endswith('DT')]
    self.assertIn(f'| {min(ratios):.1f} to {max(ratios):.1f} with N = 3 |', text)


if __name__ == '__main__':
  absltest.main()
