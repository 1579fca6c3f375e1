"""Passive T-Maze: a clue at the start shows where to turn at the end of a corridor.

This is the variant of *RATE* (appendix, "T-Maze"), after Ni et al. (2023).
"""

from typing import Literal, Optional

import dm_env
from dm_env import specs
import numpy as np

from gtrxl_tf.environments import episodic
from gtrxl_tf.environments import rendering
from gtrxl_tf.settings import config

LEFT, UP, RIGHT, DOWN = range(4)


@config.configurable
class TMaze(episodic.MemoryTask):
  """A corridor of `corridor_length` steps to a junction, and one turn there.

  The agent starts at x = 0; the junction is at x = L = `corridor_length`. In the
  corridor `RIGHT` and `LEFT` move by one. `UP` and `DOWN` hit a wall, as does `LEFT` at
  x = 0: the agent stays where it is, and the step is spent. At the junction `UP` and
  `DOWN` turn and end the episode, with reward 1 and success if the turn is the one that
  the clue named, else 0; `RIGHT` hits a wall and `LEFT` goes back into the corridor.

  The episode also ends, without the turn's reward, after L + 2 steps. The shortest way
  takes L + 1, so one step may be lost. This limit is a rule of the task and not a
  convenience of training: either end has discount 0.

  Observations are float32 [4]:

    y: 0, and 1 or -1 after turning up or down.
    clue: 1 for up or -1 for down in the first observation; 0 in all others.
    flag: 1 whenever the agent is one step before the junction, at x = L - 1, else 0;
      or at the junction, see `flag` below.
    noise: -1, 0 or 1, drawn uniformly at every step.

  If the only reward is at the end, an agent that learns by trial rarely finds it in a
  long corridor. `penalty` guides it: every step that neither advances to the right nor
  turns has reward -penalty / L. (In Ni et al. every step behind the schedule of the
  shortest way has this reward, so that one lost step is charged many times.)

  >>> maze = TMaze(corridor_length=3, seed=0)
  >>> time_step = maze.reset()
  >>> while not time_step.last():
  ...   time_step = maze.step(maze.informed_action())
  >>> time_step.reward, time_step.discount, maze.episode_success()
  (1.0, 0.0, True)
  """
  action_names = 'left', 'up', 'right', 'down'

  def __init__(self,
               corridor_length: config.PositiveInt = 28,
               penalty: config.NonNegativeFloat = 0.0,
               min_corridor_length: Optional[config.PositiveInt] = None,
               flag: Literal['before', 'at'] = 'before',
               seed: Optional[config.NonNegativeInt] = None):
    """Creates the task.

    Args:
      corridor_length: L, the steps to the junction. The default gives episodes of 30
        steps at most, one segment of the paper's training data.
      penalty: cost of standing still for L steps. The paper has none, as it learns
        from recorded episodes; 1 suits online agents.
      min_corridor_length: if given, every episode draws its own L uniformly from
        `min_corridor_length` to `corridor_length`, which also sets its limit and
        penalty. RATE's later code does so, from 1; the code of the paper's time records
        corridors of exactly 28, 58 and 88 steps.
      flag: `before` raises the flag one step before the junction, where the paper's
        text has it; `at`, at the junction itself, as its published code does.
      seed: seeds the clues, the noise, and the lengths that are drawn.
    """
    if min_corridor_length is not None and min_corridor_length > corridor_length:
      raise config.ConfigError(
          f'TMaze.min_corridor_length = {min_corridor_length}: expected at most '
          f'corridor_length = {corridor_length}')
    super().__init__(num_actions=4, seed=seed)
    self._min_length = min_corridor_length
    self._max_length = corridor_length
    self._penalty = penalty
    self._flag_distance = 1 if flag == 'before' else 0
    self._reset()  # Every attribute of an episode exists from here on.

  def informed_action(self) -> int:
    """Returns the action that goes to the junction and turns there as the clue said."""
    if self._x < self._length:
      return RIGHT
    return UP if self._clue == 1 else DOWN

  def persistent_action(self) -> int:
    """Returns the action of an agent that always turns up (RATE, Figure 4)."""
    return RIGHT if self._x < self._length else UP

  def render(self) -> np.ndarray:
    """Returns a picture, uint8 [H, W, 3]; the correct end is always green."""
    cells = {(row, column): rendering.WALL for row in (0, 2) for column in range(self._length)}
    cells[1 - self._clue, self._length] = rendering.GOAL
    return rendering.draw_grid(
        3, self._length + 1, cells, (1 - self._y, self._x),
        max(4, min(24, 640 // (self._length + 1))))

  def observation_spec(self) -> specs.BoundedArray:
    return specs.BoundedArray([4], np.float32, [-1, -1, 0, -1], [1, 1, 1, 1], 'y_clue_flag_noise')

  def _reset(self) -> dm_env.TimeStep:
    self._length = self._max_length
    if self._min_length is not None:
      self._length = int(self._rng.integers(self._min_length, self._max_length + 1))
    self._clue = 2 * int(self._rng.integers(2)) - 1
    self._noise = self._rng.integers(-1, 2, size=self._length + 3).tolist()
    self._x = self._y = self._num_steps = 0
    self._success = False
    return dm_env.restart(self._observation(self._clue))

  def _step(self, action: int) -> dm_env.TimeStep:
    self._num_steps += 1
    reward = 0.0
    turns = self._x == self._length and action in (UP, DOWN)
    if turns:
      self._y = 1 if action == UP else -1
      self._success = self._y == self._clue
      reward = float(self._success)
    elif action == RIGHT and self._x < self._length:
      self._x += 1
    else:
      self._x -= action == LEFT and self._x > 0
      reward = 0.0 - self._penalty / self._length
    last = turns or self._num_steps == self._length + 2
    return episodic.later_step(reward, self._observation(clue=0), last)

  def _observation(self, clue: int) -> np.ndarray:
    flag = self._y == 0 and self._x == self._length - self._flag_distance
    return np.array([self._y, clue, flag, self._noise[self._num_steps]], np.float32)
