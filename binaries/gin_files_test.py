"""Every experiment in gin/ can be started, those at the paper's size too.

Each is built and computes the loss of an unroll; at the paper's size, with one layer.
Stand-ins replace DeepMind Lab and the episodes that offline experiments learn from.
"""

import pathlib
from typing import NoReturn
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
from dm_env import specs as specs_lib
import gin
import numpy as np
import pytest
import tree

from gtrxl_tf import collecting
from gtrxl_tf import cores
from gtrxl_tf import datasets
from gtrxl_tf import environments
from gtrxl_tf.analysis import models
from gtrxl_tf.collecting import episodes as collect
from gtrxl_tf.datasets import episodes_testing
from gtrxl_tf.environments import dark_room
from gtrxl_tf.environments import dmlab_testing
from gtrxl_tf.launch import prepare
from gtrxl_tf.settings import config
from gtrxl_tf.training import experiment as experiment_lib

GIN = pathlib.Path(__file__).parents[1] / 'gin'
GTRXL = GIN / 'gtrxl'
_EXPERIMENTS = sorted(path.name for path in GTRXL.glob('*.gin'))
_SMALL = [name for name in _EXPERIMENTS if name.endswith('_cpu.gin')]
LARGE = [name for name in _EXPERIMENTS if name not in _SMALL]
_AGENTS = sorted(path.name for path in GTRXL.glob('agents/*.gin'))
# Small experiments whose actions are not one integer.
_CONTINUOUS = ('apple_maze_cpu.gin', 'memory_maze_sensitivity_cpu.gin',
               'mujoco_hopper_cpu.gin', 'numpad_mujoco_2x2_cpu.gin',
               'numpad_mujoco_2x2_ppo_cpu.gin')
_CORES = sorted(path.name for path in GIN.glob('cores/*.gin'))

BINDINGS = {'dmlab_avm.gin': ['DMLab.dataset_path = "/photographs"'],
            'own_data_cpu.gin': [  # Left to the user.
                'Experiment.environment = @TMaze', 'DecisionPolicy.target_return = 1.0']}

_RATE = GIN / 'rate'
OFFLINE = sorted(path.name for path in _RATE.glob('*.gin'))
_VARIANTS = sorted(path.name for path in _RATE.glob('variants/*.gin')
                   if path.name != 'published_code.gin')
_MODELS = sorted(path.name for path in _RATE.glob('models/*.gin'))
_OF_30_STEPS = 'memory_pool.gin', 'memory_pool_20_times.gin', 'segment_by_segment.gin'
# The paper's ablations of RATE, as settings of `gtrxl compare --models`.
_ABLATIONS = [
    *(('t_maze_30_cpu.gin' if num * length == 30 else 't_maze.gin',
       f'OfflineExperiment.num_segments={num}+OfflineExperiment.segment_length={length}'
       f'+segment_tokens={3 * length}')
      for num, length in ((1, 90), (2, 45), (3, 30), (6, 15), (9, 10), (2, 15), (3, 10),
                          (6, 5))),
    ('t_maze.gin', 'RATE.mlp_dim=%mlp_dim'),
    ('t_maze.gin', 'RATE.memory_noise=1.0'),
    ('t_maze.gin', 'RATE.cache_noise=1.0'),
    ('t_maze.gin', 'WholeTrajectories.curriculum=True'),
    ('minigrid_memory.gin', 'OfflineExperiment.segment_length=10+segment_tokens=30'
     '+context_tokens=90+context_steps=30+cache_tokens=180')]
_DISTILLATION = GIN / 'distillation'
DISTILLED = sorted(path.name for path in _DISTILLATION.glob('models/*.gin'))
_COLLECTOR = dict.fromkeys(  # Any folder.
    ('memory_maze.gin', 'mujoco_hopper_cpu.gin', 'popgym_repeat_first_cpu.gin',
     'popgym_repeat_previous_cpu.gin'), {'saved_model': str(GIN)})


