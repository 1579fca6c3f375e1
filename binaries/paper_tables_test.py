"""The GTrXL paper's experiments, as gin files and commands, have the paper's settings.

`testdata/gtrxl_tables.md` is a transcription of the paper's tables.
"""

from absl.testing import absltest
from absl.testing import parameterized
import gin

from binaries import commands_testing
from binaries import paper_tables_testing
from gtrxl_tf.environments import apple_maze
from gtrxl_tf.environments import dmlab
from gtrxl_tf.environments import scores
from gtrxl_tf.settings import config

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


# For each gin file: the column of Table 8, the table with its architectures, its
# environment steps and where the paper states them, and the number of runs likewise.
_FILES = {
    'dmlab30': ('DMLab-30', 9, 10e9, 'Table 9', 8, 'appendix B'),
    'dmlab_avm': ('DMLab-30', 9, None, '', None, ''),
    'numpad_2x2': ('Numpad', 10, 0.15e9, 'Figure 3', 5, 'Table 10'),
    'numpad_3x3': ('Numpad', 10, 1e9, 'Figure 3', 5, 'Table 10'),
    'numpad_4x4': ('Numpad', 10, 2e9, 'Figure 3', 5, 'Table 10'),
    'memory_maze_sensitivity': ('Memory Maze', 11, 2e9, 'Figure 5', 25, 'Table 3'),
    'identity_initialization': ('Memory Maze', 12, 4e9, 'Figure 7', 10, 'Figure 7'),
    'atari57': (None, None, 11.4e9, 'Table 14', 8, 'appendix E'),
}

# The setting of each row of Table 8 that is a number.
_NUMBERS = {
    'Batch Size': 'OnlineExperiment.batch_size',
    'Unroll Length': 'OnlineExperiment.unroll_length',
    'Discount': 'VMPOAgent.discount',
    'Action Repeat': 'OnlineExperiment.frames_per_action',
    'Pixel Control Cost': 'VMPOAgent.pixel_control_cost',
    'Target Update Period': 'VMPOAgent.target_update_period',
    'Initial eta': 'VMPOAgent.initial_temperature',
    'Initial alpha': 'VMPOAgent.initial_alpha',
    'Initial alpha_mu': 'VMPOAgent.initial_alpha_mean',
    'Initial alpha_Sigma': 'VMPOAgent.initial_alpha_scale',
    'epsilon_eta': 'VMPOAgent.epsilon_temperature',
}

# The setting of each row of Table 8 that is a range to draw from.
_RANGES = {
    'epsilon_alpha, LSTM': 'epsilon_alpha',
    'epsilon_alpha, TrXL Variants': 'epsilon_alpha',
    'epsilon_alpha_mu': 'epsilon_alpha_mean',
    'epsilon_alpha_Sigma': 'epsilon_alpha_scale',
}

_SIZES = {
    'LSTM': {'# Layers': 'num_layers', 'Hidden Dim.': 'hidden_dim'},
    'TrXL': {'# Layers': 'num_layers', 'Head Dim.': 'head_dim', '# Heads': 'num_heads',
             'Hidden Dim.': 'model_dim', 'Memory Size': 'memory_length'},
}


_TABLES = paper_tables_testing.tables('gtrxl_tables.md')
_COMMANDS = paper_tables_testing.commands('docs/gtrxl.md', 'gtrxl')
_setting = paper_tables_testing.setting


def _name(what):
  """The name of the gin file of a figure or table."""
  [name] = _COMMANDS[what].names
  return name


def _value(cell):
  """The number or numbers in a cell; ranges may be open."""
  return paper_tables_testing.value(cell.replace(')', ']'))


class CommandsTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    gin.clear_config()
    self.addCleanup(gin.clear_config)

  def each_model(self, what, known):
    """Parses the settings of each model of a command, and yields its label."""
    if not known:
      self.skipTest('not in the table')
    return _COMMANDS[what].parse_each()

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

  def test_every_file_of_the_papers_size_has_a_command(self):
    files = {path.stem for path in (_GIN / 'gtrxl').glob('*.gin')
             if not path.stem.endswith('_cpu')}
    self.assertEqual({_name(what) for what in _COMMANDS}, files)
    self.assertEqual(set(_FILES), files)

  def test_commands_in_files_of_the_papers_size_are_those_of_the_page(self):
    for name in _FILES:
      text = (_GIN / 'gtrxl' / f'{name}.gin').read_text(encoding='utf-8')
      for command in commands_testing.commands(text):
        self.assertIn(paper_tables_testing.command(command, 'gtrxl'),
                      _COMMANDS.values())

  @parameterized.parameters(*_COMMANDS)
  def test_table_8(self, what):
    column = _FILES[_name(what)][0]
    for label in self.each_model(what, column):
      for name, cells in _TABLES['8'].items():
        cell, other = cells[column], 'TrXL' if 'LSTM' in _NAMES[label] else 'LSTM'
        if cell == '-' or f', {other}' in name:
          continue
        with self.subTest(f'{label}: {name}'):
          if name in _NUMBERS:
            self.assertEqual(_setting(_NUMBERS[name]), _value(cell))
          else:
            drawn = _RANGES[name]
            self.assertEqual(
                str(_setting(f'VMPOAgent.{drawn}')), f'@{drawn}/log_uniform()')
            self.assertEqual([_setting(f'{drawn}/log_uniform.{bound}')
                              for bound in ('low', 'high')], _value(cell))
      has_pixel_control = _setting('ActorCritic.pixel_control_head') is not None
      self.assertEqual(
          has_pixel_control, _TABLES['8']['Pixel Control Cost'][column] != '-')

  @parameterized.parameters(*_COMMANDS)
  def test_tables_9_to_12(self, what):
    number = _FILES[_name(what)][1]
    for label in self.each_model(what, number):
      name = _NAMES[label]
      cells = _TABLES[str(number)][name]
      core = str(_setting('ActorCritic.core'))
      with self.subTest(label):
        is_lstm = 'LSTM' in name
        self.assertEqual(core, '@DeepLSTM()' if is_lstm else '@TransformerXL()')
        for column, setting in _SIZES['LSTM' if is_lstm else 'TrXL'].items():
          self.assertEqual(_setting(f'{core[1:-2]}.{setting}'), _value(cells[column]))
        if not is_lstm:
          variant, _, gate = name.removeprefix('Thin ').partition(' ')
          self.assertEqual(_setting('TransformerXL.variant'),
                           variant.lower().replace('-', '_'))
          if gate:
            self.assertEqual(_setting('TransformerXL.gate'), gate.strip('()').lower())
          self.assertEqual(_setting('TransformerXL.gate_bias') == 0,
                           label == 'gtrxl_no_identity')

  @parameterized.parameters(*_COMMANDS)
  def test_budgets_and_runs(self, what):
    command = _COMMANDS[what]
    *_, steps, where, runs, where_runs = _FILES[_name(what)]
    if steps:
      for label in self.each_model(what, True):
        twice = 2 if 'twice' in label else 1
        self.assertEqual(
            _setting('OnlineExperiment.environment_steps'), twice * steps, where)
      self.assertEqual(command.seeds, runs, where_runs)

  def test_tables_3_and_11_have_the_models_of_figure_5(self):
    names = self.paper_names('Figure 5, Table 3: sensitivity')
    self.assertEqual(names, set(_TABLES['3']))
    self.assertEqual(names, set(_TABLES['11']))

  def test_tables_1_and_9_have_the_models_of_figures_4_and_6(self):
    self.assertEqual(self.paper_names('Figure 4, Table 1: gates'),
                     set(_TABLES['1']) - {'MERLIN@100B'})
    self.assertEqual(self.paper_names('Figure 6, Table 2: parameters'), set(_TABLES['9']))

  def test_table_1_has_the_reference_lines_of_merlin(self):
    config.parse(['gin/gtrxl/dmlab30.gin'], [])
    lines = _setting('Experiment.reference_lines')
    merlin = _TABLES['1']['MERLIN@100B']
    for score, column in (('score', 'Mean Human Norm.'),
                          ('score_capped', 'Mean Human Norm., 100-capped')):
      self.assertEqual(lines[score], {
          'human': 100, 'MERLIN@100B (Table 1)': _value(merlin[column])})

  def test_table_14(self):
    what = 'Table 14: Atari-57'
    self.assertEqual(self.paper_names(what), set(_TABLES['14']))
    for label in self.each_model(what, True):
      games = _setting('Experiment.tasks')['game']
      self.assertEqual(str(games), '%ATARI_57')
      frames = _setting('OnlineExperiment.environment_steps')
      self.assertEqual(frames, 57 * 200e6)
      self.assertEqual(_setting('OnlineExperiment.frames_per_action'), 4)
      self.assertEqual(_setting(
          'DeepLSTM.hidden_dim' if label == 'lstm' else 'TransformerXL.model_dim'), 256)
    self.assertEqual(_setting('TransformerXL.num_layers'), 12)

  @parameterized.parameters('2x2', '4x4')
  def test_an_lstm_is_trained_twice_as_long_on_numpad(self, size):
    command = _COMMANDS[f'Figure 3: Numpad {size}']
    steps = {}
    for label in command.parse_each():
      steps[label] = gin.query_parameter('OnlineExperiment.environment_steps')
      self.assertIn(_NAMES[label], ('LSTM', 'GTrXL (GRU)'))
    self.assertEqual(steps[f'lstm_{size}_twice_as_long'], 2 * steps['lstm'])
    self.assertEqual(steps['lstm'], steps['gtrxl'])


class EnvironmentsTest(parameterized.TestCase):

  @parameterized.parameters((5, 'dmlab30'), (6, 'avm'))
  def test_tables_4_to_6(self, number, actions):
    expected = [tuple(_value(row['NATIVE DMLAB ACTION']))
                for row in _TABLES[str(number)].values()]
    self.assertEqual(list(dmlab.ACTION_SETS[actions]), expected)
    bounds = [_value(row['RANGE']) for row in _TABLES['4'].values()]
    for action in expected:
      for value, (low, high) in zip(action, bounds, strict=True):
        self.assertBetween(value, low, high)

  def test_table_7(self):
    *continuous, grip = [(name, _value(row['RANGE'])) for name, row in
                         _TABLES['7'].items()]
    self.assertEqual([(name, [-bound, bound]) for name, bound in
                      apple_maze.CONTINUOUS_ACTIONS], continuous)
    spec = apple_maze.AppleMaze(observation='state').action_spec()['grip']
    self.assertEqual(grip, ('HAND_GRIP', set(range(spec.num_values))))

  def test_action_repeats_are_those_of_table_8(self):
    repeats = _TABLES['8']['Action Repeat']
    self.assertEqual(_setting('DMLab.action_repeat'), _value(repeats['DMLab-30']))
    self.assertEqual(apple_maze.ACTION_REPEATS, _value(repeats['Memory Maze']))

  def test_table_13(self):
    for split, levels in (
        ('Memory', scores.MEMORY_LEVELS), ('Reactive', scores.REACTIVE_LEVELS)):
      self.assertCountEqual(levels, [
          level for level, row in _TABLES['13'].items() if row['Split'] == split])


if __name__ == '__main__':
  absltest.main()
