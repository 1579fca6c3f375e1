"""Apple maze, the "Memory Maze" of *GTrXL*: find an apple, then find it again.

Section 4.3.2, figure 8 and table 7 of the paper describe it in a few sentences; its
code was not published. The docstrings below say how open details are decided here.
"""

import math
import operator
from typing import Annotated, Literal, Optional

import dm_env
from dm_env import specs
import numpy as np

from gtrxl_tf.environments import episodic
from gtrxl_tf.environments import maze_room
from gtrxl_tf.settings import config

# The rows of Table 7 in order, which is also the order in the array 'continuous';
# 'grip' is separate.
CONTINUOUS_ACTIONS = (
    ('LOOK_LEFT_RIGHT', 1.0),
    ('LOOK_DOWN_UP', 1.0),
    ('STRAFE_LEFT_RIGHT', 1.0),
    ('MOVE_BACK_FORWARD', 1.0),
    ('HAND_ROTATE_AROUND_RIGHT', 1.0),
    ('HAND_ROTATE_AROUND_UP', 1.0),
    ('HAND_ROTATE_AROUND_FORWARD', 1.0),
    ('HAND_PUSH_PULL', 10.0))
_BOUNDS = np.array([bound for _, bound in CONTINUOUS_ACTIONS], np.float32)

ACTION_REPEATS = 4  # Table 8.

# The effect of an action of 1 in a frame. The agent is fast: otherwise a random agent
# would hardly ever find the apple.
_STEP = 0.1                      # Cells.
_TURN = math.radians(6)
_HAND_STEP = 0.005               # Cells; 10 times as much at the bound.

_MAX_PITCH = math.radians(60)
_MAX_HAND_TURN = math.radians(90)
_MAX_HAND_STRETCH = 0.3          # Cells.
_APPLE_RADIUS = 0.25
_REACH = _APPLE_RADIUS + maze_room.AGENT_RADIUS

_NUM_RAYS = 13
_RAY_ANGLES = np.linspace(0.5, -0.5, _NUM_RAYS) * maze_room.FIELD_OF_VIEW


