"""Tests of gymnasium.py and making.py, with gymnasium and packages for it."""

import functools
import os
import pathlib
import re
import sys
import types
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import gin
import gymnasium as gym
from gymnasium import spaces
import numpy as np
import tree

import gtrxl_tf
from gtrxl_tf.collecting import episodes as collecting
from gtrxl_tf.environments import batched_environment
from gtrxl_tf.environments import gymnasium
from gtrxl_tf.environments import instructions
from gtrxl_tf.environments import making
from gtrxl_tf.environments import specs as specs_lib
from gtrxl_tf.environments import wrappers
from gtrxl_tf.settings import config


class Everything(gym.Env):
  """Shows random observations for four steps, and keeps the actions and the seeds."""
  metadata = {'render_modes': ['rgb_array']}

  def __init__(self, observation_space=None, action_space=None, infos=()):
    """`infos` are those of each step, the first of `reset`; the rest are empty."""
    self.observation_space, self.action_space = (
        default if given is None else given for given, default in (
            (observation_space, spaces.Discrete(3)), (action_space, spaces.Discrete(2))))
    self._infos = infos
    self.actions, self.observations, self.seeds = [], [], []

  def reset(self, *, seed=None, options=None):
    super().reset(seed=seed)
    self.seeds.append(seed)
    if seed is not None:
      self.observation_space.seed(seed)
    self._steps = 0
    return self._result()

  def step(self, action):
    assert self.action_space.contains(action), action
    self.actions.append(action)
    self._steps += 1
    observation, info = self._result()
    return observation, 1, self._steps == 4, False, info

  def expert(self):
    return self.action_space.start + self._steps % 2

  def render(self):
    return np.full([6, 8, 3], self._steps, np.uint8)

  def _result(self):
    self.observations.append(self.observation_space.sample())
    return self.observations[-1], dict(
        self._infos[self._steps] if self._steps < len(self._infos) else {})


def _masks(*masks):
  return [{} if mask is None else {'action_mask': mask} for mask in masks]


_SPACES = [
    spaces.Discrete(3),
    spaces.Discrete(3, start=-2),
    spaces.MultiDiscrete([3, 5, 2]),
    spaces.MultiDiscrete([[3, 5], [2, 2]], start=[[1, -5], [0, 7]]),
    spaces.MultiBinary(4),
    spaces.MultiBinary([2, 3]),
    spaces.Box(-1, 1, [2], np.float32),
    spaces.Box(np.array([-3, 1]), np.array([2, 7]), dtype=np.int64),
    spaces.Box(0, 255, [4, 4, 3], np.uint8),
    spaces.Dict(b=spaces.Discrete(3, start=1), a=spaces.Box(0, 1, [2], np.float64)),
    spaces.Tuple([spaces.Discrete(2), spaces.Dict(x=spaces.MultiBinary(2))]),
]