class GinTest(parameterized.TestCase):
  """The code that the tests share."""

  def setUp(self):
    super().setUp()
    gin.clear_config()
    self.addCleanup(gin.clear_config)

  def prepare(self, files, bindings=()):
    try:
      with dmlab_testing.deepmind_lab():
        return prepare.prepare(list(map(str, files)), bindings)
    except config.ConfigError as error:
      self.skip_if_not_installed(error)

  def skip_if_not_installed(self, error) -> NoReturn:
    if 'which is not installed' in str(error):
      self.skipTest(str(error))  # `make test-envs` has the package.
    raise error


class HeadersTest(parameterized.TestCase):

  @parameterized.parameters(*sorted(str(path) for path in GIN.rglob('*.gin')))
  def test_the_first_line_says_what_a_file_reproduces(self, path):
    self.assertRegex(
        pathlib.Path(path).read_text(),
        r"# ((GTrXL|RATE|Distillation|RATE's published code)\b.*(\n# .*)*[:.]"
        r'|Small twin of |Shared by |Not from )')


class GinFilesTest(GinTest):

  @parameterized.parameters(*LARGE)
  @pytest.mark.long
  def test_experiment_of_the_papers_size(self, name):
    experiment = self.prepare(
        [GTRXL / name], ['TransformerXL.num_layers = 1', *BINDINGS.get(name, [])])
    self.assertEqual((experiment.unroll_length, experiment.batch_size), (95, 128))
    self.assertEqual(experiment.acting_network.core.memory_length, 512)

  @parameterized.parameters(
      ('dmlab30.gin', 'lstm_dmlab30.gin', 3 * 256),
      ('dmlab30.gin', 'lstm_large_dmlab30.gin', 12 * 512),
      ('numpad_2x2.gin', 'lstm_2x2_twice_as_long.gin', 3 * 256),
      ('numpad_4x4.gin', 'lstm_4x4_twice_as_long.gin', 3 * 256))
  @pytest.mark.long
  def test_model_of_the_papers_size(self, name, model, output_size):
    experiment = self.prepare([GTRXL / name, GTRXL / 'models' / model])
    self.assertEqual((experiment.unroll_length, experiment.batch_size), (95, 128))
    self.assertEqual(experiment.acting_network.core.output_size, output_size)

  @parameterized.parameters(*_SMALL)
  @pytest.mark.long
  def test_small_experiment(self, name):
    core = self.prepare([GTRXL / name]).acting_network.core
    self.assertEqual(type(core).__name__, 'TransformerXL')

  @parameterized.product(agent=_AGENTS, name=_SMALL)
  @pytest.mark.long
  def test_agent(self, agent, name):
    files = [GTRXL / name, GTRXL / 'agents' / agent]
    if agent == 'r2d2.gin' and name in _CONTINUOUS:
      with self.assertRaisesRegex(config.ConfigError, 'expected one DiscreteArray'):
        self.prepare(files)
    else:
      self.assertEqual(f'{self.prepare(files).make_agent().name}.gin', agent)

  @parameterized.parameters(*LARGE)
  @pytest.mark.long
  def test_ppo_at_the_papers_size_is_on_policy(self, name):
    # Tasks that share the environments equally need the sizes that ppo.gin names.
    sizes = {'dmlab30.gin': (120, 15, 8), 'atari57.gin': (228, 57, 4)}.get(name, ())
    names = 'batch_size', 'num_actors', 'environments_per_actor'
    experiment = self.prepare(
        [GTRXL / name, GTRXL / 'agents' / 'ppo.gin'],
        ['TransformerXL.num_layers = 1', *BINDINGS.get(name, []),
         *(f'OnlineExperiment.{name} = {size}' for name, size in zip(names, sizes))])
    self.assertEqual(experiment.unrolls_per_weights, 1)
    self.assertEqual(experiment.max_age(experiment.make_agent()), 1)

  @pytest.mark.long
  def test_r2d2_at_its_papers_size(self):
    experiment = self.prepare(
        [GIN / 'r2d2' / 'atari.gin'], ["Atari.game = 'ms_pacman'"])
    experiment.check()
    self.assertEqual((experiment.items_per_batch, experiment.new_items), (64, 333))

  @parameterized.parameters(*_CORES)
  @pytest.mark.long
  def test_core(self, name):
    core = self.prepare(
        [GTRXL / _SMALL[0], GIN / 'cores' / name]).acting_network.core
    self.assertGreater(core.output_size, 0)


