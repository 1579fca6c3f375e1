"""Tests of collect.py."""

import functools
import io
import pathlib
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import dm_env
from dm_env import specs as dm_specs
import gin
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf import datasets
from gtrxl_tf import environments
from gtrxl_tf.agents import policy
from gtrxl_tf.collecting import episodes as collect
from gtrxl_tf.environments import action_recall
from gtrxl_tf.environments import episodic
from gtrxl_tf.environments import numpad
from gtrxl_tf.environments import t_maze
from gtrxl_tf.launch import configurables  # noqa: F401
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import torsos
from gtrxl_tf.serving import export
from gtrxl_tf.settings import config


class _Walk(episodic.MemoryTask):
  """Ends after a random number of steps; nested observations and actions."""

  def __init__(self, seed):
    super().__init__(None, seed)

  def observation_spec(self):
    return {'time': dm_specs.Array((), np.int32), 'x': dm_specs.Array((2,), np.float64)}

  def action_spec(self):
    return {'b': dm_specs.DiscreteArray(3),
            'a': dm_specs.BoundedArray((2,), np.float32, [-1, 5], [np.inf, 6])}

  def _checked(self, action):
    assert action['a'][1] == np.clip(action['a'][1], 5, 6)
    return action

  def _observation(self):
    return {'time': np.int32(self._time), 'x': self._rng.normal(size=2)}

  def _reset(self):
    self._time, self._length = 0, self._rng.integers(1, 6)
    return dm_env.restart(self._observation())

  def _step(self, action):
    self._time += 1
    reward = float(action['b'])
    if self._time < self._length:
      return dm_env.transition(reward, self._observation())
    end = dm_env.termination if self._length % 2 else dm_env.truncation
    return end(reward, self._observation())

  def episode_success(self):
    return self._length > 2

  def informed_action(self):
    return {'a': np.array([0.5, 5.5]), 'b': self._time % 3}


class _Silent(environments.Wrapper):
  """Hides the success of episodes."""

  def __getattr__(self, name):
    if name == 'episode_success':
      raise AttributeError(name)
    return super().__getattr__(name)


def _equal_files(a: pathlib.Path, b: pathlib.Path) -> bool:
  names = [sorted(x.relative_to(root) for x in root.rglob('*') if x.is_file())
           for root in (a, b)]
  return names[0] == names[1] and all(
      (a / name).read_bytes() == (b / name).read_bytes() for name in names[0])


class CollectTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    gin.clear_config()
    self.addCleanup(gin.clear_config)
    self._folder = pathlib.Path(self.create_tempdir().full_path)

  def _collect(self, name, environment=t_maze.TMaze, num_processes=1, **settings):
    return collect.collect(collect.Collector(environment, **settings),
                           self._folder / name, num_processes, io.StringIO())

  def test_an_oracle_succeeds_and_the_clue_determines_the_turn(self):
    gin.parse_config('TMaze.corridor_length = 5')
    dataset = self._collect('t_maze', num_episodes=50)
    datasets.check(dataset.path)
    self.assertEqual(dataset.num_episodes, 50)
    np.testing.assert_array_equal(dataset.lengths, 6)
    np.testing.assert_array_equal(dataset.returns, 1)
    np.testing.assert_array_equal(dataset.successes, 1)
    clues = set()
    for episode in map(dataset.episode, range(50)):
      clue = episode.observation[0, 1]
      self.assertEqual(episode.action[-1], t_maze.UP if clue == 1 else t_maze.DOWN)
      np.testing.assert_array_equal(episode.action[:-1], t_maze.RIGHT)
      np.testing.assert_array_equal(episode.observation[:, 2], [0] * 4 + [1, 0])
      np.testing.assert_array_equal(episode.reward, [0] * 5 + [1])
      np.testing.assert_array_equal(episode.end, [0] * 5 + [datasets.End.TERMINATION])
      self.assertEqual(episode.final_observation[0], clue)
      clues.add(clue)
    self.assertEqual(clues, {-1, 1})
    noises = {tuple(dataset.episode(i).observation[:, 3]) for i in range(50)}
    self.assertGreater(len(noises), 40)  # There are 3^6: no piece is a copy of another.
    other = self._collect('seed', num_episodes=50, seed=1)
    self.assertNotIn(tuple(other.episode(49).observation[:, 3]), noises)

  def test_wrappers_are_settings(self):
    config.parse([], [
        'TMaze.corridor_length = 5', 'FrameStack.frames = 2', 'StepLimit.steps = 4',
        'Collector.environment = @TMaze', 'Collector.num_episodes = 3',
        'Collector.wrappers = [@StepLimit, @FrameStack]'])
    dataset = collect.collect(collect.Collector(), self._folder / 'wrapped', 1,
                              io.StringIO())
    np.testing.assert_array_equal(dataset.lengths, 4)
    self.assertEqual(dataset.environment, 'TMaze')
    episode = dataset.episode(0)
    self.assertEqual(episode.observation.shape, (4, 8))
    self.assertEqual(episode.end[-1], datasets.End.TRUNCATION)
    with self.assertRaisesRegex(
        config.ConfigError, 'Collector.wrappers = .*a callable .@Name without'):
      collect.Collector(t_maze.TMaze, wrappers=[3])

  @pytest.mark.medium
  def test_the_persistent_and_the_random_agent_of_the_t_maze(self):
    persistent = self._collect('persistent', functools.partial(
        t_maze.TMaze, corridor_length=20), num_episodes=200, policy='persistent_action')
    np.testing.assert_array_equal(persistent.lengths, 21)  # It reaches the junction.
    clues = [persistent.episode(i).observation[0, 1] for i in range(200)]
    np.testing.assert_array_equal(persistent.successes, np.array(clues) == 1)
    self.assertBetween(persistent.successes.mean(), 0.4, 0.6)
    random = self._collect('random', functools.partial(
        t_maze.TMaze, corridor_length=20), num_episodes=200, epsilon=1.0)
    self.assertEqual(random.successes.sum(), 0)

  def test_any_structure_and_both_ends(self):
    dataset = self._collect('walk', _Walk, num_episodes=60, epsilon=0.3)
    datasets.check(dataset.path)
    self.assertEqual(dataset.observation_spec()['x'].dtype, np.float32)
    ends = set()
    for i in range(60):
      episode = dataset.episode(i)
      length = len(episode.reward)
      np.testing.assert_array_equal(episode.observation['time'], np.arange(length))
      self.assertEqual(episode.final_observation['time'], length)
      np.testing.assert_array_equal(episode.reward, episode.action['b'])
      self.assertEqual(episode.success, length > 2)
      self.assertEqual(episode.end[-1], 1 if length % 2 else 2)
      self.assertEqual(episode.discount[-1], 1 - length % 2)
      ends.add(episode.end[-1])
    self.assertLen(ends, 2)

  def test_records_what_the_policy_chose_where_noise_was_played(self):
    settings = dict(environment=action_recall.ActionRecall, num_episodes=100,
                    epsilon=0.5)
    played = self._collect('played', **settings)
    chosen = self._collect('chosen', record='policy', **settings)
    np.testing.assert_array_equal(chosen.successes, played.successes)
    different = np.mean([played.episode(i).action != chosen.episode(i).action
                         for i in range(100)])
    self.assertBetween(different, 0.5 * 0.75 - 0.06, 0.5 * 0.75 + 0.06)
    self.assertLess(chosen.successes.mean(), 0.7)
    for i in range(100):
      episode = chosen.episode(i)
      np.testing.assert_array_equal(episode.observation, played.episode(i).observation)
      np.testing.assert_array_equal(episode.reward, played.episode(i).reward)
      np.testing.assert_array_equal(
          episode.action, np.argmax(episode.observation[0]))
    with self.assertRaisesRegex(
        datasets.DatasetError, "expected .*record = 'policy'"):
      self._collect('played', record='policy', **settings)

  @pytest.mark.medium
  def test_keeps_only_what_is_asked_for(self):
    settings = dict(environment=action_recall.ActionRecall, num_episodes=41,
                    epsilon=1.0)
    successful = self._collect('successful', keep='successful', **settings)
    np.testing.assert_array_equal(successful.successes, [1] * 41)
    balanced = self._collect('balanced', keep='balanced', **settings)
    self.assertEqual((balanced.num_episodes, balanced.successes.sum()), (41, 21))
    self.assertBetween(self._collect('all', **settings).successes.mean(), 0.03, 0.5)

  def test_tasks_take_turns(self):
    dataset = self._collect('turns', environment=t_maze.TMaze, num_episodes=48,
                            tasks={'corridor_length': (3, 5, 7)})
    lengths, counts = np.unique(dataset.lengths, return_counts=True)
    np.testing.assert_array_equal(lengths, [4, 6, 8])
    np.testing.assert_array_equal(counts, [16, 16, 16])

  @parameterized.parameters('all', 'successful', 'balanced')
  @pytest.mark.medium
  def test_an_interrupted_collection_becomes_the_same_dataset(self, keep):
    settings = dict(environment=_Walk, num_episodes=70, epsilon=0.5, keep=keep)
    whole = self._collect('whole', **settings)
    original = collect.Collector.play
    for stops in (1, 2):

      def stopping(collector, piece, stops=stops):
        if piece >= 3 * stops:
          raise KeyboardInterrupt
        return original(collector, piece)

      with mock.patch.object(collect.Collector, 'play', stopping):
        with self.assertRaises(KeyboardInterrupt):
          self._collect('parts', **settings)
      self.assertGreater(datasets.check(self._folder / 'parts').num_episodes, 0)
    parts = self._collect('parts', **settings)
    self.assertEqual(parts.num_episodes, whole.num_episodes)
    for i in range(whole.num_episodes):
      for leaf in ('reward', 'end'):
        np.testing.assert_array_equal(getattr(parts.episode(i), leaf),
                                      getattr(whole.episode(i), leaf))
      np.testing.assert_array_equal(parts.episode(i).observation['x'],
                                    whole.episode(i).observation['x'])

  def test_a_finished_collection_is_left_alone(self):
    self._collect('done', num_episodes=10)
    before = (self._folder / 'done' / 'dataset.json').stat().st_mtime_ns
    with mock.patch.object(collect.Collector, 'play', side_effect=AssertionError):
      self._collect('done', num_episodes=10)
    self.assertEqual(
        (self._folder / 'done' / 'dataset.json').stat().st_mtime_ns, before)
    with self.assertRaisesRegex(datasets.DatasetError, 'seed = 0'):
      self._collect('done', num_episodes=10, seed=1)
    with self.assertRaisesRegex(datasets.DatasetError, 'corridor_length = 8'):
      self._collect('done', functools.partial(t_maze.TMaze, corridor_length=8),
                    num_episodes=10)

  @pytest.mark.long
  def test_processes_change_nothing(self):
    gin.parse_config(
        'Collector.environment = @TMaze\nCollector.num_episodes = 60\n'
        'TMaze.corridor_length = 3\nCollector.epsilon = 0.3\n'
        'Collector.keep = "balanced"')
    for num_processes in (1, 2):
      collect.collect(collect.Collector(), self._folder / str(num_processes),
                      num_processes, io.StringIO())
    self.assertEqual(datasets.check(self._folder / '1').num_episodes, 60)
    self.assertTrue(_equal_files(self._folder / '1', self._folder / '2'))

  @pytest.mark.medium
  def test_an_exported_policy_acts_with_its_memory(self):
    gin.parse_config('TMaze.corridor_length = 3\nTMaze.penalty = 1.0')
    environment = t_maze.TMaze()
    network = actor_critic.ActorCritic(
        environment.action_spec(), torsos.VectorTorso((8,)),
        cores.TransformerXL(1, 8, 2, 4, memory_length=6), head_units=8)
    network.create_variables(environment.observation_spec())
    random = np.random.default_rng(0)
    for variable in network.variables:
      variable.assign(1.5 * random.normal(size=variable.shape))
    acting = policy.ActorCriticPolicy(
        network, environment.observation_spec(), environment.action_spec(), greedy=True)
    export.save_policy(acting, self._folder / 'policy')
    dataset = self._collect('saved_model', num_episodes=20,
                            saved_model=str(self._folder / 'policy'))
    datasets.check(dataset.path)

    step = tf.function(acting.action, autograph=False)
    taken = set()
    for episode in map(dataset.episode, range(20)):
      memory = acting.get_initial_state(1)
      for t, action in enumerate(episode.action):
        done = step(dm_env.TimeStep(
            tf.constant([0 if t == 0 else 1]),
            tf.constant([episode.reward[t - 1] if t else 0.0]),
            tf.constant([episode.discount[t - 1] if t else 1.0]),
            tf.constant(episode.observation[t:t + 1])), memory)
        self.assertEqual(int(done.action[0]), action)
        taken.add(int(action))
        memory = done.state
    self.assertGreater(len(taken), 1)

    (self._folder / 'policy' / 'saved_model.pb').write_bytes(b'')
    with self.assertRaisesRegex(config.ConfigError, 'saved_model.pb: is damaged: has 0'):
      self._collect('damaged', num_episodes=20,
                    saved_model=str(self._folder / 'policy'))

  @parameterized.parameters(
      (dict(policy='guess'), r"Collector.policy = 'guess': expected a method of TMaze"),
      (dict(policy='guess', epsilon=1.0, record='policy'), 'expected a method of TMaze'),
      (dict(saved_model='/nowhere'), "Collector.saved_model = '/nowhere': expected"),
      (dict(tasks={}), r'Collector.tasks = \{\}: expected one setting'),
      (dict(keep='good'), "Collector.keep = 'good': expected one of 'all'"),
      (dict(environment=numpad.Numpad, wrappers=[_Silent], keep='successful'),
       'Numpad does not report success'))
  def test_refuses_settings(self, settings, message):
    with self.assertRaisesRegex(config.ConfigError, message):
      collect.Collector(**{'environment': t_maze.TMaze, **settings})

  def test_random_play_needs_no_method_of_the_environment(self):
    class Plain(_Walk):
      informed_action = None
    dataset = self._collect('plain', Plain, num_episodes=50, epsilon=1.0)
    actions = np.concatenate(
        [dataset.episode(i).action['b'] for i in range(dataset.num_episodes)])
    self.assertEqual(set(actions), {0, 1, 2})

  def test_an_error_of_the_policy_names_its_place(self):
    class Lost(_Walk):
      def informed_action(self):
        raise KeyError('door')
    with self.assertRaisesRegex(
        environments.EnvironmentFailed, '^environment 0, episode 1, step 0'):
      self._collect('lost', Lost, num_episodes=1)

  def test_actions_are_copied_from_a_policy_that_reuses_its_array(self):
    class Reuses(_Walk):
      _buffer = np.zeros(2, np.float32)
      def informed_action(self):
        self._buffer[:] = 0.1 * self._time, 5.5
        return {'a': self._buffer, 'b': 0}
    dataset = self._collect('reuses', Reuses, num_episodes=20)
    for i in range(20):
      action = dataset.episode(i).action['a'][:, 0]
      np.testing.assert_allclose(action, 0.1 * np.arange(len(action)), rtol=1e-6)

  @pytest.mark.medium
  def test_an_error_if_no_episode_can_be_kept(self):
    gin.parse_config('TMaze.corridor_length = 1')
    with self.assertRaisesRegex(config.ConfigError, 'none of the last 2,000 was kept'):
      self._collect('never', num_episodes=10, keep='balanced')
    self.assertEqual(datasets.check(self._folder / 'never').num_episodes, 5)

  @parameterized.parameters(([], '1.00'), ([_Silent], '-'))
  def test_progress_is_shown(self, wrappers, success):
    stream = io.StringIO()
    collect.collect(
        collect.Collector(t_maze.TMaze, num_episodes=20, wrappers=wrappers),
        self._folder / 'shown', stream=stream)
    last = stream.getvalue().splitlines()[-1]
    self.assertStartsWith(last, '20 of 20 episodes | 24 played | 580 steps | ')
    self.assertIn(f'| return 1.00 | success {success} | 0 s left', last)


if __name__ == '__main__':
  absltest.main()
