"""Tests of the steering in vizdoom_two_colors.py."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from gtrxl_tf.environments import vizdoom_two_colors
from gtrxl_tf.environments.vizdoom_two_colors import FORWARD
from gtrxl_tf.environments.vizdoom_two_colors import FORWARD_LEFT
from gtrxl_tf.environments.vizdoom_two_colors import FORWARD_RIGHT
from gtrxl_tf.environments.vizdoom_two_colors import LEFT
from gtrxl_tf.environments.vizdoom_two_colors import RIGHT

_NORTH = np.pi / 2


def _drive(target, avoided, agent=(0, 0), heading=_NORTH, num_tics=400):
  """The places on the way from `agent` to `target`, by the simplest motion."""
  place, target = np.array(agent, float), np.array(target, float)
  avoided = [np.array(other, float) for other in avoided]
  velocity, action = np.zeros(2), None
  places = [place]
  for tic in range(num_tics):
    if tic % 2 == 0:
      action = vizdoom_two_colors.steer(
          place, velocity, heading, target, avoided, action)
      left, right, go = vizdoom_two_colors.BUTTONS[action]
    heading += (left - right) * np.radians(3.5)
    velocity = velocity + go * 0.78 * np.array([np.cos(heading), np.sin(heading)])
    place = place + velocity
    velocity = 0.906 * velocity
    places.append(place)
    if np.max(np.abs(place - target)) < 36:
      break
  return np.array(places)


class BearingTest(parameterized.TestCase):

  @parameterized.parameters(
      ((0, 5), 0), ((-5, 0), np.pi / 2), ((5, 0), -np.pi / 2), ((3, 3), -np.pi / 4),
      ((0, -5), -np.pi))
  def test_is_the_angle_to_the_left(self, place, expected):
    angle = vizdoom_two_colors.bearing(np.zeros(2), _NORTH, np.array(place))
    self.assertAlmostEqual(angle, expected)


class SteerTest(parameterized.TestCase):

  @parameterized.parameters(
      ((0, 300), {FORWARD}), ((-300, 300), {LEFT, FORWARD_LEFT}),
      ((300, 300), {RIGHT, FORWARD_RIGHT}))
  def test_sets_off_towards_the_target(self, target, expected):
    action = vizdoom_two_colors.steer(
        np.zeros(2), np.zeros(2), _NORTH, np.array(target), [])
    self.assertIn(action, expected)

  @parameterized.parameters(
      ((0, 300),), ((250, 100),), ((-90, 10),), ((20, -400),), ((-480, -480),))
  def test_reaches_the_target(self, target):
    places = _drive(target, [])
    self.assertLess(np.max(np.abs(places[-1] - target)), 36)
    self.assertLess(len(places), 200)

  @parameterized.parameters(
      ((0, 400), [(0, 200)]), ((0, 400), [(10, 150), (-60, 150)]),
      ((300, 400), [(150, 240), (240, 240)]))
  def test_goes_round_what_it_should_avoid(self, target, avoided):
    places = _drive(target, avoided)
    self.assertLess(np.max(np.abs(places[-1] - target)), 36)
    for other in avoided:
      self.assertGreaterEqual(np.min(np.max(np.abs(places - other), axis=1)), 36)
    straight = _drive(target, [])
    self.assertLess(np.min(np.max(np.abs(straight - avoided[0]), axis=1)), 36)

  def test_does_not_undo_a_turn_on_the_spot(self):
    ahead = np.zeros(2), np.zeros(2), _NORTH, np.array([-50, 300]), []
    self.assertIn(vizdoom_two_colors.steer(*ahead), (LEFT, FORWARD_LEFT))
    self.assertNotEqual(vizdoom_two_colors.steer(*ahead, RIGHT), LEFT)
    behind = np.zeros(2), np.zeros(2), _NORTH, np.array([-10, -300]), []
    self.assertEqual(vizdoom_two_colors.steer(*behind), LEFT)
    self.assertEqual(vizdoom_two_colors.steer(*behind, LEFT), LEFT)
    self.assertNotEqual(vizdoom_two_colors.steer(*behind, RIGHT), LEFT)

  def test_what_lies_behind_the_target_does_not_matter(self):
    np.testing.assert_array_equal(
        _drive((0, 200), [(0, 300)]), _drive((0, 200), []))


if __name__ == '__main__':
  absltest.main()
