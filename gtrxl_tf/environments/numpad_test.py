"""Tests for numpad."""

import collections
import itertools

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest

from gtrxl_tf.environments import episodic
from gtrxl_tf.environments import numpad


def _blocked(pad: int) -> list[int]:
  """Actions that lead to no other pad: 4, which stays, and those out of the grid."""
  row, column = divmod(pad, 3)
  return [action for action in range(9)
          if action == 4 or not (0 <= row + action // 3 - 1 < 3
                                 and 0 <= column + action % 3 - 1 < 3)]


def _are_neighbours(pad: int, other: int, size: int) -> bool:
  rows, columns = zip(divmod(pad, size), divmod(other, size))
  return pad != other and abs(rows[0] - rows[1]) <= 1 and abs(
      columns[0] - columns[1]) <= 1


def _all_sequences(size: int) -> set[tuple[int, ...]]:
  found = set()

  def extend(path):
    if len(path) == size**2:
      found.add(path)
    for pad in range(size**2):
      if pad not in path and (not path or _are_neighbours(path[-1], pad, size)):
        extend(path + (pad,))

  extend(())
  return found


def _random_return(environment: numpad.Numpad, num_episodes: int) -> float:
  rng = np.random.default_rng(0)
  total = 0.0
  for _ in range(num_episodes):
    time_step = environment.reset()
    while not time_step.last():
      time_step = environment.step(rng.integers(9))
      total += time_step.reward
  return total / num_episodes


