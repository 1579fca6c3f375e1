"""Steers an agent in ViZDoom-Two-Colors to an item, around others."""

from typing import Optional, Sequence

import numpy as np

from gtrxl_tf.environments import vizdoom_scenario

# The actions, and for each which buttons it presses: turn left, turn right, forward.
LEFT, RIGHT, FORWARD, FORWARD_LEFT, FORWARD_RIGHT = range(5)
ACTION_NAMES = 'left', 'right', 'forward', 'forward_left', 'forward_right'
BUTTONS = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 1]]

# The agent's motion, measured: the speed that a tic of going forward adds, the share of
# its speed that is left after a tic, and the angle by which it turns in one.
_THRUST, _FRICTION, _TURN = 0.78, 0.906, np.radians(3.5)
_SPEED = _THRUST / (1 - _FRICTION)  # The limit, going forward.
_RADIUS = 16  # The agent's; walls stop it at this distance.

# The agent touches an item when both coordinates are nearer than this. The margin
# allows for errors of the motion model.
_TOUCH, _MARGIN = 36, 6
_TOUCH_COST = 100  # Map units, for each tic of touching something to be avoided.

# The plans: an action for 8 or 20 tics, and another for the rest. [plans, tics].
_TICS = 48
_PLANS = np.array([[first] * tics + [second] * (_TICS - tics)
                   for tics in (8, 20) for first in range(5) for second in range(5)])
_FARTHEST = _SPEED * _TICS + _TOUCH + _MARGIN


def bearing(agent: np.ndarray, heading: np.ndarray, place: np.ndarray) -> np.ndarray:
  """Returns the angle, to the left, from agents' headings to a place.

  Args:
    agent: [..., 2].
    heading: [...], in radians.
    place: [2].

  Returns:
    [...], radians in [-pi, pi).
  """
  x, y = np.moveaxis(place - agent, -1, 0)
  return (np.arctan2(y, x) - heading + np.pi) % (2 * np.pi) - np.pi


def steer(agent: np.ndarray, velocity: np.ndarray, heading: float,
          target: np.ndarray, avoided: Sequence[np.ndarray],
          last_action: Optional[int] = None) -> int:
  """Returns the first action of the best plan to reach `target` and avoid others.

  Args:
    agent: [2], the agent's place.
    velocity: [2], map units in a tic.
    heading: in radians.
    target: [2], the target's place.
    avoided: the places of the others, [2] each.
    last_action: what this function returned in the step before. A turn on the spot is
      not undone at once: an agent among things to avoid might turn back and forth
      forever.
  """
  left, right, go = np.moveaxis(np.array(BUTTONS)[_PLANS], -1, 0)  # [plans, tics].
  headings = heading + _TURN * np.cumsum(left - right, axis=1)
  thrusts = _THRUST * go[..., None] * np.stack(
      [np.cos(headings), np.sin(headings)], axis=-1)
  paths = np.empty_like(thrusts)  # [plans, tics, 2].
  place = agent
  for tic in range(_TICS):
    velocity = velocity + thrusts[:, tic]
    place = np.clip(place + velocity, vizdoom_scenario.LOW + _RADIUS,
                    vizdoom_scenario.HIGH - _RADIUS)
    paths[:, tic] = place
    velocity = _FRICTION * velocity

  on_the_way = np.cumsum(_touches(paths, target, _TOUCH), axis=1) == 0
  # A turn costs as much as the distance that could be covered in the time. The end of a
  # plan counts as much as the way there: with the end alone, the agent could delay
  # forever; with the way alone, it would never make a detour.
  left_over = (np.linalg.norm(target - paths, axis=-1)
               + _SPEED / _TURN * np.abs(bearing(paths, headings, target)))
  left_over *= on_the_way
  cost = np.mean(left_over, axis=1) + left_over[:, -1]
  for other in avoided:
    if np.max(np.abs(other - agent)) < _FARTHEST:
      touches = on_the_way & _touches(paths, other, _TOUCH + _MARGIN)
      cost += _TOUCH_COST * np.sum(touches, axis=1)
  if last_action in (LEFT, RIGHT):
    other_turn = RIGHT if last_action == LEFT else LEFT
    cost[_PLANS[:, 0] == other_turn] = np.inf
  return int(_PLANS[np.argmin(cost), 0])


def _touches(paths: np.ndarray, place: np.ndarray, reach: float) -> np.ndarray:
  """Returns whether points of `paths` are within `reach` in both coordinates."""
  return np.all(np.abs(paths - place) < reach, axis=-1)
