"""Tests for wrappers."""

import functools
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import dm_env
from dm_env import specs
from dm_env import test_utils
import numpy as np

from gtrxl_tf import environments
from gtrxl_tf.environments import batched_environment
from gtrxl_tf.environments import wrappers
from gtrxl_tf.settings import config


class Images(dm_env.Environment):
  """Shows an image, and a vector of uint8 that is none."""

  def __init__(self, image):
    self._image = image

  def observation_spec(self):
    return {'image': specs.BoundedArray(self._image.shape, np.uint8, 0, 255, 'image'),
            'bytes': specs.BoundedArray([6], np.uint8, 0, 255)}

  def action_spec(self):
    return specs.DiscreteArray(2)

  def reset(self):
    return dm_env.restart({'image': self._image, 'bytes': np.arange(6, dtype=np.uint8)})

  def step(self, action):
    return dm_env.termination(1.0, self.reset().observation)


class Count(dm_env.Environment):
  """Shows the number of the step in several ways; the reward is -3 times it.

  It writes into the array that it showed before.
  """

  def __init__(self, seed=None, length=5, discount=0.5):
    del seed
    self._length, self._discount = length, discount
    self._steps = length
    self._vector = np.zeros(2, np.float32)
    self.actions = []

  def observation_spec(self):
    return {
        'action_mask': specs.BoundedArray([3], np.int8, 0, 1),
        'image': specs.BoundedArray([2, 3, 1], np.uint8, 0, 255),
        'number': specs.DiscreteArray(100),
        'vector': specs.BoundedArray([2], np.float32, [0, -1], [100, -1]),
        'free': specs.Array([1], np.float32),
    }

  def action_spec(self):
    return specs.DiscreteArray(3)

  def _observation(self):
    self._vector[:] = self._steps, -1
    return {
        'action_mask': np.eye(3, dtype=np.int8)[self._steps % 3],
        'image': np.full([2, 3, 1], self._steps, np.uint8),
        'number': np.int32(self._steps),
        'vector': self._vector,
        'free': np.full(1, self._steps, np.float32),
    }

  def reset(self):
    self._steps = 0
    return dm_env.restart(self._observation())

  def step(self, action):
    if self._steps >= self._length:
      return self.reset()
    self._steps += 1
    self.actions.append(action)
    reward = -3.0 * self._steps
    if self._steps == self._length:
      return dm_env.termination(reward, self._observation())
    return dm_env.transition(reward, self._observation(), self._discount)


class Solved(Count):
  """An environment with further methods."""

  def episode_success(self):
    return True

  def episode_return(self):
    return 77.0


def _play(environment, num_steps):
  return [environment.step(i % 3) for i in range(num_steps)]


_ALL = {
    'Wrapper': wrappers.Wrapper,
    'ClipReward': wrappers.ClipReward,
    'ScaleReward': functools.partial(wrappers.ScaleReward, factor=0.1),
    'RepeatAction': wrappers.RepeatAction,
    'StepLimit': functools.partial(wrappers.StepLimit, steps=3),
    'FrameStack': wrappers.FrameStack,
}


def _contract(wrapper):
  class Contract(test_utils.EnvironmentTestMixin, absltest.TestCase):

    def make_object_under_test(self):
      return wrapper(Count())

  return Contract


for _name, _wrapper in _ALL.items():
  globals()[f'{_name}ContractTest'] = _contract(_wrapper)