class Walker:
  """Drives an agent over the pads of a 3 x 3 Numpad by pad numbers."""

  def __init__(self, environment: numpad.Numpad):
    self.environment = environment
    self.time_step = environment.reset()

  @property
  def position(self) -> int:
    return int(self.time_step.observation['position'].argmax())

  @property
  def lit(self) -> set[int]:
    return set(np.flatnonzero(self.time_step.observation['pads']))

  def act(self, action: int) -> float:
    self.time_step = self.environment.step(action)
    return self.time_step.reward

  def press(self, *pads: int) -> list[float]:
    """Enters neighbouring pads one after another; returns the rewards."""
    rewards = []
    for pad in pads:
      row, column = divmod(self.position, 3)
      rewards.append(
          self.act(3 * (pad // 3 - row + 1) + (pad % 3 - column + 1)))
      assert self.position == pad
    return rewards

  def press_first(self) -> float:
    """Walks to the sequence's first pad; returns the reward for pressing it."""
    first = self.environment.sequence[0]
    while True:
      reward = self.act(self.environment.informed_action())
      if self.position == first:
        return reward

  def press_wrong(self) -> tuple[int, list[float]]:
    """Presses a neighbour that is not next; returns the pad it left, and rewards."""
    origin, sequence = self.position, self.environment.sequence
    following = sequence[(sequence.index(origin) + 1) % 9]
    wrong = next(pad for pad in range(9)
                 if _are_neighbours(origin, pad, 3) and pad != following
                 and pad != sequence[0])
    return origin, self.press(wrong)


class NumpadTest(parameterized.TestCase):

  def test_standing_on_a_pad_and_bumping_into_the_border_press_nothing(self):
    for seed in range(20):
      walker = Walker(numpad.Numpad(seed=seed))
      start = walker.position
      for action in _blocked(start):
        self.assertEqual(walker.act(action), 0)
        self.assertEqual(walker.position, start)
        self.assertEmpty(walker.lit)

  def test_each_next_pad_of_the_sequence_lights_and_gives_one(self):
    environment = numpad.Numpad(seed=1)
    walker = Walker(environment)
    self.assertEqual(walker.press_first(), 1)
    for i, pad in enumerate(environment.sequence[1:8], start=2):
      self.assertEqual(walker.press(pad), [1])
      self.assertEqual(walker.lit, set(environment.sequence[:i]))

  def test_a_wrong_pad_clears_all_lit_pads_and_gives_nothing(self):
    environment = numpad.Numpad(seed=2)
    walker = Walker(environment)
    walker.press_first()
    walker.press(*environment.sequence[1:4])
    self.assertLen(walker.lit, 4)
    self.assertEqual(walker.press_wrong()[1], [0])
    self.assertEmpty(walker.lit)

  def test_pads_already_rewarded_give_nothing_until_a_new_one_is_reached(self):
    environment = numpad.Numpad(seed=4)
    walker = Walker(environment)
    walker.press_first()
    walker.press(*environment.sequence[1:4])
    walker.press_wrong()
    self.assertEqual(walker.press_first(), 0)
    self.assertEqual(walker.press(*environment.sequence[1:6]), [0, 0, 0, 1, 1])
    walker.press_wrong()
    self.assertEqual(walker.press_first(), 0)
    self.assertEqual(
        walker.press(*environment.sequence[1:]), [0, 0, 0, 0, 0, 1, 1, 1])

  def test_a_completed_sequence_starts_again_with_all_its_rewards(self):
    environment = numpad.Numpad(seed=5)
    walker = Walker(environment)
    walker.press_first()
    self.assertFalse(environment.episode_success())
    walker.press(*environment.sequence[1:])
    self.assertTrue(environment.episode_success())
    self.assertEmpty(walker.lit)
    self.assertEqual(walker.press_first(), 1)
    self.assertEqual(walker.press(*environment.sequence[1:]), [1] * 8)

  def test_the_observation_has_the_previous_action_and_reward(self):
    walker = Walker(numpad.Numpad(seed=6))
    observation = walker.time_step.observation
    np.testing.assert_array_equal(observation['previous_action'], np.zeros(9))
    np.testing.assert_array_equal(observation['previous_reward'], [0])
    for _ in range(30):
      action = walker.environment.informed_action()
      reward = walker.act(action)
      observation = walker.time_step.observation
      np.testing.assert_array_equal(
          observation['previous_action'], np.eye(9)[action])
      np.testing.assert_array_equal(observation['previous_reward'], [reward])

  def test_success_and_lights_do_not_outlive_the_episode(self):
    environment = numpad.Numpad(size=2, episode_length=20, seed=0)
    episodic.informed_return(environment, 1)
    self.assertTrue(environment.episode_success())
    time_step = environment.reset()
    self.assertFalse(environment.episode_success())
    self.assertEqual(time_step.observation['pads'].sum(), 0)

  @parameterized.parameters(2, 3, 4, 7)
  def test_a_sequence_visits_every_pad_once_in_steps_to_neighbours(self, size):
    environment = numpad.Numpad(size=size, seed=0)
    sequences = set()
    for _ in range(20):
      environment.reset()
      sequences.add(environment.sequence)
      self.assertCountEqual(environment.sequence, range(size**2))
      for pad, following in itertools.pairwise(environment.sequence):
        self.assertTrue(_are_neighbours(pad, following, size))
    self.assertGreater(len(sequences), 8)

  @parameterized.parameters((2, 100), (3, 10))
  @pytest.mark.medium
  def test_all_sequences_are_equally_likely(self, size, draws_per_sequence):
    allowed = _all_sequences(size)
    environment = numpad.Numpad(size=size, seed=0)
    counts = collections.Counter()
    for _ in range(draws_per_sequence * len(allowed)):
      environment.reset()
      counts[environment.sequence] += 1
    self.assertContainsSubset(counts, allowed)
    chi_square = sum((counts[sequence] - draws_per_sequence)**2
                     for sequence in allowed) / draws_per_sequence
    freedom = len(allowed) - 1
    self.assertLess(abs(chi_square - freedom), 3 * np.sqrt(2 * freedom))

  @parameterized.parameters((2, 5), (3, 4))
  @pytest.mark.medium
  def test_no_actions_earn_more_than_the_informed_ones(self, size, horizon):
    environment = numpad.Numpad(size=size, seed=0)
    rng = np.random.default_rng(0)
    for num_random_steps in (0, 10, 100):
      environment.reset()
      for _ in range(num_random_steps):
        environment.step(rng.integers(9))
      # A step replaces attributes and writes into none of them.
      parts = environment, environment._hidden
      start = [dict(vars(part)) for part in parts]
      informed = sum(environment.step(environment.informed_action()).reward
                     for _ in range(horizon))
      best = 0
      for actions in itertools.product([0, 1, 2, 3, 5, 6, 7, 8], repeat=horizon):
        for part, attributes in zip(parts, start):
          vars(part).update(attributes)
        best = max(best, sum(environment.step(a).reward for a in actions))
      self.assertEqual(informed, best)

  @parameterized.parameters((2, 99.75, 3.2), (3, 93.5, 2.0))
  def test_returns_of_the_informed_and_the_random_agent(
      self, size, informed, random):
    # In size 2, only a start on the sequence's first pad costs a step of 100.
    environment = numpad.Numpad(size=size, episode_length=100, seed=0)
    self.assertAlmostEqual(
        episodic.informed_return(environment, 300), informed, delta=0.75)
    self.assertAlmostEqual(_random_return(environment, 300), random, delta=0.5)

  def test_refuses_actions_that_do_not_exist(self):
    environment = numpad.Numpad(seed=0)
    environment.reset()
    for action in (-1, 9):
      with self.assertRaisesRegex(ValueError, f'action = {action}'):
        environment.step(action)
    with self.assertRaises(TypeError):
      environment.step(1.5)


if __name__ == '__main__':
  absltest.main()
