"""Tests for minigrid_memory."""


from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from gtrxl_tf.environments import minigrid_memory
from gtrxl_tf.environments.minigrid_memory import DONE
from gtrxl_tf.environments.minigrid_memory import DROP
from gtrxl_tf.environments.minigrid_memory import FORWARD
from gtrxl_tf.environments.minigrid_memory import LEFT
from gtrxl_tf.environments.minigrid_memory import PICKUP
from gtrxl_tf.environments.minigrid_memory import RIGHT
from gtrxl_tf.environments.minigrid_memory import TOGGLE
from gtrxl_tf.settings import config

_KEY_AND_BALL = (5, 6)  # As the package numbers them.


def _play(environment, policy):
  """The time steps and the actions of a new episode."""
  time_steps, actions = [environment.reset()], []
  while not time_steps[-1].last():
    actions.append(policy())
    time_steps.append(environment.step(actions[-1]))
  return time_steps, actions


def _image(time_step):
  return time_step.observation['image']


def _depends_on_observations_only(environment, policy, num_episodes):
  """Whether equal courses of observations are always followed by equal actions."""
  known = {}
  for _ in range(num_episodes):
    time_steps, actions = _play(environment, policy)
    history = b''
    for time_step, action in zip(time_steps, actions):
      history += b''.join(time_step.observation[name].tobytes()
                          for name in sorted(time_step.observation))
      if known.setdefault(history, action) != action:
        return False
  return True


class MinigridMemoryTest(parameterized.TestCase):

  @parameterized.product(
      size=(7, 9, 11, 13, 17, 31, 91), pixels=(False, True),
      policy=('informed_action', 'looking_action'))
  def test_the_scripted_policies_always_succeed(self, size, pixels, policy):
    environment = minigrid_memory.MinigridMemory(size, pixels, seed=0)
    for _ in range(3 if size == 91 else 10):
      time_steps, actions = _play(environment, getattr(environment, policy))
      self.assertTrue(environment.episode_success())
      self.assertEqual(time_steps[-1].discount, 0)
      self.assertEqual([t.reward for t in time_steps[1:-1]], [0] * (len(actions) - 1))
      self.assertAlmostEqual(
          time_steps[-1].reward, 1 - 0.9 * len(actions) / (5 * size**2))

  def test_it_draws_the_whole_grid(self):
    environment = minigrid_memory.MinigridMemory(size=7, seed=0)
    environment.reset()
    before = environment.render()
    self.assertEqual((before.shape, before.dtype), ((112, 112, 3), np.uint8))
    environment.step(LEFT)
    self.assertTrue(np.any(environment.render() != before))

  @parameterized.parameters(False, True)
  def test_the_looking_agent_knows_only_what_it_has_seen(self, pixels):
    environment = minigrid_memory.MinigridMemory(9, pixels, seed=0)
    self.assertTrue(_depends_on_observations_only(
        environment, environment.looking_action, 200))
    self.assertFalse(_depends_on_observations_only(
        environment, environment.informed_action, 200))

  def test_the_looking_agent_takes_over_from_any_other(self):
    environment = minigrid_memory.MinigridMemory(11, max_steps=10_000, seed=0)
    random = np.random.default_rng(0)
    num_episodes = 0
    while num_episodes < 30:
      time_step = environment.reset()
      for action in random.integers(3, size=30):
        if not time_step.last():
          time_step = environment.step(action)
      if time_step.last():
        continue
      for _ in range(40):
        if not time_step.last():
          time_step = environment.step(environment.looking_action())
      self.assertTrue(time_step.last() and environment.episode_success())
      num_episodes += 1

  def test_the_wrong_end_earns_nothing(self):
    environment = minigrid_memory.MinigridMemory(seed=0)
    for _ in range(10):
      environment.reset()
      while (action := environment.informed_action()) == FORWARD:
        environment.step(action)
      environment.step({LEFT: RIGHT, RIGHT: LEFT}[action])
      time_step = environment.step(FORWARD)
      self.assertTrue(time_step.last())
      self.assertEqual((time_step.reward, time_step.discount), (0, 0))
      self.assertFalse(environment.episode_success())

  @parameterized.parameters((11, None, 605), (13, None, 845), (13, 95, 95))
  def test_the_time_limit_cuts_the_episode_off(self, size, max_steps, expected):
    environment = minigrid_memory.MinigridMemory(size, max_steps=max_steps, seed=0)
    time_steps, actions = _play(environment, lambda: LEFT)
    self.assertLen(actions, expected)
    self.assertEqual((time_steps[-1].reward, time_steps[-1].discount), (0, 1))
    self.assertFalse(environment.episode_success())

  def test_success_in_the_last_step_of_the_limit_is_success(self):
    environment = minigrid_memory.MinigridMemory(seed=0)
    _, actions = _play(environment, environment.informed_action)
    environment = minigrid_memory.MinigridMemory(max_steps=len(actions), seed=0)
    time_steps, _ = _play(environment, environment.informed_action)
    self.assertAlmostEqual(time_steps[-1].reward, 0.1)
    self.assertEqual(time_steps[-1].discount, 0)
    self.assertTrue(environment.episode_success())

  def test_four_actions_do_nothing(self):
    environment = minigrid_memory.MinigridMemory(7, seed=0)
    for _ in range(10):
      time_step = environment.reset()
      while not time_step.last():
        before = time_step
        for action in (PICKUP, DROP, TOGGLE, DONE):
          time_step = environment.step(action)
          np.testing.assert_array_equal(_image(time_step), _image(before))
        time_step = environment.step(environment.looking_action())

  def test_the_picture_shows_three_cells_in_front_of_the_agent(self):
    environment = minigrid_memory.MinigridMemory(pixels=True, seed=0)
    time_step = environment.reset()
    self.assertEqual(list(time_step.observation), ['image'])
    image = _image(time_step)
    self.assertEqual((image.shape, image.dtype), ((84, 84, 3), np.uint8))
    red = (image[..., 0] > 200) & (image[..., 1] < 150)
    rows, columns = np.nonzero(red)
    self.assertBetween(rows.min(), 56, 83)
    self.assertBetween(columns.min(), 28, 55)
    self.assertBetween(columns.max(), 28, 55)

  @parameterized.parameters(
      (dict(view=3), (3, 3, 3), 10), (dict(view=5), (5, 5, 3), 10),
      (dict(pixels=True, view=5), (140, 140, 3), 255))
  def test_the_image_may_be_of_another_size(self, settings, shape, most):
    environment = minigrid_memory.MinigridMemory(9, seed=0, **settings)
    time_steps, _ = _play(environment, environment.looking_action)
    self.assertTrue(environment.episode_success())
    for time_step in time_steps:
      environment.observation_spec()['image'].validate(_image(time_step))
      self.assertEqual(_image(time_step).shape, shape)
    self.assertLessEqual(max(_image(t).max() for t in time_steps), most)

  @parameterized.parameters(
      (dict(size=12), 'MinigridMemory.size = 12: expected an odd integer >= 7'),
      (dict(size=5), 'MinigridMemory.size = 5: expected an odd integer >= 7'),
      (dict(view=4), 'MinigridMemory.view = 4: expected an odd integer >= 3'))
  def test_refuses_settings(self, settings, message):
    with self.assertRaisesRegex(config.ConfigError, message):
      minigrid_memory.MinigridMemory(**settings)


if __name__ == '__main__':
  absltest.main()
