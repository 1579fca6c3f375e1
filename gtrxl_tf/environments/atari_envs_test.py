"""Tests for atari."""

from absl.testing import absltest
from absl.testing import parameterized
import ale_py
import cv2
import numpy as np

from gtrxl_tf.environments import atari

_NOOP, _FIRE, _, _RIGHT = range(4)


def _random_actions(num_actions, num_steps, seed=0):
  return np.random.default_rng(seed).integers(num_actions, size=num_steps)


def _play(environment, actions):
  """The time steps of a new episode, up to its end or that of the actions."""
  time_steps = [environment.reset()]
  for action in actions:
    if time_steps[-1].last():
      break
    time_steps.append(environment.step(action))
  return time_steps


def _pictures(time_steps):
  return np.stack([t.observation for t in time_steps])


class AtariTest(parameterized.TestCase):

  @parameterized.parameters(*atari.ATARI_57)
  def test_every_game_loads_and_has_all_actions(self, game):
    environment = atari.Atari(game, seed=0)
    self.assertEqual(environment.action_spec().num_values, 18)
    time_steps = _play(environment, range(18))
    self.assertLen(time_steps, 19)
    self.assertGreater(time_steps[0].observation.max(), 0)

  @parameterized.parameters(('breakout', 4), ('pong', 6), ('skiing', 3))
  def test_a_single_game_may_have_only_its_own_actions(self, game, expected):
    environment = atari.Atari(game, full_action_set=False, seed=0)
    self.assertEqual(environment.action_spec().num_values, expected)
    environment.reset()
    with self.assertRaisesRegex(ValueError, rf'action = {expected}: expected'):
      environment.step(expected)

  def test_pictures_may_be_smaller_and_single(self):
    settings = dict(full_action_set=False, seed=0)
    actions = _random_actions(6, 30)
    stacked, single = (
        _pictures(_play(atari.Atari('pong', **settings, **more), actions))
        for more in (dict(side=42), dict(side=42, num_pictures=1)))
    self.assertEqual(stacked.shape, (31, 42, 42, 4))
    np.testing.assert_array_equal(stacked[..., 3:], single)
    np.testing.assert_array_equal(stacked[3:, ..., :1], single[:-3])

  def test_a_script_plays_pong_about_as_well_as_its_opponent(self):
    environment = atari.Atari('pong', full_action_set=False, max_frames=6000, seed=0)
    returns = []
    for _ in range(3):
      time_step = environment.reset()
      while not time_step.last():
        time_step = environment.step(environment.pong_action())
      returns.append(environment.episode_return())
    self.assertGreater(np.mean(returns), -12)  # At random -20.
    with self.assertRaisesRegex(ValueError, "in 'qbert'"):
      atari.Atari('qbert', seed=0).pong_action()

  @parameterized.parameters('asteroids', 'space_invaders')
  def test_observations_are_those_of_the_screen(self, game):
    environment = atari.Atari(game, seed=0)
    actions = _random_actions(18, 60)
    pictures = _pictures(_play(environment, actions))

    def resized(screen):
      return cv2.resize(screen, (84, 84), interpolation=cv2.INTER_AREA)

    ale = ale_py.ALEInterface()
    ale.setFloat('repeat_action_probability', 0.0)
    ale.loadROM(ale_py.roms.get_rom_path(game))

    def after_noops(num_noops):
      """The newest picture of every step, and if only the last frame counted."""
      ale.reset_game()
      for _ in range(num_noops):
        ale.act(_NOOP)
      last_frames = [resized(ale.getScreenGrayscale())]
      of_two_frames = last_frames[:]
      for action in actions:
        screens = []
        for _ in range(4):
          ale.act(int(action))
          screens.append(ale.getScreenGrayscale())
        of_two_frames.append(resized(np.maximum(*screens[2:])))
        last_frames.append(resized(screens[3]))
      return np.stack(of_two_frames), np.stack(last_frames)

    courses = [after_noops(num_noops) for num_noops in range(1, 31)]
    matching = [i for i, (of_two_frames, _) in enumerate(courses)
                if np.array_equal(of_two_frames, pictures[..., -1])]
    self.assertNotEmpty(matching)
    self.assertFalse(np.array_equal(*courses[matching[0]]))

  def test_episodes_begin_differently(self):
    environment = atari.Atari('freeway', seed=0)
    starts = {environment.reset().observation.tobytes() for _ in range(60)}
    self.assertBetween(len(starts), 10, 30)

  def test_rewards_are_clipped_and_returns_are_not(self):
    actions = _random_actions(18, 3000)
    courses = {}
    for max_reward in (None, 1.0, 7.5):
      environment = atari.Atari('space_invaders', max_reward=max_reward, seed=0)
      time_steps = _play(environment, actions)
      self.assertTrue(time_steps[-1].last())
      rewards = np.array([t.reward for t in time_steps[1:]])
      courses[max_reward] = rewards, environment.episode_return()
    scores, score = courses[None]
    self.assertGreater(scores.max(), 7.5)
    self.assertEqual(scores.sum(), score)
    for max_reward in (1.0, 7.5):
      rewards, episode_return = courses[max_reward]
      np.testing.assert_array_equal(rewards, np.minimum(scores, max_reward))
      self.assertEqual(episode_return, score)

  @parameterized.parameters((True, 4), (False, 0))
  def test_a_lost_life_has_discount_zero_if_asked_for(self, zero_discount, expected):
    environment = atari.Atari(
        'breakout', zero_discount_on_life_loss=zero_discount, seed=0)
    time_steps = _play(environment, [_FIRE] * 2000)
    self.assertTrue(time_steps[-1].last())
    self.assertEqual(time_steps[-1].discount, 0)
    discounts = [t.discount for t in time_steps[1:-1]]
    self.assertEqual(discounts.count(0), expected)
    self.assertEqual(discounts.count(1), len(discounts) - expected)

  def test_the_time_limit_cuts_the_episode_off(self):
    environment = atari.Atari('pong', max_frames=400, seed=0)
    lengths = set()
    for _ in range(20):
      time_steps = _play(environment, [_NOOP] * 200)
      self.assertTrue(time_steps[-1].last())
      self.assertEqual(time_steps[-1].discount, 1)
      lengths.add(len(time_steps) - 1)
    # 400 frames less 1 to 30 without action, 4 a step.
    self.assertGreater(len(lengths), 3)
    self.assertBetween(min(lengths), 93, 99)
    self.assertBetween(max(lengths), 97, 100)

  def test_sticky_actions_replace_those_of_the_agent(self):
    def pictures(sticky_probability, action):
      environment = atari.Atari(
          'pong', sticky_probability=sticky_probability, seed=0)
      return _pictures(_play(environment, [action] * 30))

    self.assertFalse(np.array_equal(pictures(0.0, _NOOP), pictures(0.0, _RIGHT)))
    np.testing.assert_array_equal(pictures(1.0, _NOOP), pictures(1.0, _RIGHT))


if __name__ == '__main__':
  absltest.main()