class GymnasiumTest(parameterized.TestCase):

  @parameterized.parameters(
      ('HalfCheetah-v4', 17, 6), ('Hopper-v4', 11, 3), ('Walker2d-v4', 17, 6))
  def test_mujoco(self, name, observation_size, action_size):
    self.addCleanup(os.chdir, os.getcwd())
    os.chdir(self.create_tempdir().full_path)  # MuJoCo leaves its warnings there.
    try:
      environment = batched_environment.BatchedEnvironment(
          [gymnasium.GymnasiumEnvironment(name, seed=0)])
    except config.ConfigError as error:
      self.skipTest(str(error))
    self.assertEqual(environment.observation_spec().shape, (observation_size,))
    self.assertEqual(environment.action_spec().shape, (action_size,))
    environment.reset()
    seen = environment.step(np.full([1, action_size], 0.1, np.float32))
    self.assertNotEqual(seen.reward[0], 0)
    self.assertEqual(seen.observation.dtype, np.float32)

  @parameterized.parameters(
      ('popgym-RepeatPreviousEasy-v0',), ('popgym-CountRecallEasy-v0',),
      ('popgym-AutoencodeEasy-v0',), ('popgym-BattleshipEasy-v0',),
      ('popgym-NoisyPositionOnlyPendulumEasy-v0',), ('MiniGrid-MemoryS7-v0',),
      ('BabyAI-GoToRedBall-v0',), ('FrozenLake-v1',), ('Blackjack-v1',), ('Taxi-v4',))
  def test_steps_with_random_actions(self, name):
    environment = batched_environment.BatchedEnvironment(
        [gymnasium.GymnasiumEnvironment(name, seed=seed) for seed in range(2)])
    self.addCleanup(environment.close)
    random = np.random.default_rng(0)
    environment.reset()
    num_ends = 0
    for _ in range(400):
      actions = tree.map_structure(
          lambda spec: np.stack(
              [specs_lib.random_value(spec, random) for _ in range(2)]),
          environment.action_spec())
      num_ends += environment.step(actions).last().sum()
    self.assertGreater(num_ends, 0)

  def test_a_policy_of_the_task_collects_its_actions(self):
    def make(seed=None):
      del seed
      return Everything(action_space=spaces.Discrete(2, start=5))
    episode, *_ = collecting.Collector(make, num_episodes=8, policy='expert').play(0)
    np.testing.assert_array_equal(episode.action, [5, 6, 5, 6])

  def test_missions_become_words_if_max_words_is_set(self):
    name = 'BabyAI-GoToRedBall-v0'
    self.assertNotIn(
        'mission', gymnasium.GymnasiumEnvironment(name, seed=0).observation_spec())
    environment = gymnasium.GymnasiumEnvironment(name, seed=0, max_words=6)
    mission = environment.reset().observation['mission']
    environment.observation_spec()['mission'].validate(mission)
    self.assertEqual(mission.tolist(), instructions.hash_instruction(
        'go to the red ball', 6).tolist())

  @parameterized.named_parameters(
      ('plain', lambda m, task: task, (7, 7, 3), 10),
      ('smaller_view', lambda m, task: m.ViewSizeWrapper(task, 5), (5, 5, 3), 10),
      ('all', lambda m, task: m.FullyObsWrapper(task), (7, 7, 3), 10),
      ('one_hot', lambda m, task: m.OneHotPartialObsWrapper(task), (7, 7, 20), 1),
      ('pixels', lambda m, task: m.RGBImgPartialObsWrapper(task), (56, 56, 3), 255),
      ('small_pixels', lambda m, task: gym.wrappers.ResizeObservation(
          m.ImgObsWrapper(m.RGBImgPartialObsWrapper(task)), (7, 7)), (7, 7, 3), 255),
      ('crop', lambda m, task: gym.wrappers.TransformObservation(
          m.ImgObsWrapper(task), lambda x: x[2:5, 3:],
          spaces.Box(0, 255, [3, 4, 3], np.uint8)), (3, 4, 3), 10),
      ('frames', lambda m, task: gym.wrappers.FrameStackObservation(
          m.ImgObsWrapper(task), 4), (4, 7, 7, 3), 10),
      ('flat', lambda m, task: m.FlatObsWrapper(task), (2835,), 10),
      ('own_picture', lambda m, task: gym.wrappers.TransformObservation(
          task, lambda x: task.unwrapped.get_frame(tile_size=8, agent_pov=True),
          spaces.Box(0, 255, [56, 56, 3], np.uint8)), (56, 56, 3), 255))
  def test_minigrid_s_cells_are_indices_and_its_pictures_images(self, wrap, shape, most):
    from minigrid import wrappers as minigrid  # pylint: disable=import-outside-toplevel

    environment = gymnasium.FromGymnasium(
        wrap(minigrid, gym.make('MiniGrid-MemoryS7-v0')), seed=0)
    spec, seen = environment.observation_spec(), environment.reset().observation
    if isinstance(spec, dict):
      spec, seen = spec['image'], seen['image']
    self.assertEqual((spec.shape, spec.maximum), (shape, most))
    spec.validate(seen)

  def test_bytes_beside_minigrid_s_cells_keep_their_bounds(self):
    import minigrid  # noqa: F401  # pylint: disable=import-outside-toplevel

    class Health(gym.ObservationWrapper):

      def __init__(self, env):
        super().__init__(env)
        self.observation_space = spaces.Dict({
            **env.observation_space.spaces, 'health': spaces.Box(0, 255, [1], np.uint8)})

      def observation(self, observation):
        return {**observation, 'health': np.zeros(1, np.uint8), 'undeclared': None}

    spec = gymnasium.FromGymnasium(
        Health(gym.make('MiniGrid-MemoryS7-v0')), seed=0).observation_spec()
    self.assertEqual((spec['image'].maximum, spec['health'].maximum), (10, 255))

  def test_arguments_reach_gymnasium(self):
    environment = gymnasium.GymnasiumEnvironment(
        'FrozenLake-v1', seed=0, kwargs={'map_name': '8x8', 'max_episode_steps': 3})
    self.assertEqual(environment.observation_spec().num_values, 64)
    self.assertEqual(environment.name, 'FrozenLake-v1')
    environment.reset()
    time_steps = [environment.step(0) for _ in range(3)]
    self.assertEqual([step.last() for step in time_steps], [False, False, True])
    self.assertEqual(time_steps[-1].discount, 1)

  def test_an_id_may_name_the_module_that_registers_it(self):
    folder = self.create_tempdir()
    folder.create_file('own_tasks.py', """
import gymnasium
from gymnasium.envs.classic_control import cartpole
gymnasium.register('Own-v0', cartpole.CartPoleEnv, max_episode_steps=2)
""")
    with mock.patch.object(sys, 'path', [folder.full_path, *sys.path]):
      environment = gymnasium.GymnasiumEnvironment('own_tasks:Own-v0', seed=0)
    environment.reset()
    environment.step(0)
    self.assertTrue(environment.step(0).last())

  @parameterized.parameters(
      ('CartPole-v1', (400, 600, 3)), ('MiniGrid-MemoryS7-v0', (224, 224, 3)),
      ('FrozenLake-v1', (256, 256, 3)), ('popgym-PositionOnlyCartPoleEasy-v0', None))
  def test_draws_a_picture(self, name, shape):
    environment = gymnasium.GymnasiumEnvironment(name, seed=0)
    self.addCleanup(environment.close)
    environment.reset()
    image = environment.render()
    self.assertEqual(image.shape, shape or image.shape)
    self.assertEqual(image.dtype, np.uint8)
    self.assertGreater(np.ptp(image), 0)

  @parameterized.parameters(
      ('CartPole', 'No registered env with id: CartPole'),
      ('CartPol-v1', "Environment `CartPol` doesn't exist. Did you mean: `CartPole`?"),
      ('Zzz-v0', "another package registers the id.*'module:id'"),
      ('types:Old-v0', 'If types registers it with the old package gym.*shimmy'),
      ('nothing_there:Zzz-v0', "No module named 'nothing_there': expected a module"),
      ('CartPole-v1', 'unexpected keyword argument', {'zzz': 1}))
  def test_refuses_a_task(self, name, message, kwargs=None):
    with self.assertRaisesRegex(
        config.ConfigError, f'GymnasiumEnvironment.name = {name!r}.*{message}'):
      gymnasium.GymnasiumEnvironment(name, kwargs=kwargs)

  def test_says_which_package_is_missing(self):
    module = 'gymnasium.envs.classic_control.pendulum'
    with mock.patch.dict(sys.modules, {module: None}):
      with self.assertRaisesRegex(
          config.ConfigError, f'needs the package {module}, which is not installed'):
        gymnasium.GymnasiumEnvironment('Pendulum-v1')