class OfflineGinTest(GinTest):
  """The code that tests of gin/rate share.

  Two episodes of noise stand in for datasets, batches have one row, and stacks of eight
  layers have one.
  """

  def episodes(self, name):
    """A dataset that fits an experiment, and a stand-in for its environment."""
    config.parse([str(_RATE / name)], BINDINGS.get(name, []))
    settings = gin.get_bindings('Experiment')
    first_task, *_ = environments.task_settings('Experiment', settings.get('tasks'))
    try:
      prototype = settings['environment'](seed=0, **first_task)
    except config.ConfigError as error:
      self.skip_if_not_installed(error)
    observation_spec = prototype.observation_spec()
    action_spec = prototype.action_spec()
    prototype.close()
    frames = gin.get_bindings('OfflineExperiment').get('frame_stack', 1)
    def single(spec):
      return specs_lib.Array(
          (*spec.shape[:-1], spec.shape[-1] // frames), spec.dtype)
    specs = datasets.Specs(
        tree.map_structure(single, observation_spec) if frames > 1 else observation_spec,
        action_spec)
    random = np.random.default_rng(0)
    episodes = [episodes_testing.random_episode(specs, random, 20) for _ in range(2)]
    folder = self.create_tempdir().full_path
    episodes_testing.write(folder, specs, [
        episode._replace(reward=np.ones_like(episode.reward)) for episode in episodes])
    environment = mock.Mock(spec_set=[
        'observation_spec', 'action_spec', 'close', 'reset', 'step', 'name', 'watched'])
    for method, last in (environment.reset, True), (environment.step, False):
      method.return_value.last.return_value = [last]
      method.return_value.observation = tree.map_structure(
          lambda spec: np.zeros([1, *spec.shape], spec.dtype), observation_spec)
    environment.observation_spec.return_value = observation_spec
    environment.action_spec.return_value = action_spec
    return folder, environment

  def build(self, stand_ins, name, *added, bindings=()):
    """An experiment of a file and those that are added to it."""
    gin.clear_config()
    folder, environment = stand_ins
    with mock.patch.object(
        experiment_lib.Experiment, 'make_environments', return_value=environment):
      experiment = self.prepare(
          [_RATE / name, *(_RATE / file for file in added)],
          [f'OfflineExperiment.dataset = {folder!r}',
           'OfflineExperiment.batch_size = 1',
           'PixelTorso.channels = (4,)', 'PixelTorso.units = 8',
           'RATE.num_layers = 1', *BINDINGS.get(name, []), *bindings])
    if added[0] not in ('models/cql_sac.gin', 'models/tap.gin'):  # Without tokens.
      length, num = [gin.query_parameter(f'OfflineExperiment.{setting}')
                     for setting in ('segment_length', 'num_segments')]
      macros = 'segment_tokens', 'context_tokens', 'context_steps'
      self.assertEqual(
          [gin.query_parameter(f'%{macro}') for macro in macros],
          [3 * length, 3 * length * num, length * num])
    return experiment

  def has(self, setting):
    try:
      return bool(gin.query_parameter(setting))
    except ValueError:
      return False

  def try_models(self, name):
    """Builds an experiment with every model that fits it."""
    stand_ins = self.episodes(name)
    continuous = stand_ins[1].action_spec().dtype.kind == 'f'
    unfit = {'cql.gin'} if continuous else {'cql_sac.gin', 'tap.gin'}
    if not self.has('%oracle'):
      unfit.add('oracle_dt.gin')
    if self.has('%published_learner_steps'):
      self.build(stand_ins, name, 'models/rate.gin',
                 'variants/published_code.gin')
    for model in sorted(set(_MODELS) - unfit):
      with self.subTest(model):
        self.build(stand_ins, name, f'models/{model}')


class OfflineFilesTest(OfflineGinTest):
  """Every file of gin/rate; gin_files_slow_test.py combines every file and model."""

  @parameterized.parameters(*OFFLINE)
  @pytest.mark.long
  def test_experiment(self, name):
    self.build(self.episodes(name), name, 'models/rate.gin')
    if self.has('Collector.environment'):
      collect.Collector(**_COLLECTOR.get(name, {}))

  @pytest.mark.medium
  def test_a_run_s_record_has_the_settings_of_its_score(self):
    name = 'mujoco_hopper_cpu.gin'
    self.build(self.episodes(name), name, 'models/bc.gin')
    self.assertIn('d4rl_score.high = 3234.3', config.operative_text())

  @parameterized.parameters(*_VARIANTS)
  @pytest.mark.medium
  def test_variant(self, name):
    experiment = 't_maze_30_cpu.gin' if name in _OF_30_STEPS else 't_maze.gin'
    self.build(self.episodes(experiment), experiment, 'models/rate.gin',
               f'variants/{name}')

  def test_mazes_of_20_times_the_training_length(self):
    config.parse([str(_RATE / 't_maze_30_cpu.gin'),
                  str(_RATE / 'variants/memory_pool_20_times.gin')], [])
    trained, _, longest = gin.query_parameter('Experiment.tasks')['corridor_length']
    self.assertEqual(longest + 2, 20 * (trained + 2))
    self.assertEqual(gin.query_parameter('data/TMaze.corridor_length'), trained)

  @parameterized.parameters(*_ABLATIONS)
  @pytest.mark.long
  def test_ablation(self, experiment, settings):
    [model] = models.models([f'models/rate.gin+{settings}']).values()
    self.build(self.episodes(experiment), experiment, *model.gin_files,
               bindings=model.bindings)

  @parameterized.parameters('t_maze', 't_maze_30_cpu', 't_maze_90_cpu')
  def test_pictures_of_t_mazes_have_the_lines_of_figure_4(self, name):
    # gtrxl_tf/collecting/episodes_test.py plays both agents.
    config.parse([str(_RATE / f'{name}.gin')], [])
    self.assertEqual(gin.query_parameter('Experiment.reference_lines'), {
        'success': {'persistent agent': 0.5, 'random agent': 0.0}})

  @parameterized.product(
      task=['minigrid_memory', 'vizdoom_two_colors'], size=['', '_cpu'])
  def test_the_cache_is_as_long_as_in_table_8(self, task, size):
    config.parse([str(_RATE / f'{task}{size}.gin')], [])
    length, num, num_tokens, cached = map(gin.query_parameter, (
        'OfflineExperiment.segment_length', 'OfflineExperiment.num_segments',
        '%memory_tokens', '%cache_tokens'))
    self.assertEqual(cached, (3 * length + 2 * num_tokens) * num)

  @pytest.mark.medium
  def test_the_paper_s_size(self):
    experiment = self.build(self.episodes('t_maze.gin'), 't_maze.gin', 'models/dt.gin',
                            bindings=['RATE.num_layers = 8'])
    size = sum(np.prod(x.shape) for x in experiment.make_agent().learned_variables)
    # 2.4 million in Table 11, of which 0.65 million belong to an unused part.
    self.assertBetween(size, 1.70e6, 1.74e6)


class DistillationGinTest(GinTest):
  """The code that tests of gin/distillation share.

  One blank history stands in for datasets, and batches have one row.
  """

  def build(self, name, *added, bindings=()):
    gin.clear_config()
    files = [_DISTILLATION / name, *(_DISTILLATION / file for file in added)]
    config.parse(list(map(str, files)), [])
    collector = collecting.HistoryCollector()  # pylint: disable=no-value-for-parameter
    family = collector.family
    folder = self.create_tempdir().full_path + '/dataset'
    blank = [np.zeros((family.num_steps, *spec.shape), spec.dtype)
             for spec in (*collector.specs, specs_lib.Array((), np.uint8))]
    with datasets.EpisodeWriter(folder, collector.specs, family.name, kind='histories',
                                final_observation=False) as writer:
      writer.write([datasets.Episode(*blank)])
    gin.clear_config()
    return self.prepare(files, [
        f'dataset = {folder!r}', 'OfflineExperiment.batch_size = 1', *bindings])


class DistillationFilesTest(DistillationGinTest):
  """Settings and models, small; gin_files_slow_test.py has them as they are, and the
  ablations."""

  def build(self, name, *added, bindings=(
      'SegmentTransformer.num_layers = 1', 'SegmentTransformer.model_dim = 16',
      'SegmentTransformer.mlp_dim = 16')):
    return super().build(name, *added, bindings=bindings)

  @parameterized.product(
      setting=list(dark_room.SETTINGS), size=('.gin', '_cpu.gin'))
  @pytest.mark.medium
  def test_setting(self, setting, size):
    self.build(setting + size, 'models/ed.gin')
    # pylint: disable-next=no-value-for-parameter
    episode = dark_room.DarkRoomFamily().setting.episode_length
    self.assertGreater(gin.query_parameter('%context_length'), 1.7 * episode)
    self.assertLessEqual(gin.query_parameter('%chunk_length'), 0.5 * episode)

  @parameterized.parameters(*dark_room.SETTINGS)
  def test_twins_have_the_papers_norm_and_ratios_of_steps(self, setting):
    def steps(name):
      gin.clear_config()
      config.parse([str(_DISTILLATION / name)], [])
      return [gin.query_parameter(f'%{kind}_steps') for kind in (
          'adf', 'adr', 'recurrent')]

    _, adr, recurrent = steps(f'{setting}.gin')
    twin_adf, twin_adr, twin_recurrent = steps(f'{setting}_cpu.gin')
    self.assertEqual(twin_adr, 5 * twin_adf)
    self.assertAlmostEqual(twin_recurrent / twin_adr, recurrent / adr, places=4)
    self.assertEmpty([name for name in gin.config_str().splitlines()
                      if name.startswith('SegmentTransformer.norm')])

  @parameterized.parameters(*DISTILLED)
  @pytest.mark.medium
  def test_model(self, model):
    experiment = self.build('dr_cpu.gin', f'models/{model}')
    # One `gtrxl compare` trains each model for its own number of steps.
    expected = {'adf': 12_000, 'adr': 60_000}.get(model.removesuffix('.gin'), 40_000)
    self.assertEqual(experiment.learner_steps, expected)

  @pytest.mark.medium
  def test_four_tokens_a_transition(self):
    for model, lengths in ('adf', (200, 0)), ('ed', (40, 40)):
      with self.subTest(model):
        experiment = self.build(
            'dr_cpu.gin', f'models/{model}.gin', 'variants/four_tokens.gin')
        core = experiment.make_agent().network.core
        self.assertEqual((core.segment_length, core.memory_length), lengths)

  def test_the_width_is_the_papers(self):
    core = {}
    for name, *added in (('dr.gin',), ('dr_cpu.gin', 'variants/wide.gin')):
      gin.clear_config()
      config.parse([str(_DISTILLATION / file) for file in (name, *added)], [])
      core[name] = cores.SegmentTransformer(segment_length=1).get_config()
    sizes = 'model_dim', 'num_heads', 'head_dim', 'mlp_dim', 'norm'
    self.assertEqual(*([made[size] for size in sizes] for made in core.values()))
    self.assertEqual(core['dr_cpu.gin']['num_layers'], 2)
    self.assertEqual(gin.query_parameter('AdamW.learning_rate'), 2e-4)
    self.build('dr_cpu.gin', 'models/ed.gin', 'variants/wide.gin')

  def test_windows(self):
    self.build('dr_cpu.gin', 'models/ed.gin', 'variants/windows.gin')

  def test_the_paper_s_size(self):
    experiment = self.build('dr.gin', 'models/adf.gin', bindings=())
    size = sum(np.prod(x.shape) for x in experiment.make_agent().learned_variables)
    # Four layers have 12.6 million, and 2,500 positions 1.3 million.
    self.assertBetween(size, 13.8e6, 14.0e6)


if __name__ == '__main__':
  absltest.main()
