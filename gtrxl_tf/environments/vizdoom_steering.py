"""Steering in ViZDoom-Two-Colors: to an item, past others."""

from typing import Optional, Sequence

import numpy as np

from gtrxl_tf.environments import vizdoom_scenario

# The actions, and which of the buttons turn left, turn right, go forward they press.
LEFT, RIGHT, FORWARD, FORWARD_LEFT, FORWARD_RIGHT = range(5)
BUTTONS = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 1]]

# The agent's motion, measured: what a tic of going forward adds to its speed, which
# part of its speed is left after a tic, and how far it turns in one.
_THRUST, _FRICTION, _TURN = 0.78, 0.906, np.radians(3.5)
_SPEED = _THRUST / (1 - _FRICTION)  # Once it is under way.
_RADIUS = 16  # Of its body, which walls stop.

# It touches an item when both coordinates are nearer than this. The margin is for what
# the motion model leaves out.
_TOUCH, _MARGIN = 36, 6
# Of touching what is to be avoided, in map units for each tic.
_TOUCH_COST = 100

# The plans: an action for 8 or 20 tics, and another for the rest. [plans, tics].
_TICS = 48
_PLANS = np.array([[first] * tics + [second] * (_TICS - tics)
                   for tics in (8, 20) for first in range(5) for second in range(5)])
_FARTHEST = _SPEED * _TICS + _TOUCH + _MARGIN


def bearing(agent: np.ndarray, heading, place: np.ndarray):
  """The angle from where the agent looks to `place`, to the left, in [-pi, pi).

  Args:
    agent: [..., 2], its place.
    heading: [...], in radians.
    place: [2].
  """
  x, y = np.moveaxis(place - agent, -1, 0)
  return (np.arctan2(y, x) - heading + np.pi) % (2 * np.pi) - np.pi


def steer(agent: np.ndarray, velocity: np.ndarray, heading: float,
          target: np.ndarray, avoided: Sequence[np.ndarray],
          last_action: Optional[int] = None) -> int:
  """The first action of the plan that leads best to `target` and past `avoided`.

  Args:
    agent: [2], its place.
    velocity: [2], in a tic.
    heading: in radians.
    target: [2].
    avoided: places, [2] each.
    last_action: what this function gave in the step before. A turn on the spot is not
      taken back at once, or an agent among things to avoid might turn to and fro for
      ever.
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
  # A turn costs as much as the way that could be gone in the time. Where a plan ends
  # counts as much as the way there: with the end alone, what can be put off would be
  # put off again at each step; with the way alone, no detour would be worth it.
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
  """Whether `place` is within `reach` of each point of `paths`, in both coordinates."""
  return np.all(np.abs(paths - place) < reach, axis=-1)
