"""Tests for batched_environment and scale_warnings."""

import collections
import sys
from unittest import mock

from absl import logging
from absl.testing import absltest
from absl.testing import parameterized
import dm_env
from dm_env import specs
import numpy as np
import tree

from gtrxl_tf.environments import batched_environment
from gtrxl_tf.environments import numpad
from gtrxl_tf.environments import t_maze

_BOUNDS = specs.BoundedArray([2], np.float32, [0, -np.inf], [1, np.inf])
_Pair = collections.namedtuple('_Pair', ['left', 'right'])


class FakeEnvironment(dm_env.Environment):
  """Returns what the test sets, in episodes of two steps; keeps the actions."""

  def __init__(self, observation=np.zeros(3, np.float32), reward=1.0, discount=1.0,
               observation_spec=specs.Array([3], np.float32),
               action_spec=specs.DiscreteArray(2),
               reward_spec=specs.Array([], float)):
    self._observation = observation
    self._reward = reward
    self._discount = discount
    self._observation_spec = observation_spec
    self._action_spec = action_spec
    self._reward_spec = reward_spec
    self._num_steps = 0
    self.actions = []
    self.closed = False

  def reset(self):
    self._num_steps = 0
    # Faults occur at later steps: every first step is valid.
    return dm_env.restart(tree.map_structure(
        lambda spec: np.zeros(spec.shape, spec.dtype), self._observation_spec))

  def step(self, action):
    self.actions.append(action)
    if self._num_steps == 2:
      return self.reset()
    self._num_steps += 1
    step_type = dm_env.StepType.LAST if self._num_steps == 2 else dm_env.StepType.MID
    return dm_env.TimeStep(
        step_type, self._reward, self._discount, self._observation)

  def observation_spec(self):
    return self._observation_spec

  def action_spec(self):
    return self._action_spec

  def reward_spec(self):
    return self._reward_spec

  def close(self):
    self.closed = True


class _Unready(FakeEnvironment):

  def observation_spec(self):
    return self._known_after_reset  # pylint: disable=no-member


def _batch_of_fakes(num=1, **settings):
  return batched_environment.BatchedEnvironment(
      [FakeEnvironment(**settings) for _ in range(num)])