@config.configurable
class AppleMaze(episodic.MemoryTask):
  """A room with blocks, landmarks on its walls, and an apple among the blocks.

  Touching the apple collects it: the agent gets reward 1 and is teleported to a random
  place, while the apple reappears where it was. Blocks hide the apple, which stays in
  one place for the episode and lies elsewhere in the next. An agent that remembers
  where the apple was, and knows the room by its landmarks, returns to it at once;
  others must search each time. Room and landmarks are the same in all episodes
  (`maze_room.Room` has the plan): the paper's figure shows one room and does not say
  whether there were others.

  An episode lasts `episode_length` steps and ends with discount 0: the next episode
  hides the apple elsewhere, so a value should count nothing beyond the end.

  An action is {'continuous': float32 [8], 'grip': 0 or 1}, the hybrid set of table 7,
  and is repeated for 4 frames. Values out of bounds are clipped. As the names say,
  negative means left, down, back and push. Only the first three rows of the table
  affect the reward. The paper says that the apple is collected, but not that this takes
  the hand, so here the hand is visible and does nothing.

  | action                     | acts on                                       |
  |----------------------------|-----------------------------------------------|
  | LOOK_LEFT_RIGHT            | heading, 6 degrees a frame                    |
  | STRAFE_LEFT_RIGHT          | place, 0.1 cells a frame                      |
  | MOVE_BACK_FORWARD          | place; both together are no faster than one   |
  | LOOK_DOWN_UP               | the view's pitch, 6 degrees a frame to +-60   |
  | HAND_ROTATE_AROUND_RIGHT   | the hand's turn, 6 degrees a frame to +-90    |
  | HAND_ROTATE_AROUND_UP      | the same, around another axis                 |
  | HAND_ROTATE_AROUND_FORWARD | the same, around another axis                 |
  | HAND_PUSH_PULL             | the hand's distance, 0.05 cells a frame at 10 |
  | HAND_GRIP                  | the hand's fingers, open for 0, closed for 1  |

  Observations, by `observation`:

    image, for 'pixels': uint8 [72, 96, 3], what the agent sees over 90 degrees, with
      its hand. MuJoCo only draws it; the agent is moved without physics.
    state, for 'state': float32 [13 * (2 + num_landmarks)], 13 level rays over the same
      90 degrees from left to right. Each ray has the distance to the object that it
      meets, as a share of the room's diagonal; 1 if it meets the apple; and the
      landmark that it meets, one-hot. LOOK_DOWN_UP and all actions of the hand do
      nothing here.

  Neither contains the agent's place or heading.
  """

  def __init__(self,
               size: Literal[5, 7, 9, 11, 13, 15] = 7,
               num_landmarks: Annotated[int, config.Range(0, 8)] = 4,
               episode_length: config.PositiveInt = 500,
               observation: Literal['pixels', 'state'] = 'pixels',
               seed: Optional[config.NonNegativeInt] = None):
    """Creates the task. The paper gives none of these numbers.

    Args:
      size: cells along each side. An agent that turns round sees the apple from three
        quarters of all places in size 5, which needs little memory, from a third in 7,
        a quarter in 9 and an eighth in 15.
      num_landmarks: number of wall cells with a distinct colour. 4 puts one on each
        side; with 0, the sides look the same.
      episode_length: steps, of 4 frames each. With the default, an agent that knows the
        place collects about 43 apples, and a random agent 0.4.
      observation: 'pixels', which needs dm_control, or 'state'; see above.
      seed: seeds the apple's and the agent's places.
    """
    super().__init__(num_actions=None, seed=seed)
    self._room = maze_room.Room(size, num_landmarks)
    self._episode_length = episode_length
    self._scene = None
    if observation == 'pixels':
      self._scene = maze_room.Scene(self._room, _APPLE_RADIUS, 'AppleMaze')
    self._begin_episode()  # Every attribute of an episode exists from here on.

  def episode_success(self) -> bool:
    """Returns whether the apple was found again at least once."""
    return self._num_collected >= 2

  def informed_action(self) -> dict[str, np.ndarray]:
    """Returns an action on a short way to the apple, given the apple's place.

    The policy walks from cell to cell, sideways if need be, and does not turn. It cuts
    no corners, so it is good but not optimal.
    """
    cell = int(self._x), int(self._y)
    if cell == self._apple_cell:
      target_x, target_y = self._apple
    else:
      cell = min((c for c in maze_room.neighbours(*cell) if c in self._steps_to_apple),
                 key=self._steps_to_apple.get)
      target_x, target_y = cell[0] + 0.5, cell[1] + 0.5
    angle = math.atan2(target_y - self._y, target_x - self._x) - self._heading
    continuous = np.zeros(len(_BOUNDS), np.float32)
    continuous[2:4] = -math.sin(angle), math.cos(angle)
    return {'continuous': continuous, 'grip': np.array(0, np.int32)}

  def observation_spec(self) -> dict[str, specs.BoundedArray]:
    if self._scene:
      return {'image': specs.BoundedArray(
          [maze_room.HEIGHT, maze_room.WIDTH, 3], np.uint8, 0, 255, 'image')}
    size = _NUM_RAYS * (2 + self._room.num_landmarks)
    return {'state': specs.BoundedArray([size], np.float32, 0, 1, 'state')}

  def action_spec(self) -> dict[str, specs.Array]:
    return {
        'continuous': specs.BoundedArray(
            _BOUNDS.shape, np.float32, -_BOUNDS, _BOUNDS, 'continuous'),
        'grip': specs.DiscreteArray(2, name='grip'),
    }

  def close(self) -> None:
    if self._scene:
      self._scene.close()

  def _checked(self, action) -> tuple[list[float], int]:
    """Returns the continuous actions, clipped to their bounds, and the grip."""
    continuous = np.asarray(action['continuous'], np.float32)
    if continuous.shape != _BOUNDS.shape or not np.isfinite(continuous).all():
      raise ValueError(f"action['continuous'] = {continuous}: "
                       f'expected {len(_BOUNDS)} finite numbers')
    grip = operator.index(action['grip'])
    if grip not in (0, 1):
      raise ValueError(f"action['grip'] = {grip}: expected 0 or 1")
    return np.clip(continuous, -_BOUNDS, _BOUNDS).tolist(), grip

  def _reset(self) -> dm_env.TimeStep:
    self._begin_episode()
    return dm_env.restart(self._observation())

  def _step(self, action: tuple[list[float], int]) -> dm_env.TimeStep:
    (look_right, look_up, right, forward, *hand), grip = action
    self._pitch = _within(self._pitch + ACTION_REPEATS * _TURN * look_up, -_MAX_PITCH, _MAX_PITCH)
    *turns, pull = hand
    *turned, stretch, _ = self._hand
    self._hand = [
        *(_within(old + ACTION_REPEATS * _TURN * turn, -_MAX_HAND_TURN, _MAX_HAND_TURN)
          for old, turn in zip(turned, turns)),
        _within(stretch - ACTION_REPEATS * _HAND_STEP * pull, 0.0, _MAX_HAND_STRETCH),
        grip]

    speed = _STEP / max(1.0, math.hypot(right, forward))
    reward = 0.0
    for _ in range(ACTION_REPEATS):
      self._heading -= _TURN * look_right
      east, north = math.cos(self._heading), math.sin(self._heading)
      self._x, self._y = self._room.walk(
          self._x, self._y, speed * (forward * east + right * north),
          speed * (forward * north - right * east))
      if math.hypot(self._x - self._apple[0], self._y - self._apple[1]) < _REACH:
        reward += 1.0
        self._teleport()
    self._num_collected += int(reward)
    self._num_steps += 1
    return episodic.later_step(
        reward, self._observation(), self._num_steps == self._episode_length)

  def _begin_episode(self) -> None:
    cells = self._room.apple_cells
    self._apple_cell = cells[self._rng.integers(len(cells))]
    self._apple = self._apple_cell[0] + 0.5, self._apple_cell[1] + 0.5
    self._steps_to_apple = self._room.steps_to(self._apple_cell)
    self._pitch = 0.0
    self._hand = [0.0, 0.0, 0.0, 0.0, 0]
    self._num_steps = 0
    self._num_collected = 0
    self._teleport()

  def _teleport(self) -> None:
    """Puts the agent into the middle of a cell without the apple, facing anywhere."""
    cell = self._apple_cell
    while cell == self._apple_cell:
      cell = self._room.cells[self._rng.integers(len(self._room.cells))]
    self._x, self._y = cell[0] + 0.5, cell[1] + 0.5
    self._heading = self._rng.uniform(-math.pi, math.pi)

  def _observation(self) -> dict[str, np.ndarray]:
    if self._scene:
      return {'image': self._scene.image(
          [self._x, self._y, self._heading, self._pitch, *self._hand], self._apple)}
    angles = self._heading + _RAY_ANGLES
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    distances, landmarks = self._room.look(self._x, self._y, directions)
    to_apple = maze_room.distances_to_circle(
        self._apple[0] - self._x, self._apple[1] - self._y, _APPLE_RADIUS, directions)
    state = np.zeros([_NUM_RAYS, 2 + self._room.num_landmarks], np.float32)
    state[:, 0] = np.minimum(distances, to_apple) / (math.sqrt(2) * self._room.size)
    apples = to_apple < distances
    state[:, 1] = apples
    coloured = np.flatnonzero((landmarks >= 0) & ~apples)
    state[coloured, 2 + landmarks[coloured]] = 1
    return {'state': state.ravel()}


def _within(value: float, low: float, high: float) -> float:
  return min(max(value, low), high)