class SpacesTest(parameterized.TestCase):

  @parameterized.parameters(*((space,) for space in _SPACES))
  def test_observations_fit_their_spec_without_loss(self, space):
    task = Everything(observation_space=space)
    environment = gymnasium.FromGymnasium(task, seed=0)
    time_step = environment.reset()
    for _ in range(9):
      tree.map_structure(lambda spec, x: spec.validate(x),
                         environment.observation_spec(), time_step.observation)
      tree.map_structure(
          np.testing.assert_allclose, task.observations[-1], time_step.observation)
      decode = gymnasium._convert(space, 'observation', '').decode
      tree.map_structure(np.testing.assert_array_equal, task.observations[-1],
                         decode(time_step.observation))
      time_step = environment.step(0)

  @parameterized.parameters(*((space,) for space in _SPACES))
  def test_actions_fit_their_space_and_reach_every_value(self, space):
    task = Everything(action_space=space)
    environment = gymnasium.FromGymnasium(task)
    random = np.random.default_rng(0)
    environment.reset()
    for _ in range(200):
      environment.step(tree.map_structure(
          lambda spec: specs_lib.random_value(spec, random),
          environment.action_spec()))
    if isinstance(space, spaces.Discrete):
      self.assertEqual(set(map(int, task.actions)),
                       set(range(space.start, space.start + space.n)))
    if isinstance(space, spaces.MultiDiscrete):
      np.testing.assert_array_equal(np.min(task.actions, axis=0), space.start)
      np.testing.assert_array_equal(
          np.max(task.actions, axis=0), space.start + space.nvec - 1)

  def test_integers_that_do_not_fit_are_refused(self):
    task = Everything(spaces.Box(-128, 127, [2], np.int8))
    batch = batched_environment.BatchedEnvironment([gymnasium.FromGymnasium(task)])
    batch.reset()
    for value, error in (100, None), (200, 'dtype uint8: expected .* int8'):
      with mock.patch.object(task, '_result', lambda: (np.full(2, value, np.uint8), {})):  # pylint: disable=cell-var-from-loop
        if error:
          with self.assertRaisesRegex(ValueError, error):
            batch.step(np.zeros([1], np.int32))
        else:
          self.assertEqual(
              batch.step(np.zeros([1], np.int32)).observation.tolist(), [[value] * 2])

  @parameterized.parameters(
      (spaces.Dict(), r'has observations of Dict\(\): expected'),
      (spaces.Sequence(spaces.Discrete(2)), 'has observations of Sequence.*expected'),
      (spaces.Dict(a=spaces.Graph(spaces.Discrete(2), None)),
       r"has observations\['a'\] of Graph.*FilterObservation"),
      (spaces.Text(3), 'Everything has only texts as observations: expected max_words'))
  def test_refuses_observations(self, space, message):
    with self.assertRaisesRegex(config.ConfigError, message):
      gymnasium.FromGymnasium(Everything(observation_space=space))

  @parameterized.parameters(
      (spaces.Text(3),), (spaces.Tuple([]),), (spaces.MultiDiscrete(np.zeros(0, int)),),
      (spaces.Dict(a=spaces.Discrete(2), b=spaces.Dict()),))
  def test_refuses_actions(self, space):
    with self.assertRaisesRegex(config.ConfigError, 'Everything has actions.* of .*expec'):
      gymnasium.FromGymnasium(Everything(action_space=space))

  @parameterized.parameters(
      ((0, 1.0, True, {}), '4 values.*'), (None, 'None'), ([0], r'\[0\]'))
  def test_a_step_that_returns_something_else(self, returned, came):
    task = Everything()
    task.step = lambda action: returned
    environment = gymnasium.FromGymnasium(task)
    environment.reset()
    with self.assertRaisesRegex(ValueError, f'^Everything.step returned {came}: '):
      environment.step(0)

  @parameterized.parameters(
      (lambda seed: np.zeros(2), 'reset returned array.*: expected observation and info'),
      (lambda seed: None, 'reset returned None: expected'),
      (lambda seed: (1, None), 'reset returned 2 values.*: expected'),
      (lambda seed: {}['boom'], r"Everything: reset\(\) failed with KeyError: 'boom'"),
      (lambda: (0, {}), r"'seed': expected `def reset\(self, \*, seed=None, options=None\)`$"))
  def test_a_reset_that_fails_is_reported_at_once(self, reset, message):
    task = Everything()
    task.reset = reset
    with self.assertRaisesRegex(config.ConfigError, message):
      gymnasium.FromGymnasium(task)

  @parameterized.parameters(
      (dict(reward=None), 'reward = None: expected a number'),
      (dict(reward='1'), "reward = '1': expected a number"),
      (dict(reward=np.zeros(2)), r'reward = array\(.*\): expected a number'),
      (dict(terminated=None), 'terminated = None: expected True or False'),
      (dict(terminated=np.zeros(2, bool)), 'terminated = array.*: expected True or False'),
      (dict(truncated='no'), "truncated = 'no': expected True or False"))
  def test_a_step_with_another_kind_of_value(self, values, message):
    task = Everything()
    returned = dict(reward=1.0, terminated=False, truncated=False)
    task.step = lambda action: (0, *{**returned, **values}.values(), {})
    environment = gymnasium.FromGymnasium(task)
    environment.reset()
    with self.assertRaisesRegex(ValueError, f'^Everything.step returned {message}$'):
      environment.step(0)

  def test_numbers_may_come_in_arrays_of_one(self):
    task = Everything()
    task.step = lambda action: (
        0, np.array([2], np.float64), np.array([True]), np.bool_(False), {})
    environment = gymnasium.FromGymnasium(task)
    environment.reset()
    time_step = environment.step(0)
    self.assertEqual((time_step.reward, time_step.last()), (2.0, True))
    self.assertIsInstance(time_step.reward, float)

  @parameterized.parameters(
      (spaces.Dict(a=spaces.Discrete(2), b=spaces.Discrete(2)), {'a': 1},
       r"observation = \{'a': 1\}: expected .* entries \['a', 'b'\]"),
      (spaces.Dict(a=spaces.Tuple([spaces.Discrete(2)] * 2)), {'a': (1,)},
       r"observation\['a'\] = 1 values, \(1,\): expected .* a tuple"),
      (spaces.Box(0, 1, [2]), None, r'observation = None .*expected \(2,\)'),
      (spaces.Box(0, 1, [2]), [[1], [1, 2]], 'observation = .*expected'),
      (spaces.Discrete(3), 1.5, r'dtype float64: expected \(\) and int32'))
  def test_an_observation_that_does_not_fit_its_space(self, space, value, message):
    task = Everything(space)
    task.reset = lambda seed: (value, {})
    batch = batched_environment.BatchedEnvironment([gymnasium.FromGymnasium(task)])
    with self.assertRaisesRegex(batched_environment.EnvironmentFailed, message):
      batch.reset()