class WrappersTest(parameterized.TestCase):

  @parameterized.parameters(*_ALL)
  def test_methods_of_the_wrapped_environment_are_available(self, name):
    environment = _ALL[name](Solved())
    self.assertTrue(environment.episode_success())
    self.assertEqual(environment.episode_return(), 77.0)
    plain = _ALL[name](Count())
    self.assertFalse(hasattr(plain, 'episode_success'))
    self.assertEqual(hasattr(plain, 'episode_return'), 'Reward' in name)

  def test_rewards_are_clipped(self):
    def rewards(**bounds):
      return [step.reward for step in _play(
          wrappers.ClipReward(Count(), **bounds), 6)]

    self.assertEqual(rewards(), [None] + [-1.0] * 5)
    self.assertEqual(rewards(low=-7.0), [None, -3.0, -6.0] + [-7.0] * 3)
    self.assertEqual(rewards(low=None, high=-4.0), [None, -4, -6, -9, -12, -15])

  def test_rewards_are_scaled(self):
    steps = _play(wrappers.ScaleReward(Count(), factor=-0.5), 6)
    self.assertEqual([step.reward for step in steps], [None, 1.5, 3.0, 4.5, 6.0, 7.5])

  @parameterized.parameters(
      ([wrappers.ClipReward],), ([_ALL['ScaleReward'], wrappers.ClipReward],),
      ([functools.partial(wrappers.RepeatAction, repeats=2), _ALL['ScaleReward'],
        wrappers.FrameStack],))
  def test_the_return_that_is_reported_is_that_of_the_environment(self, wrapped):
    batch = batched_environment.BatchedEnvironment(
        [environments.make('Experiment', Count, seed=i, wrappers=wrapped)
         for i in range(2)])
    batch.reset()
    returns = [batch.step(np.zeros([2], np.int32)).episode_return for _ in range(11)]
    ends = [x.tolist() for x in returns if not np.isnan(x).any()]
    self.assertGreaterEqual(len(ends), 2)
    self.assertEqual(ends, [[-45.0, -45.0]] * len(ends))  # -3 (1 + 2 + 3 + 4 + 5).

  def test_actions_are_repeated_until_the_episode_ends(self):
    inside = Count()
    steps = _play(wrappers.RepeatAction(inside, repeats=2), 4)
    self.assertEqual([step.reward for step in steps], [None, -9, -21, -15])
    self.assertEqual([step.discount for step in steps], [None, 0.25, 0.25, 0.0])
    self.assertEqual([int(step.observation['number']) for step in steps], [0, 2, 4, 5])
    self.assertEqual(inside.actions, [1, 1, 2, 2, 0])

  def test_no_reward_counts_after_a_discount_of_0(self):
    inside = mock.Mock()
    inside.step.side_effect = [dm_env.transition(1.0, 0, discount) for discount in (1., 0.)]
    step = wrappers.RepeatAction(inside, repeats=4).step(0)
    self.assertEqual((step.reward, step.discount, inside.step.call_count), (2.0, 0.0, 2))

  def test_an_environment_that_changes_its_action_gets_the_same_again(self):
    class Scales(Count):
      def step(self, action):
        seen.append(action.tolist())
        action *= 3
        return super().step(action)

    seen = []
    repeated = wrappers.RepeatAction(Scales(), repeats=3)
    repeated.reset()
    repeated.step(np.ones(2))
    self.assertEqual(seen, [[1, 1]] * 3)

  def test_the_time_limit_cuts_off_and_begins_again(self):
    steps = _play(wrappers.StepLimit(Count(), steps=3), 9)
    self.assertEqual([step.step_type for step in steps], [0, 1, 1, 2, 0, 1, 1, 2, 0])
    self.assertEqual([step.discount for step in steps[:5]], [None, .5, .5, .5, None])
    self.assertEqual([int(step.observation['number']) for step in steps],
                     [0, 1, 2, 3, 0, 1, 2, 3, 0])
    steps = _play(wrappers.StepLimit(Count(), steps=5), 7)
    self.assertEqual([step.step_type for step in steps], [0, 1, 1, 1, 1, 2, 0])
    self.assertEqual(steps[5].discount, 0)

  def test_frames_are_stacked(self):
    environment = wrappers.FrameStack(Count(), frames=3)
    steps = _play(environment, 7)
    seen = [step.observation for step in steps]
    self.assertEqual([x['number'].tolist() for x in seen],
                     [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5],
                      [0, 0, 0]])
    self.assertEqual(seen[2]['vector'].tolist(), [0, -1, 1, -1, 2, -1])
    self.assertEqual(seen[1]['vector'].tolist(), [0, 0, 0, -1, 1, -1])
    self.assertEqual(seen[2]['free'].tolist(), [0, 1, 2])
    self.assertEqual(seen[2]['image'].shape, (2, 3, 3))
    self.assertEqual(seen[2]['image'][1, 1].tolist(), [0, 1, 2])
    self.assertEqual(seen[2]['action_mask'].tolist(), [0, 0, 1])
    spec = environment.observation_spec()
    self.assertEqual(spec['vector'].minimum.tolist(), [0, -1] * 3)
    self.assertEqual(spec['vector'].maximum.tolist(), [100, 0] * 3)
    self.assertEqual(spec['number'].maximum.tolist(), [99] * 3)
    self.assertEqual(spec['action_mask'], Count().observation_spec()['action_mask'])

  @parameterized.parameters(
      (lambda: wrappers.ClipReward(7), '^ClipReward of 7'),
      (lambda: wrappers.FrameStack(Count(), frames=10**9), 'FrameStack.frames = 1000000000'),
      (lambda: wrappers.ClipReward(Count(), low=2.0),
       'ClipReward.low = 2.0: expected at most ClipReward.high = 1.0'),
      (lambda: wrappers.StepLimit(Count()), 'StepLimit.steps is not set'))
  def test_refuses_settings(self, make, message):
    with self.assertRaisesRegex(config.ConfigError, message):
      make()


class ShrinkImagesTest(parameterized.TestCase):

  def test_indices_are_no_image(self):
    class Cells(Images):

      def observation_spec(self):
        return {**super().observation_spec(),
                'cells': specs.BoundedArray([8, 8, 3], np.uint8, 0, 10)}

      def reset(self):
        seen = super().reset()
        return seen._replace(observation={**seen.observation, 'cells': cells})

    cells = np.full([8, 8, 3], 9, np.uint8)
    environment = wrappers.ShrinkImages(Cells(np.zeros([8, 8, 3], np.uint8)))
    seen = environment.reset().observation
    np.testing.assert_array_equal(seen['cells'], cells)
    self.assertEqual(seen['image'].shape, (4, 4, 3))
    environment.observation_spec()['cells'].validate(cells)

  @parameterized.parameters(2, 3, 16)
  def test_a_pixel_is_the_mean_of_a_square(self, factor):
    image = np.random.default_rng(0).integers(0, 256, [35, 50, 3], np.uint8)
    image[:, :20] = 255
    environment = wrappers.ShrinkImages(Images(image), factor)
    height, width = 35 // factor, 50 // factor
    squares = image[:height * factor, :width * factor].reshape(
        height, factor, width, factor, 3)
    for time_step in environment.reset(), environment.step(0):
      np.testing.assert_array_equal(
          time_step.observation['image'], np.floor(squares.mean((1, 3))).astype(np.uint8))
      self.assertLen(time_step.observation['bytes'], 6)
      for name, spec in environment.observation_spec().items():
        spec.validate(time_step.observation[name])
    self.assertEqual(environment.observation_spec()['image'].name, 'image')

  @parameterized.parameters(
      ([8, 4, 3], 5, 'factor = 5: expected at most the height and width of an image of 8 x '),
      ([8, 8], 2, r'expected an image, uint8 \[H, W, C\]'))
  def test_refuses(self, shape, factor, message):
    with self.assertRaisesRegex(config.ConfigError, message):
      wrappers.ShrinkImages(Images(np.zeros(shape, np.uint8)), factor)


if __name__ == '__main__':
  absltest.main()