class BatchedEnvironmentTest(parameterized.TestCase):

  @parameterized.parameters(((1.9, 250), False), ((255, 0), True), ((-3, 0), True))
  def test_observations_far_outside_their_bounds_get_one_warning(self, values, warns):
    batch = _batch_of_fakes(
        2, observation_spec={'speed': _BOUNDS},
        observation={'speed': np.array(values, np.float32)})
    batch.reset()
    with self.assertLogs('absl', 'WARNING') as logs:
      logging.warning('the first')
      for _ in range(50):
        batch.step(np.zeros(2, np.int32))
    self.assertLen(logs.output, 1 + warns)
    if warns:
      self.assertIn(f"environment 0: observation['speed'] has a value of {values[0]}, and "
                    'bounds of 0 and 1 (episode 1, step 2): expected', logs.output[1])

  def warnings(self, spec, values, watched=('image', 'number')):
    """The warnings about an array that has these values, one after the other."""
    batch = _batch_of_fakes(observation_spec={'x': spec}, observation={'x': None})
    batch.watched = watched
    with self.assertLogs('absl', 'WARNING') as logs:
      logging.warning('the first')
      for i in range(30):
        batch._environments[0]._observation = {'x': np.full(
            spec.shape, values[i % len(values)], spec.dtype)}
        batch.step(np.zeros(1, np.int32))
    return logs.output[1:]

  @parameterized.parameters(
      (specs.Array((2,), np.float32), (0, 400), r"'x'\] has a value of 400, and bounds of -inf"),
      (specs.BoundedArray((1,), np.int64, 0, 2 ** 63 - 1), (0, 400), 'a value of 400'),
      (specs.BoundedArray((2,), np.float32, [-1, -1e6], [1, 1e6]), (-1, 1), 'of only -1 to 1'),
      (specs.BoundedArray((2,), np.int64, 0, 2e6), (0, 9), 'values of only 0 to 9, and '
       r'bounds of 0 and 2e\+06 .*ActorCritic.normalize_observations = True .*offline'),
      (specs.BoundedArray((9, 9, 2), np.uint8, 0, 255), (0, 16), 'are indices'),
      (specs.BoundedArray((3, 24, 24), np.uint8, 0, 255), (0, 255), r"'x'\]: an array of "
       r'shape \(3, 24, 24\) seems to be an image \[C, H, W\].*moveaxis.*TransformObservation'),
      (specs.BoundedArray((24, 24), np.uint8, 0, 255), (0, 255), r'image \[H, W\].*None'))
  def test_arrays_that_teach_networks_little_get_one_warning(self, spec, values, warning):
    said, = self.warnings(spec, values)
    self.assertRegex(said, warning)

  @parameterized.parameters(
      (specs.Array((2,), np.float32), (0, 200)),
      (specs.BoundedArray((1,), np.float32, 0, 2e6), (5e4, 2e6)),
      (specs.BoundedArray((1,), np.float32, -4.8, 4.8), (0, 0.02)),
      (specs.BoundedArray((2,), np.float32, 0, 1), (0, 1e-6)),  # Networks do not scale it.
      (specs.BoundedArray((2,), np.uint8, 0, 255), (0, 1)),  # Rows of a table.
      (specs.BoundedArray((9, 9, 2), np.uint8, 0, 1), (0, 1)),
      (specs.Array((24, 24, 3), np.uint8), (0, 17)), (specs.Array((), bool), (0, 1)))
  def test_other_arrays_get_none(self, spec, values):
    self.assertEmpty(self.warnings(spec, values))

  def test_only_what_is_watched_gets_warnings(self):
    energy = specs.Array((), np.float32)
    self.assertEmpty(self.warnings(energy, (1e6,), watched=('image',)))
    self.assertEmpty(self.warnings(specs.Array((3, 24, 24), np.uint8), (0,), watched=()))

  def test_every_environment_is_stepped_as_if_alone(self):
    # Corridors of different lengths, so that episodes end at different times.
    def create():
      return [t_maze.TMaze(length, penalty=1.0, seed=length) for length in (1, 2, 5)]

    batch, alone = batched_environment.BatchedEnvironment(create()), create()
    rng = np.random.default_rng(0)
    time_step = batch.reset()
    expected = [environment.reset() for environment in alone]
    ended = 0
    for _ in range(100):
      for i, single in enumerate(expected):
        self.assertEqual(time_step.step_type[i], single.step_type)
        np.testing.assert_array_equal(time_step.observation[i], single.observation)
        first = single.first()
        self.assertAlmostEqual(
            time_step.reward[i], 0 if first else single.reward, places=6)
        self.assertEqual(time_step.discount[i], 1 if first else single.discount)
        if single.last():
          ended += 1
          self.assertEqual(time_step.episode_success[i], alone[i].episode_success())
      actions = rng.integers(4, size=3)
      time_step = batch.step(actions)
      expected = [e.step(action) for e, action in zip(alone, actions)]
    self.assertGreater(ended, 20)

  def test_only_the_last_step_has_an_episodes_return(self):
    batch = _batch_of_fakes(reward=1.5)
    returns = [batch.reset()] + [batch.step([0]) for _ in range(5)]
    returns = [t.episode_return[0] for t in returns]
    nan = np.nan
    np.testing.assert_array_equal(returns, [nan, nan, 3, nan, nan, 3])

  def test_a_reset_within_an_episode_forgets_its_rewards(self):
    batch = _batch_of_fakes()
    batch.reset()
    batch.step([0])
    batch.reset()
    batch.step([0])
    self.assertEqual(batch.step([0]).episode_return[0], 2)

  def test_arrays_have_the_promised_dtypes_and_shapes(self):
    batch = batched_environment.BatchedEnvironment([numpad.Numpad(size=2) for _ in range(5)])
    time_step = batch.reset()
    self.assertEqual(batch.num_environments, 5)
    self.assertEqual(time_step.step_type.dtype, np.int32)
    for values in (time_step.reward, time_step.discount, time_step.episode_return,
                   time_step.episode_success):
      self.assertEqual((values.dtype, values.shape), (np.float32, (5,)))
    self.assertCountEqual(time_step.observation, batch.observation_spec())
    for name, spec in batch.observation_spec().items():
      values = time_step.observation[name]
      self.assertEqual((values.dtype, values.shape), (spec.dtype, (5, *spec.shape)))

  def test_float64_observations_become_float32(self):
    batch = _batch_of_fakes(
        observation=np.array([0.1, 0.2]),
        observation_spec=specs.BoundedArray([2], float, -1e300, 1))
    batch.reset()
    observation = batch.step([0]).observation
    self.assertEqual(observation.dtype, np.float32)
    np.testing.assert_allclose(observation, [[0.1, 0.2]], rtol=1e-6)
    self.assertEqual(batch.observation_spec().dtype, np.float32)

  def test_nested_observations_keep_their_structure(self):
    observation = {'b': (np.ones([2, 2], np.uint8), 3.0), 'a': _Pair(True, np.int8(4))}
    spec = tree.map_structure(
        lambda leaf: specs.Array(np.shape(leaf), np.asarray(leaf).dtype), observation)
    batch = _batch_of_fakes(2, observation=observation, observation_spec=spec)
    batch.reset()
    found = batch.step([0, 0]).observation
    np.testing.assert_array_equal(found['b'][0], np.ones([2, 2, 2]))
    np.testing.assert_array_equal(found['b'][1], [3, 3])
    self.assertEqual(found['b'][1].dtype, np.float32)
    np.testing.assert_array_equal(found['a'].left, [True, True])
    np.testing.assert_array_equal(found['a'].right, [4, 4])

  def test_nested_actions_are_given_row_by_row(self):
    spec = {'move': specs.DiscreteArray(4), 'turn': specs.Array([2], np.float32)}
    environments = [FakeEnvironment(action_spec=spec) for _ in range(2)]
    batch = batched_environment.BatchedEnvironment(environments)
    batch.reset()
    batch.step({'turn': np.array([[1., 2], [3, 4]]), 'move': [2, 3]})
    action = environments[1].actions[0]
    self.assertEqual(action['move'], 3)
    np.testing.assert_array_equal(action['turn'], [3, 4])

  @parameterized.parameters(
      ([0], r'action has shape \(1,\)'),
      ([[0], [0]], r'expected \(2,\) and int32'),
      ([0.0, 1.0], 'action has shape .* dtype float64'))
  def test_refuses_actions_that_do_not_fit(self, actions, message):
    batch = _batch_of_fakes(2)
    batch.reset()
    with self.assertRaisesRegex(ValueError, message):
      batch.step(actions)

  @parameterized.named_parameters(
      ('nan_observation', dict(observation=np.array([0, np.nan, 0], np.float32)),
       'observation = .*nan.*: expected finite'),
      ('shape_that_would_broadcast', dict(observation=np.zeros(1, np.float32)),
       r'observation .*has shape \(1,\) and dtype float32: expected \(3,\)'),
      ('dtype', dict(observation=np.zeros(3)),
       r'observation .* dtype float64: expected \(3,\) and float32'),
      ('nest_for_an_array', dict(observation={'a': np.zeros(3, np.float32)}),
       'observation = {.*: expected'),
      ('infinite_reward', dict(reward=np.inf), 'reward = inf: expected finite'),
      ('missing_reward', dict(reward=None), 'reward=None.* two numbers'),
      ('text_as_reward', dict(reward='1.0'), "reward='1.0'.*two numbers"),
      ('many_rewards', dict(reward=np.ones(3)), 'reward=array.*two numbers'),
      ('discount_out_of_range', dict(discount=1.5), r'discount = 1.5: .*\[0, 1\]'),
      ('nan_discount', dict(discount=np.nan), 'discount = nan'))
  def test_a_fault_names_the_environment_and_the_field(self, faults, message):
    batch = batched_environment.BatchedEnvironment(
        [FakeEnvironment(), FakeEnvironment(**faults), FakeEnvironment()])
    batch.reset()
    with self.assertRaisesRegex(
        batched_environment.EnvironmentFailed,
        f'(?s)^environment 1: .*{message}.*\\(episode 1, step 1\\)$'):
      batch.step([0, 0, 0])

  @parameterized.parameters(
      ({'place': 3}, r"observation\['place'\] = 3: expected an integer in \[0, 3\)"),
      ({'place': -1}, r"observation\['place'\] = -1: expected"),
      ({'action_mask': [0, 0]}, r"observation\['action_mask'\] = \[0 0\]: expected an action"))
  def test_an_observation_that_no_network_can_read_is_a_fault(self, faults, message):
    class Masked(FakeEnvironment):
      """Its episodes end with a mask that allows nothing, which is no fault."""
      faulty = {}

      def _seen(self, time_step):
        seen = {'place': np.int32(2), 'action_mask': np.array([0, 1], np.int8)}
        if time_step.last():
          seen['action_mask'] *= 0
        else:
          seen.update({k: np.array(v, seen[k].dtype) for k, v in self.faulty.items()})
        return time_step._replace(observation=seen)

      def reset(self):
        return self._seen(super().reset())

      def step(self, action):
        return self._seen(super().step(action))

    spec = {'place': specs.DiscreteArray(3),
            'action_mask': specs.BoundedArray([2], np.int8, 0, 1)}
    fakes = [Masked(observation_spec=spec) for _ in range(2)]
    batch = batched_environment.BatchedEnvironment(fakes)
    batch.reset()
    for _ in range(3):
      batch.step([0, 0])
    fakes[1].faulty = faults
    with self.assertRaisesRegex(
        batched_environment.EnvironmentFailed, f'^environment 1: {message}'):
      batch.step([0, 0])

  def test_an_error_of_an_environment_names_its_place(self):
    batch = _batch_of_fakes(3)
    batch.reset()
    for _ in range(4):  # Two steps, and the first two of the next episode.
      batch.step([0, 0, 0])
    with mock.patch.object(batch._environments[2], 'step',
                           side_effect=RuntimeError('no door\nand more')):
      with self.assertRaisesRegex(
          batched_environment.EnvironmentFailed,
          '^environment 2, episode 2, step 2: RuntimeError: no door$') as caught:
        batch.step([0, 0, 0])
    self.assertIsInstance(caught.exception.__cause__, RuntimeError)

  @parameterized.parameters(
      ('episode_success', KeyError('door'), r", episode 1, step 2, episode_success\(\): KeyError"),
      ('episode_return', [np.inf], r': episode_return\(\) = inf: expected a finite number'),
      ('episode_success', [5], r': episode_success\(\) = 5.0: expected .* in \[0, 1\]'))
  def test_a_fault_at_an_episode_s_end_names_its_place(self, method, result, message):
    fakes = [FakeEnvironment(), FakeEnvironment()]
    setattr(fakes[1], method, mock.Mock(side_effect=result))
    batch = batched_environment.BatchedEnvironment(fakes)
    batch.reset()
    batch.step([0, 0])
    with self.assertRaisesRegex(
        batched_environment.EnvironmentFailed, f'^environment 1{message}'):
      batch.step([0, 0])

  def test_attributes_that_are_no_methods_have_no_say(self):
    fakes = [FakeEnvironment(), FakeEnvironment()]
    fakes[1].episode_return, fakes[1].episode_success = 5.0, False
    batch = batched_environment.BatchedEnvironment(fakes)
    batch.reset()
    batch.step([0, 0])
    last = batch.step([0, 0])
    np.testing.assert_array_equal(last.episode_return, [2, 2])
    np.testing.assert_array_equal(last.episode_success, [np.nan, np.nan])

  def test_an_error_in_a_close_names_it_and_the_others_are_closed(self):
    fakes = [FakeEnvironment(), FakeEnvironment()]
    batch = batched_environment.BatchedEnvironment(fakes)
    batch.reset()
    with mock.patch.object(fakes[0], 'close', side_effect=OSError('gone')):
      with self.assertRaisesRegex(
          batched_environment.EnvironmentFailed, r'^environment 0, .*, close\(\): OSError: gone$'):
        batch.close()
    self.assertTrue(fakes[1].closed)

  @parameterized.parameters(
      (['LAST', 'MID'], 'step_type = MID after LAST: expected FIRST, since'),
      (['MID', 'FIRST'], 'step_type = FIRST within an episode: expected MID or LAST'),
      ([1.5], 'returned TimeStep.step_type=1.5, .*: expected .* StepType'))
  def test_steps_that_are_no_episode_are_refused(self, step_types, message):
    fakes = FakeEnvironment(), FakeEnvironment()
    batch = batched_environment.BatchedEnvironment(fakes)
    batch.reset()
    *before, last = [getattr(dm_env.StepType, x) if isinstance(x, str) else x
                     for x in step_types]
    with mock.patch.object(fakes[1], 'step') as step:
      for step_type in before:
        step.return_value = dm_env.TimeStep(step_type, 1.0, 1.0, np.zeros(3, np.float32))
        batch.step([0, 0])
      step.return_value = dm_env.TimeStep(last, 1.0, 1.0, np.zeros(3, np.float32))
      with self.assertRaisesRegex(
          batched_environment.EnvironmentFailed, f'^environment 1: {message}'):
        batch.step([0, 0])

  @parameterized.parameters(0, 1)
  def test_an_episode_begins_with_a_first_step(self, head_start):
    fake = FakeEnvironment()
    batch = batched_environment.BatchedEnvironment([fake])
    over = dm_env.termination(1.0, np.zeros(3, np.float32))
    with mock.patch.object(fake, 'step' if head_start else 'reset', lambda *_: over):
      with self.assertRaisesRegex(
          batched_environment.EnvironmentFailed, r'^environment 0, before episode 1, .*\(\) '
          'returned a step of type .*LAST.* where an episode begins: expected FIRST'):
        batch.reset(np.array([2 * head_start]))  # It once played without end.

  @parameterized.parameters('reset', 'step', 'close')
  def test_an_environment_that_exits_is_a_fault(self, method):
    class Exits(FakeEnvironment):
      pass

    setattr(Exits, method, lambda *_: sys.exit(0))
    batch = batched_environment.BatchedEnvironment([Exits()])
    with self.assertRaisesRegex(
        batched_environment.EnvironmentFailed, '^environment 0.*SystemExit: 0'):
      getattr(batch, method)(*[[0]] * (method == 'step'))

  def test_environments_that_share_an_array_are_told_apart(self):
    shared = np.zeros(3, np.float32)

    class Shares(FakeEnvironment):
      def reset(self):
        shared[:] = id(self) % 1000
        return dm_env.restart(shared)

    fakes = [Shares(), Shares()]
    seen = batched_environment.BatchedEnvironment(fakes).reset()
    np.testing.assert_array_equal(
        seen.observation[:, 0], [id(fake) % 1000 for fake in fakes])

  def test_an_environment_that_changes_its_action_changes_a_copy(self):
    class Scales(FakeEnvironment):
      def step(self, action):
        action *= 3
        return super().step(action)

    batch = batched_environment.BatchedEnvironment(
        [Scales(action_spec=specs.Array([2], np.float32))])
    batch.reset()
    actions = np.ones([1, 2], np.float32)
    batch.step(actions)
    np.testing.assert_array_equal(actions, np.ones([1, 2]))

  @parameterized.named_parameters(
      ('missing', {'a': np.zeros([])}, r"returned \[\"observation\['a'\]\"\]"),
      ('array', np.zeros([]), 'returned'),
      ('shape', {'a': np.zeros([]), 'b': np.zeros(2)}, r"observation\['b'\] .*has shape"),
      ('nan', {'a': np.zeros([]), 'b': np.array(np.nan)}, r"observation\['b'\] = nan"))
  def test_a_fault_in_a_nest_names_the_leaf(self, observation, message):
    spec = {'a': specs.Array([], float), 'b': specs.Array([], float)}
    batch = _batch_of_fakes(observation=observation, observation_spec=spec)
    batch.reset()
    with self.assertRaisesRegex(ValueError, f'environment 0: {message}'):
      batch.step([0])

  @parameterized.named_parameters(
      ('empty', [], 'environments is empty'),
      ('twice', [FakeEnvironment()] * 2, 'one environment twice'),
      ('object', [object()], r'^environment 0 is a object without reset\(\): expected'),
      ('spec_that_fails', [_Unready()],
       r'^environment 0: observation_spec\(\) failed with AttributeError: .*_after_reset'),
      *((name, [FakeEnvironment(observation_spec=spec)], f'^environment 0: {message}')
        for name, spec, message in (
            ('complex', specs.Array([3], np.complex64), 'observation has dtype complex64'),
            ('text', {'mission': specs.StringArray([])},
             r"observation\['mission'\] has dtype object: expected numbers"),
            ('bounds', specs.BoundedArray([2], np.float32, np.nan, 1),
             'observation has the bounds nan and 1.0'),
            ('no_spec', np.float32, 'observation_spec has type for observation'),
            ('space', {'arm': {'x (m)': specs.Array([3], np.float32)}},
             r"observation_spec has the keys \['x \(m\)'\]: expected names"),
            ('case', {'X': specs.Array([3], np.float32), 'x': specs.Array([3], np.float32)},
             r"observation_spec has the keys \['X', 'x'\]: expected names"))),
      ('rewards', [FakeEnvironment(reward_spec=specs.Array([2], float))],
       'reward_spec is .*: expected a scalar'),
      ('no_action', [FakeEnvironment(action_spec={})], 'action_spec is {}: expected at least'),
      ('other_dtype', [FakeEnvironment(), FakeEnvironment(
          observation_spec=specs.Array([3], np.uint8))],
       'environment 1: observation_spec is .*uint8.*in environment 0 it is .*float32'),
      ('other_actions', [FakeEnvironment(), FakeEnvironment(action_spec=specs.DiscreteArray(3))],
       'environment 1: action_spec is .*num_values=3.*in environment 0'))
  def test_environments_that_are_no_batch_are_refused(self, environments, message):
    with self.assertRaisesRegex(ValueError, message):
      batched_environment.BatchedEnvironment(environments)

  def test_head_starts_put_episodes_out_of_phase(self):
    head_starts = np.array([0, 3, 8])
    batch = batched_environment.BatchedEnvironment(
        [numpad.Numpad(size=2, episode_length=10, seed=i) for i in range(3)])
    self.assertTrue(batch.reset(head_starts).first().all())
    ends = np.array([batch.step([4, 4, 4]).last() for _ in range(10)])
    np.testing.assert_array_equal(np.argmax(ends, axis=0), 9 - head_starts)

  def test_an_episode_with_a_head_start_reports_nothing(self):
    head_starts = np.array([0, 3, 9, 10])  # The last ends an episode, so it has none.
    batch = batched_environment.BatchedEnvironment(
        [numpad.Numpad(size=2, episode_length=10, seed=i) for i in range(4)])
    batch.reset(head_starts)
    reported, ended = np.zeros((2, 4), int)
    for _ in range(24):
      seen = batch.step([4, 4, 4, 4])
      ended += seen.last()
      reported += ~np.isnan(seen.episode_return)
      np.testing.assert_array_equal(
          np.isnan(seen.episode_return), np.isnan(seen.episode_success))
    np.testing.assert_array_equal(ended - reported, [0, 1, 1, 0])
    self.assertTrue((reported > 0).all())
    batch.reset()
    seen = [batch.step([4, 4, 4, 4]) for _ in range(10)][-1]
    self.assertFalse(np.isnan(seen.episode_return).any())


if __name__ == '__main__':
  absltest.main()