class MaskTest(parameterized.TestCase):

  def play(self, task):
    environment = gymnasium.FromGymnasium(task)
    time_steps = [environment.reset()]
    while not time_steps[-1].last():
      time_steps.append(environment.step(tree.map_structure(
          lambda spec: spec.generate_value(), environment.action_spec())))
    for time_step in time_steps:
      tree.map_structure(lambda spec, x: spec.validate(x),
                         environment.observation_spec(), time_step.observation)
    return time_steps

  def masks(self, task):
    return [step.observation['action_mask'].tolist() for step in self.play(task)]

  def test_the_mask_of_info_becomes_part_of_the_observation(self):
    masks = np.eye(2, dtype=np.int8)[[0, 1, 0, 1, 0]]
    task = Everything(infos=_masks(*masks))
    self.assertEqual(self.masks(task), masks.tolist())
    self.assertEqual(set(self.play(task)[0].observation), {'observation', 'action_mask'})

  @parameterized.parameters((None,), ([0, 0],))
  def test_the_last_step_allows_everything_if_it_has_no_mask(self, last):
    self.assertEqual(
        self.masks(Everything(infos=_masks(*[[True, False]] * 4, last))),
        [[1, 0]] * 4 + [[1, 1]])

  @parameterized.parameters((np.int64, np.int64), (np.float32, np.int8))
  def test_its_own_mask_may_have_floats_and_axes_as_in_info(self, dtype, expected):
    task = Everything(
        spaces.Dict(action_mask=spaces.Box(0, 1, [2, 2], dtype)),
        spaces.MultiDiscrete([2, 2]))
    with mock.patch.object(task.observation_space, 'sample', lambda: {
        'action_mask': np.array([[1, 0], [1, 1]], dtype)}):
      self.assertEqual(self.masks(task), [[1, 0, 1, 1]] * 5)
    spec = gymnasium.FromGymnasium(task).observation_spec()['action_mask']
    self.assertEqual(spec.dtype, expected)

  @parameterized.parameters(([True, False, True, True],), ([[1, 0], [1, 1]],))
  def test_the_method_of_sb3_contrib_gives_a_mask_while_the_episode_goes_on(self, mask):
    class Masked(gym.Wrapper):

      def action_masks(self):
        assert self.unwrapped._steps < 4, 'no action follows'
        return mask

    task = Masked(Everything(action_space=spaces.MultiDiscrete([2, 2])))
    self.assertEqual(self.masks(task), [[1, 0, 1, 1]] * 4 + [[1, 1, 1, 1]])

  @parameterized.parameters(
      (spaces.MultiDiscrete([2, 3]), (np.array([1, 0]), np.array([0, 1, 1]))),
      (spaces.Dict(b=spaces.Discrete(3), a=spaces.Discrete(2)),
       {'b': [0, 1, 1], 'a': [1, 0]}),
      (spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, [2]), spaces.Discrete(3)]),
       [1, 0, 0, 1, 1]),
      (spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, [2]), spaces.Discrete(3)]),
       ([1, 0], None, [0, 1, 1])))
  def test_masks_of_several_actions_are_concatenated(self, space, mask):
    task = Everything(action_space=space, infos=_masks(*[mask] * 5))
    self.assertEqual(self.masks(task), [[1, 0, 0, 1, 1]] * 5)

  @parameterized.parameters(
      ([[1, 0], None], r"returned info\['action_mask'\] = None: expected a mask at every"),
      ([[1, 0], [0, 0]], 'allows at least one action'),
      ([[1, 0, 1]], 'with 3 entries: expected 2'))
  def test_refuses_masks(self, masks, message):
    with self.assertRaisesRegex(ValueError, message):
      self.play(Everything(infos=_masks(*masks)))
    with self.assertRaisesRegex(config.ConfigError, 'actions of Box'):
      gymnasium.FromGymnasium(
          Everything(action_space=spaces.Box(0, 1, [2]), infos=_masks([1, 0])))


