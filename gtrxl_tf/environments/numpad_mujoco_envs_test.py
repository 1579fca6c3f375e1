"""Tests for numpad_mujoco."""

import os
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from gtrxl_tf.environments import episodic
from gtrxl_tf.environments import numpad_mujoco
from gtrxl_tf.settings import config

_SPACING = 0.5  # From pad to pad, in metres.
_REST = np.zeros(3)


def _random_actions(num_actions: int, seed: int = 0) -> np.ndarray:
  return np.random.default_rng(seed).uniform(-1, 1, [num_actions, 3])


class Driver:
  """Drives the ball over a 3 x 3 Numpad."""

  def __init__(self, seed: int):
    self.environment = numpad_mujoco.NumpadMujoco(seed=seed)
    self.time_step = self.environment.reset()
    self.rewards = []

  @property
  def lit(self) -> set[int]:
    return set(np.flatnonzero(self.time_step.observation['pads']))

  def act(self, action) -> None:
    self.time_step = self.environment.step(action)
    self.rewards.append(self.time_step.reward)

  def drive(self, x: float, y: float, jump: float = 0) -> None:
    """Drives to a point and stops there, on the floor."""
    for _ in range(200):
      observation = self.time_step.observation
      away = np.array([x, y]) - observation['position'][:2]
      velocity = observation['velocity']
      if np.abs(away).max() < 0.02 and np.abs(velocity).max() < 0.02:
        return
      self.act([*np.clip(5 * (away - 0.15 * velocity[:2]), -1, 1), jump])
    raise AssertionError(f'({x}, {y}) was not reached')

  def drive_to_pad(self, pad: int, jump: float = 0) -> None:
    self.drive((pad % 3 - 1) * _SPACING, (1 - pad // 3) * _SPACING, jump)

  def light(self, num_pads: int) -> None:
    while len(self.lit) < num_pads:
      self.act(self.environment.informed_action())
    self.drive_to_pad(self.environment.sequence[num_pads - 1])
    assert len(self.lit) == num_pads


class SequenceTest(parameterized.TestCase):

  @parameterized.parameters(*range(3))
  def test_each_next_pad_lights_and_the_last_puts_all_out(self, seed):
    driver = Driver(seed)
    sequence = driver.environment.sequence
    courses = [driver.lit]
    while len(courses) < 19:
      driver.act(driver.environment.informed_action())
      if driver.lit != courses[-1]:
        courses.append(driver.lit)
        self.assertEqual(driver.rewards[-1], 1)
      else:
        self.assertEqual(driver.rewards[-1], 0)
    expected = [set(sequence[:i]) for i in range(9)]
    self.assertEqual(courses, expected + expected + [set()])
    self.assertTrue(driver.environment.episode_success())

  def test_a_wrong_pad_clears_and_its_pads_give_their_reward_once(self):
    driver = Driver(seed=0)
    driver.light(3)
    driver.drive_to_pad(driver.environment.sequence[1])
    self.assertEmpty(driver.lit)
    self.assertEqual(sum(driver.rewards), 3)
    driver.light(3)
    self.assertEqual(sum(driver.rewards), 3)
    driver.light(4)
    self.assertEqual(sum(driver.rewards), 4)
    self.assertFalse(driver.environment.episode_success())

  def test_a_pad_stays_lit_while_the_ball_rests_and_hops_on_it(self):
    driver = Driver(seed=1)
    driver.light(1)
    for action in 5 * [_REST] + 20 * [[0, 0, 1]] + 5 * [_REST]:
      driver.act(action)
      self.assertEqual(driver.lit, {driver.environment.sequence[0]})

  @parameterized.parameters((0, True), (1, False))
  def test_rolling_over_a_pad_presses_it_and_jumping_over_does_not(self, jump, cleared):
    num_tried = 0
    for seed in range(10):
      driver = Driver(seed)
      if 4 in driver.environment.sequence[:2]:
        continue  # The middle is a wrong pad in all others.
      num_tried += 1
      driver.light(1)
      towards_middle = -np.sign(np.round(
          driver.time_step.observation['position'][:2] / _SPACING))
      least = np.inf
      for _ in range(5):
        driver.act([*towards_middle, jump])
        least = min(least, np.abs(driver.time_step.observation['position'][:2]).max())
      self.assertLess(least, 0.15)
      self.assertEqual(driver.lit == set(), cleared)
    self.assertGreater(num_tried, 3)

  def test_the_informed_ball_jumps_over_wrong_pads(self):
    num_tried = num_kept = 0
    for seed in range(30):
      driver = Driver(seed)
      first, second = driver.environment.sequence[:2]
      if first % 2 or first == 4 or second == 4:
        continue  # The first pad is in a corner in all others.
      driver.light(1)
      # Along the walls to the opposite corner, from where wrong pads are in the way.
      x, y = 0.78 * np.sign(driver.time_step.observation['position'][:2])
      for corner in ((x, y), (x, -y), (-x, -y)):
        driver.drive(*corner)
      self.assertEqual(driver.lit, {first})
      num_tried += 1
      while driver.lit == {first}:
        driver.act(driver.environment.informed_action())
      num_kept += driver.lit == {first, second}
    self.assertGreater(num_tried, 5)
    self.assertGreater(num_kept / num_tried, 0.7)

  @parameterized.parameters(2, 4)
  def test_the_informed_ball_presses_a_pad_in_5_to_6_steps(self, size):
    environment = numpad_mujoco.NumpadMujoco(size=size, seed=0)
    informed = episodic.informed_return(environment, 5)
    self.assertBetween(informed, 500 / 6, 500 / 4)
    self.assertTrue(environment.episode_success())

  def test_the_pad_under_the_start_is_not_pressed(self):
    environment = numpad_mujoco.NumpadMujoco(size=2, seed=0)
    num_on_pads = num_firsts = 0
    for _ in range(60):
      position = environment.reset().observation['position']
      off_centre = np.abs(np.abs(position[:2]) - _SPACING / 2)
      if off_centre.max() > 0.14:
        continue
      num_on_pads += 1
      pad = 2 * int(position[1] < 0) + int(position[0] > 0)
      num_firsts += pad == environment.sequence[0]
      for _ in range(10):
        time_step = environment.step(_REST)
        self.assertEqual(time_step.reward, 0)
        self.assertEqual(time_step.observation['pads'].sum(), 0)
      while time_step.reward == 0:  # It can be pressed after it was left.
        time_step = environment.step(environment.informed_action())
    self.assertGreater(num_on_pads, 10)
    self.assertGreater(num_firsts, 0)


class BallTest(parameterized.TestCase):

  def test_observations_of_the_ball_are_consistent(self):
    environment = numpad_mujoco.NumpadMujoco(size=4, seed=0)
    before = environment.reset().observation
    self.assertEqual(before['velocity'].tolist(), [0, 0, 0])
    self.assertEqual(before['acceleration'].tolist(), [0, 0, 0])
    for action in np.repeat(_random_actions(40), 5, axis=0):
      after = environment.step(action).observation
      mean_velocity = (after['position'] - before['position']) / 0.05
      low = np.minimum(before['velocity'], after['velocity'])[:2]
      high = np.maximum(before['velocity'], after['velocity'])[:2]
      # Walls and landings change the velocity in other ways.
      if (np.abs(after['position'][:2]).max() < 0.9
          and before['position'][2] < 0.105 > after['position'][2]):
        self.assertTrue((mean_velocity[:2] >= low - 0.02).all())
        self.assertTrue((mean_velocity[:2] <= high + 0.02).all())
      np.testing.assert_allclose(
          after['acceleration'], (after['velocity'] - before['velocity']) / 0.05 / 9.81,
          atol=1e-4)
      np.testing.assert_array_equal(after['previous_action'], np.float32(action))
      before = after

  @parameterized.parameters((1, 0), (-1, 0), (0, 1), (0, -1), (0.5, -0.5))
  def test_a_pushed_ball_rolls_without_sliding(self, x, y):
    driver = Driver(seed=0)
    driver.drive(0, 0)
    for _ in range(4):
      driver.act([x, y, 0])
    velocity = driver.time_step.observation['velocity']
    self.assertGreater(np.dot(velocity[:2], [x, y]), 0.5)
    expected = np.array([-velocity[1], velocity[0], 0]) / (2 * np.pi * 0.1)
    np.testing.assert_allclose(
        driver.time_step.observation['angular_velocity'], expected, atol=0.2)

  def test_a_jump_rises_with_the_action_and_only_from_the_floor(self):
    heights = []
    for strength in (-1, 0, 0.5, 1):
      driver = Driver(seed=0)
      driver.act([0, 0, strength])
      course = []
      for _ in range(5):
        driver.act([0, 0, strength])
        course.append(driver.time_step.observation['position'][2] - 0.1)
      heights.append(max(course))
    self.assertAlmostEqual(heights[0], 0, delta=0.002)
    self.assertAlmostEqual(heights[1], 0, delta=0.002)
    self.assertAlmostEqual(heights[2], 0.75**2 / 2 / 9.81, delta=0.01)
    self.assertAlmostEqual(heights[3], 1.5**2 / 2 / 9.81, delta=0.01)

  def test_every_episode_begins_at_rest(self):
    def second_episode(seed_of_actions):
      environment = numpad_mujoco.NumpadMujoco(seed=0)
      environment.reset()
      for action in _random_actions(50, seed_of_actions):
        environment.step(action)
      first = environment.reset().observation
      for name in ('velocity', 'acceleration', 'angular_velocity', 'previous_action'):
        self.assertEqual(first[name].tolist(), [0, 0, 0])
      return [environment.step(action).observation['position'].tolist()
              for action in _random_actions(50)]

    self.assertEqual(second_episode(1), second_episode(2))

  @parameterized.parameters(
      ([0, 0],), ([0, 0, 0, 0],), (1,), ([[0, 0, 0]],), ([0, 0, 1.01],),
      ([-1.01, 0, 0],), ([0, np.nan, 0],), ([np.inf, 0, 0],))
  def test_refuses_actions_that_do_not_fit(self, action):
    environment = numpad_mujoco.NumpadMujoco(seed=0)
    environment.reset()
    with self.assertRaisesRegex(ValueError, 'action = '):
      environment.step(action)


class RenderTest(absltest.TestCase):

  def test_a_pad_that_lights_is_seen(self):
    driver = Driver(seed=0)
    self.addCleanup(driver.environment.close)
    dark = driver.environment.render()
    self.assertEqual(dark.shape, (240, 320, 3))
    self.assertEqual(dark.dtype, np.uint8)
    self.assertEqual(driver.environment.render(64, 48).shape, (64, 48, 3))

    def num_yellow():
      image = driver.environment.render().astype(int)
      return ((image[..., 1] > 150) & (image[..., 2] < 120)).sum()

    seen = [num_yellow()]
    for num_pads in (1, 2, 3):
      driver.light(num_pads)
      seen.append(num_yellow())
    self.assertLess(seen[0], 100)
    self.assertGreater(np.diff(seen).min(), 500)
    driver.drive_to_pad(driver.environment.sequence[0])
    self.assertEmpty(driver.lit)
    self.assertLess(num_yellow(), 100)

  def test_without_opengl_only_images_are_refused(self):
    environment = numpad_mujoco.NumpadMujoco(seed=0)
    environment.reset()
    with mock.patch.dict(os.environ, MUJOCO_GL='', DISPLAY=''):
      environment.step(_REST)
      with self.assertRaisesRegex(
          config.ConfigError, 'NumpadMujoco cannot draw images.*libosmesa6'):
        environment.render()


if __name__ == '__main__':
  absltest.main()
