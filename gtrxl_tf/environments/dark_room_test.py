"""Tests for dark_room; dark_room_rules_test tests the rules."""

from absl.testing import absltest
from absl.testing import parameterized
from dm_env import test_utils
import numpy as np
import pytest

from gtrxl_tf.environments import dark_room
from gtrxl_tf.environments import episodic
from gtrxl_tf.environments.dark_room import LEFT
from gtrxl_tf.environments.dark_room import RIGHT
from gtrxl_tf.environments.dark_room import UP
from gtrxl_tf.settings import config


class DarkRoomContractTest(test_utils.EnvironmentTestMixin, parameterized.TestCase):

  def make_object_under_test(self):
    return dark_room.DarkRoom(goal=[5, 4])

  def make_action_sequence(self):
    yield from [RIGHT, RIGHT, RIGHT]
    yield from np.random.default_rng(0).integers(5, size=60)


class DarkKeyToDoorContractTest(test_utils.EnvironmentTestMixin,
                                parameterized.TestCase):

  def make_object_under_test(self):
    return dark_room.DarkKeyToDoor(key=[5, 4], door=[4, 5], task='dense')

  def make_action_sequence(self):
    yield from [RIGHT, LEFT, UP, RIGHT]
    yield from np.random.default_rng(0).integers(5, size=120)


class DarkRoomTest(parameterized.TestCase):

  @parameterized.parameters(*dark_room.SETTINGS)
  @pytest.mark.medium
  def test_random_play_is_that_of_the_batch(self, name):
    setting = dark_room.SETTINGS[name]
    kind = dark_room.DarkRoom if setting.num_targets == 1 else dark_room.DarkKeyToDoor
    singles = [kind(setting.size, setting.episode_length, setting.task, seed=seed)
               for seed in range(5)]
    batch = dark_room.DarkRooms(
        np.concatenate([_targets(one) for one in singles]), setting.size,
        setting.episode_length, setting.task)
    random = np.random.default_rng(0)
    time_steps = [one.reset() for one in singles]
    for _ in range(3 * setting.episode_length):
      seen = batch.observe(batch.state)
      for i, time_step in enumerate(time_steps):
        if time_step.last():
          time_steps[i] = singles[i].step(0)  # Begins an episode, as dm_env requires.
        np.testing.assert_array_equal(time_steps[i].observation, seen[i])
      actions = np.where(random.random(5) < 0.5, random.integers(5, size=5),
                         batch.informed_actions())
      outcome = batch.step(actions)
      time_steps = [one.step(action) for one, action in zip(singles, actions)]
      np.testing.assert_array_equal([t.reward for t in time_steps], outcome.reward)
      np.testing.assert_array_equal([t.discount == 0 for t in time_steps],
                                    outcome.terminated)
      np.testing.assert_array_equal([t.last() for t in time_steps],
                                    outcome.terminated | outcome.truncated)
      np.testing.assert_array_equal([t.observation for t in time_steps],
                                    batch.observe(outcome.state))

  def test_the_goal_stays_and_is_drawn_by_the_seed(self):
    goals = [_targets(dark_room.DarkRoom(seed=seed)).tolist() for seed in range(40)]
    self.assertEqual(goals[3], _targets(dark_room.DarkRoom(seed=3)).tolist())
    self.assertGreater(len({str(goal) for goal in goals}), 20)
    environment = dark_room.DarkRoom(seed=3)
    before = _targets(environment)
    self.assertEqual(episodic.informed_return(environment, 3), 1)
    self.assertTrue(environment.episode_success())
    np.testing.assert_array_equal(_targets(environment), before)

  @parameterized.parameters(
      (dict(goal=[4, 4]), r'the targets \[\[4, 4\]\]: .*not its centre'),
      (dict(goal=[9, 0]), r'in a room of size 9'),
      (dict(goal=[1, 2, 3]), r'\[\[1, 2, 3\]\]: expected each to be \[x, y\]'),
      (dict(goal=[-1, 0]), 'each item is an integer >= 0'),
      (dict(size=2), 'DarkRoom.size = 2'), (dict(task='slow'), "one of 'normal'"))
  def test_refuses_what_does_not_fit(self, settings, message):
    with self.assertRaisesRegex(config.ConfigError, message):
      dark_room.DarkRoom(**settings)
    with self.assertRaisesRegex(config.ConfigError, 'expected different cells'):
      dark_room.DarkKeyToDoor(key=[1, 1], door=[1, 1])


def _targets(environment):
  """[1, K, 2]."""
  return environment._rooms.targets  # pylint: disable=protected-access


if __name__ == '__main__':
  absltest.main()