class MakeTest(parameterized.TestCase):

  def test_a_class_of_gymnasium_without_a_seed_is_adapted(self):
    environment = making.make('Experiment', Everything, seed=3)
    self.assertIsInstance(environment, gymnasium.FromGymnasium)
    batch = batched_environment.BatchedEnvironment([environment])
    batch.reset()
    for _ in range(10):
      batch.step(np.zeros([1], np.int32))
    self.assertEqual(environment._task.seeds, [3, None, None])
    self.assertEqual(environment.render().shape, (6, 8, 3))

  @parameterized.parameters(False, True)
  def test_a_decorated_class_without_a_constructor_is_adapted(self, by_keywords):
    class Plain(gym.Env):
      observation_space, action_space = spaces.Discrete(3), spaces.Discrete(2)

      def reset(self, *, seed=None, options=None):
        return 0, {}

    make = gin.configurable(f'Plain{by_keywords}', module='test')(Plain)
    environment = making.make(
        'Experiment', (lambda **kwargs: make(**kwargs)) if by_keywords else make, seed=1)
    self.assertIsInstance(environment, gymnasium.FromGymnasium)

  def test_a_function_may_use_wrappers_of_gymnasium(self):
    environment = making.make(
        'Experiment', lambda size: gym.wrappers.ResizeObservation(
            Everything(spaces.Box(0, 255, [8, 8, 3], np.uint8)), (size, size)),
        seed=0, size=4, wrappers=[functools.partial(wrappers.FrameStack, frames=2)])
    self.assertEqual(environment.observation_spec().shape, (4, 4, 6))
    self.assertEqual(environment.reset().observation.shape, (4, 4, 6))

  def test_methods_of_wrappers_come_first(self):
    class Judged(gym.Wrapper):

      def episode_success(self):
        return True

    task = Everything()
    task.episode_success, task.scripted_action = (lambda: False), (lambda: 1)
    environment = gymnasium.FromGymnasium(
        gym.wrappers.TimeLimit(Judged(task), 9), seed=0)
    self.assertTrue(environment.episode_success())
    self.assertEqual(environment.scripted_action(), 1)
    self.assertFalse(hasattr(environment, 'informed_action'))

  def test_one_task_is_refused_in_two_environments_of_a_batch(self):
    task = gym.make('CartPole-v1')
    with self.assertRaisesRegex(ValueError, 'one environment twice'):
      batched_environment.BatchedEnvironment(
          [wrappers.ClipReward(gymnasium.FromGymnasium(task, seed=i)) for i in range(2)])

  def test_the_example_of_the_documentation(self):
    page = (pathlib.Path(gtrxl_tf.__file__).parents[1] / 'docs/environments.md')
    code, = re.findall(r'```python\n(.*?)```', page.read_text('utf-8'), re.DOTALL)
    names = {}
    self.addCleanup(gin.clear_config)
    with gin.unlock_config():
      exec(code, names)  # pylint: disable=exec-used
    environment = making.make('Experiment', names['my_task'], seed=0, size=20)
    self.addCleanup(environment.close)
    self.assertEqual(environment.observation_spec().shape, (20, 20, 3))
    self.assertEqual(environment.reset().observation.dtype, np.uint8)
    self.assertEqual(names['my_dm_env_task'](1).reset().observation.shape, (42, 42, 3))

  @parameterized.parameters(
      (type('Plain', (), {}), 'class Plain, which is neither a gymnasium.Env nor'),
      (lambda seed: None, 'class NoneType, which is neither'),
      (lambda seed: types.SimpleNamespace(), 'class SimpleNamespace, .* old .*gym: .*shimmy'),
      (lambda: gymnasium.GymnasiumEnvironment('CartPole-v1'), 'take the argument seed'))
  def test_refuses_what_is_no_environment(self, constructor, message):
    with mock.patch.dict(sys.modules, gym=types.SimpleNamespace(Env=types.SimpleNamespace)):
      with self.assertRaisesRegex(config.ConfigError, f'^Experiment.environment .*{message}'):
        making.make('Experiment', constructor, seed=0)


if __name__ == '__main__':
  absltest.main()
