"""Distillation's experiments, as gin files and commands, have the paper's settings.

`testdata/distillation_tables.md` is a transcription of the paper's tables. No setting
differs from them.
"""

import re

from absl.testing import absltest
from absl.testing import parameterized
import gin

from binaries import commands_testing
from binaries import paper_tables_testing
from gtrxl_tf import collecting
from gtrxl_tf.environments import dark_room
from gtrxl_tf.settings import config
from gtrxl_tf.training import optimizers
from gtrxl_tf.training.offline import history_experiment

_ROOT = commands_testing.ROOT
_TABLES = paper_tables_testing.tables('distillation_tables.md')
_COMMANDS = paper_tables_testing.commands('docs/distillation.md')
_value = paper_tables_testing.value
_setting = paper_tables_testing.setting

_SETTINGS = list(dark_room.SETTINGS)
_MODELS = ('adf', 'adr', 'mem', 'xl', 'ed')
_RECURRENCE = {'adf': 'none', 'adr': 'none', 'mem': 'none', 'xl': 'xl',
               'ed': 'same_layer'}

# The settings of each row of Table S3 that is a number.
_NUMBERS = {
    'Layers': ['SegmentTransformer.num_layers'],
    'Hidden dimension': ['SegmentTransformer.model_dim'],
    'Dropout': ['SegmentTransformer.dropout', 'SegmentTransformer.attention_dropout'],
    'Feedforward dimension': ['SegmentTransformer.mlp_dim'],
    'Attention head': ['SegmentTransformer.num_heads'],
    'Optimizer weight decay': ['AdamW.weight_decay'],
    'Learning rate': ['AdamW.learning_rate'],
    'Batch size': ['OfflineExperiment.batch_size'],
    'Label smooth': ['DistillationAgent.label_smoothing'],
}


def _row(table, setting):
  """The row of a setting; in Table S4 one has another name."""
  [row] = [cells for name, cells in _TABLES[table].items()
           if name.split(',')[0] == setting]
  return row


def _steps(cell):
  """The steps in a cell: a number, or a number over a ratio."""
  steps, _, ratio = cell.partition(' / ')
  return round(_value(steps) / _value(ratio or '1'))


class DistillationTablesTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    gin.clear_config()
    self.addCleanup(gin.clear_config)

  def parse(self, setting, model):
    gin.clear_config()
    config.parse([f'gin/distillation/{setting}.gin',
                  f'gin/distillation/models/{model}.gin'], [])

  @parameterized.parameters(*_COMMANDS)
  def test_settings_of_commands_are_read(self, what):
    for _ in _COMMANDS[what].parse_each():
      pass

  def test_every_figure_and_table_of_experiments_has_a_command(self):
    named = ' '.join(_COMMANDS)
    figures = {int(x) for x in re.findall(r'Figure (\d+)', named)}
    self.assertEqual(figures, {5, 6, 7, 8, 9, 10, 11})  # The others are drawings.
    self.assertIn('Table 1', named)

  def test_figure_5_has_all_settings_and_models(self):
    [command] = [x for what, x in _COMMANDS.items() if 'Figure 5' in what]
    self.assertEqual(command.names, _SETTINGS)
    self.assertEqual(set(command.models), set(_MODELS))
    self.assertEqual({x.upper() for x in command.models},
                     set(_TABLES['1']['dr']) - {'Episode Length'})
    self.assertEqual(set(_TABLES['1']), set(_SETTINGS))
    self.assertEqual(set(_TABLES['S1']), set(_SETTINGS))

  @parameterized.parameters(*_SETTINGS)
  def test_table_s1(self, setting):
    self.parse(setting, 'adf')
    collector = collecting.HistoryCollector()  # pylint: disable=no-value-for-parameter
    room = collector.family.setting
    cells = list(_TABLES['S1'][setting].values())
    self.assertEqual(
        [*collector.num_histories.values(), room.size, room.episode_length,
         room.num_episodes], [_value(cell) for cell in cells[:-1]])
    for table in '1', 'S4', 'S5':
      cells = {name.lower(): x for name, x in _row(table, setting).items()}
      self.assertEqual(room.episode_length, _value(cells['episode length']))

  @parameterized.parameters(*_SETTINGS)
  def test_table_s2(self, setting):
    self.parse(setting, 'adf')
    self.assertEqual({name: _setting(f'QLearning.{name.replace(" ", "_")}')
                      for name in _TABLES['S2']},
                     {name: _value(row['values']) for name, row in _TABLES['S2'].items()})

  @parameterized.product(setting=_SETTINGS, model=_MODELS)
  def test_table_s3(self, setting, model):
    self.parse(setting, model)
    table = {name: row['values'] for name, row in _TABLES['S3'].items()}
    for name, settings in _NUMBERS.items():
      paper = _value(table.pop(name))
      for each in settings:
        with self.subTest(each):
          self.assertEqual(_setting(each), paper)
    self.assertEqual((_setting('AdamW.beta_1'), _setting('AdamW.beta_2')),
                     _value(table.pop('Optimizer betas')))
    self.assertIsNone(_setting('Experiment.optimizer'))
    self.assertIs(history_experiment.HistoryExperiment.default_optimizer,
                  getattr(optimizers, table.pop('Optimizer')))
    self.assertEqual(table.pop('Learning rate scheduler'),
                     'linear warm-up & cosine decay')
    self.assertGreater(_setting('AdamW.warmup_steps'), 0)
    self.assertEqual(_setting('AdamW.decay'), 'cosine')
    self.assertEqual(f'{_setting("SegmentTransformer.norm")}norm',
                     table.pop('LayerNorm'))
    # `DistillationAgent` has it for discrete actions, which these rooms have.
    self.assertEqual(table, {'Loss function': 'CrossEntropyLoss'})

  @parameterized.product(setting=_SETTINGS, model=_MODELS)
  def test_tables_1_and_s4_to_s6(self, setting, model):
    self.parse(setting, model)
    *lengths, _ = _TABLES['1'][setting][model.upper()].split(', ')
    lengths = [_value(x) for x in lengths]
    table = {'adf': 'S4', 'adr': 'S5'}.get(model, 'S6')
    row = _row(table, setting)
    columns = (['chunk length', 'memory capacity'] if table == 'S6'
               else ['context length'])
    self.assertEqual([_value(row[x]) for x in columns], lengths)
    self.assertEqual(_setting('OfflineExperiment.learner_steps'),
                     _steps(row['training steps']))

    self.assertEqual(_setting('SegmentTransformer.recurrence'), _RECURRENCE[model])
    self.assertEqual(_setting('SegmentTransformer.segment_length'), lengths[0])
    memory = {name: _setting(f'SegmentTransformer.{name}')
              for name in ('num_prefix', 'memory_length')}
    expected = dict.fromkeys(memory, 0)
    if table == 'S6':
      expected['num_prefix' if model == 'mem' else 'memory_length'] = lengths[1]
      self.assertEqual(row['ADR context length'], row['chunk length'])
      # Gradients pass one chunk, as published.
      self.assertEqual(_setting('OfflineExperiment.num_segments'), 1)
    self.assertEqual(memory, expected)

  def test_the_page_quotes_table_1(self):
    text = (_ROOT / 'docs/distillation.md').read_text(encoding='utf-8')
    for setting in 'dr', 'drln':
      adf, ed = [float(_TABLES['1'][setting][model].split(', ')[-1].removesuffix(' GB'))
                 for model in ('ADF', 'ED')]
      for quoted in f'{adf:.2f}', f'{ed:.2f}', f'{adf / ed:.2f} times less':
        self.assertIn(quoted, ' '.join(text.split()))


if __name__ == '__main__':
  absltest.main()
