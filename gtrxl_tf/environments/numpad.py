"""Numpad: find a hidden sequence of pads by trial, then repeat it from memory.

In *GTrXL* (section 4.2, appendix A) a simulated ball rolls over the pads (Humplik et
al., 2019): that is `NumpadMujoco`. In `Numpad` the ball is a token on the grid of pads
and a press is one move; the rules of the sequence are the same.
"""

# pylint: disable=protected-access

import abc
from typing import Annotated, Optional, Sequence

import dm_env
from dm_env import specs
import numpy as np

from gtrxl_tf import config
from gtrxl_tf.environments import memory_task
from gtrxl_tf.environments import rendering

_NUM_ACTIONS = 9

# Moves drawn per pad when a sequence is mixed, see `_draw_sequence`.
_MIXING_MOVES_PER_PAD = 25


class HiddenSequence(memory_task.MemoryTask):
  """The rules of the sequence, which do not depend on how pads are pressed.

  Each episode hides a sequence over all pads: every pad occurs once and is a neighbour
  of the pad before it (Moore neighbourhood). Pressing the next pad in the sequence
  lights it. Any other press, also of a lit pad, clears all lit pads, and the sequence
  must be pressed from its beginning again. Lighting a pad gives reward 1, but only
  once: pads that were lit before the lights were cleared give nothing when lit again.
  The last pad completes the sequence: all lights go out, and every pad gives its reward
  again.

  An episode lasts `episode_length` steps and ends with discount 0: the next episode
  hides another sequence, so a value should count nothing beyond the end. The agent sees
  no clock and cannot know how near the end is; to it, the end is a small chance of
  stopping at any step.

  Pads are counted row by row. A subclass implements `_begin`, and `_step`, which calls
  `_press` for a pad that the agent presses and returns `_time_step`.
  """

  def __init__(self, size: int, episode_length: int, seed: Optional[int],
               num_actions: Optional[int] = None):
    """Creates the task; `MemoryTask` explains `num_actions`."""
    super().__init__(num_actions=num_actions, seed=seed)
    self._size = size
    self._num_pads = size**2
    self._episode_length = episode_length
    self._destinations = destinations(size)
    self._rewards = memory_task.constant_rows([[0.], [1.]])

  @property
  def sequence(self) -> tuple[int, ...]:
    """The hidden sequence of the current episode, as pad numbers."""
    return tuple(self._sequence)

  def episode_success(self) -> bool:
    """Whether the sequence was completed at least once.

    Success means that the agent found the sequence. How well it remembered the sequence
    afterwards shows in the return.
    """
    return self._completed

  @abc.abstractmethod
  def _begin(self) -> dict[str, np.ndarray]:
    """Puts the agent where it starts; returns the first observation."""

  def _reset(self) -> dm_env.TimeStep:
    self._sequence = self._draw_sequence()
    lights = np.empty([self._num_pads, self._num_pads])
    lights[:, self._sequence] = np.tri(self._num_pads, k=-1)
    self._lights = memory_task.constant_rows(lights)  # By the number of lit pads.
    self._num_lit = 0
    self._num_rewarded = 0  # In the current repetition of the sequence.
    self._num_steps = 0
    self._completed = False
    return dm_env.restart(self._begin())

  def _time_step(self, reward: int, observation: dict[str, np.ndarray]
                 ) -> dm_env.TimeStep:
    """Counts the step and returns its time step."""
    self._num_steps += 1
    if self._num_steps == self._episode_length:
      return dm_env.termination(float(reward), observation)
    return dm_env.transition(float(reward), observation)

  def _press(self, pad: int) -> int:
    """Lights `pad` or clears all lit pads; returns the reward."""
    if pad != self._sequence[self._num_lit]:
      self._num_lit = 0
      return 0
    self._num_lit += 1
    if self._num_lit <= self._num_rewarded:
      return 0
    self._num_rewarded = self._num_lit
    if self._num_lit == self._num_pads:
      self._num_lit = self._num_rewarded = 0
      self._completed = True
    return 1

  def _draw_sequence(self) -> list[int]:
    """Draws a sequence over all pads, almost uniformly among those allowed.

    This is a random walk over sequences by the "backbite" move of polymer physics: join
    the last pad to one of its neighbours, drawn at random, cut the link that would
    close a loop, and reverse the part after the cut. As a coin decides whether the
    sequence is reversed before each move, a move is as likely as its inverse, so the
    walk tends to the uniform distribution from any start. For sizes 2, 3 and 4 the
    distance from uniform (total variation, computed over all 24, 784 and 343184
    sequences) is below 0.001 after the number of moves made here; larger sizes are
    mixed in the same way but were not measured.
    """
    rows = np.arange(self._num_pads).reshape(self._size, self._size)
    rows[1::2] = rows[1::2, ::-1]
    sequence = rows.ravel().tolist()
    draws = self._rng.integers(
        2 * _NUM_ACTIONS, size=_MIXING_MOVES_PER_PAD * self._num_pads)
    for draw in draws.tolist():
      direction, reverse = divmod(draw, 2)
      if reverse:
        sequence.reverse()
      # A direction out of the grid leads to the last pad itself: nothing changes.
      neighbour = self._destinations[sequence[-1]][direction]
      cut = sequence.index(neighbour) + 1
      sequence[cut:] = sequence[cut:][::-1]
    return sequence


@config.configurable
class Numpad(HiddenSequence):
  """The Numpad on a grid of `size` x `size` pads; for the rules see `HiddenSequence`.

  The agent starts on a pad drawn uniformly, which this does not press. Entering a pad
  presses it; staying, or bumping into the border, presses nothing.

  Actions: 3 * (row + 1) + (column + 1) moves by `row` and `column`, each -1, 0 or 1;
  4 stays. Observations are float32:

    position: [size^2], one-hot, the pad under the agent.
    pads: [size^2], 1 for a lit pad.
    previous_action: [9], one-hot; zeros on the first step.
    previous_reward: [1]; zero on the first step.

  The arrays are shared between time steps and read-only.

  >>> numpad = Numpad(size=2, episode_length=10, seed=0)
  >>> time_step = numpad.reset()
  >>> total = 0
  >>> while not time_step.last():
  ...   time_step = numpad.step(numpad.informed_action())
  ...   total += time_step.reward
  >>> total, numpad.episode_success()
  (10.0, True)
  """

  def __init__(self,
               size: Annotated[int, config.Range(2)] = 3,
               episode_length: config.PositiveInt = 500,
               seed: Optional[config.NonNegativeInt] = None):
    """Creates the task.

    Args:
      size: pads along each side. The paper has 2, 3 and 4; 3 is a telephone's.
      episode_length: steps in every episode (appendix A: 500).
      seed: of the sequences and the starts.
    """
    super().__init__(size, episode_length, seed, num_actions=_NUM_ACTIONS)
    self._one_hot_pads = memory_task.constant_rows(np.eye(self._num_pads))
    self._one_hot_actions = memory_task.constant_rows(np.eye(_NUM_ACTIONS))
    self._no_action = memory_task.constant_rows(np.zeros([1, _NUM_ACTIONS]))[0]
    self._reset()  # Every attribute of an episode exists from here on.

  def informed_action(self) -> int:
    """Takes a step on a shortest way to pressing the next pad in the sequence.

    No policy does better. While pads are lit, the agent stands on the last of them and
    the next is one step away. While no pad is lit, presses on the way have nothing to
    clear. Pads that give no more reward must still be lit.
    """
    target = self._sequence[self._num_lit]
    if target == self._position:  # It can be entered only from another pad.
      return next(action for action, pad in enumerate(self._destinations[target])
                  if pad != target)
    return move_towards(target, self._position, self._size)

  def render(self) -> np.ndarray:
    """Returns a picture, uint8 [H, W, 3].

    Lit pads are yellow. The next pad is green, although agents do not see which it is.
    """
    cells = {divmod(pad, self._size): rendering.LIT
             for pad in self._sequence[:self._num_lit]}
    cells[divmod(self._sequence[self._num_lit], self._size)] = rendering.GOAL
    return rendering.draw_grid(
        self._size, self._size, cells, divmod(self._position, self._size), 40)

  def observation_spec(self) -> dict[str, specs.BoundedArray]:
    def binary(size: int, name: str) -> specs.BoundedArray:
      return specs.BoundedArray([size], np.float32, 0, 1, name)

    return {
        'position': binary(self._num_pads, 'position'),
        'pads': binary(self._num_pads, 'pads'),
        'previous_action': binary(_NUM_ACTIONS, 'previous_action'),
        'previous_reward': binary(1, 'previous_reward'),
    }

  def _begin(self) -> dict[str, np.ndarray]:
    self._position = int(self._rng.integers(self._num_pads))
    return self._observation(self._no_action, reward=0)

  def _step(self, action: int) -> dm_env.TimeStep:
    pad = self._destinations[self._position][action]
    reward = 0
    if pad != self._position:
      self._position = pad
      reward = self._press(pad)
    return self._time_step(
        reward, self._observation(self._one_hot_actions[action], reward))

  def _observation(self, previous_action: np.ndarray, reward: int
                   ) -> dict[str, np.ndarray]:
    return {
        'position': self._one_hot_pads[self._position],
        'pads': self._lights[self._num_lit],
        'previous_action': previous_action,
        'previous_reward': self._rewards[reward],
    }

  @classmethod
  def together(cls, tasks: Sequence['Numpad']) -> memory_task.TasksTogether:
    return _NumpadsTogether(tasks)


class _NumpadsTogether(memory_task.TasksTogether):
  """The rules of `Numpad` for E of them at once."""

  def __init__(self, tasks: Sequence[Numpad]):
    self._tasks = tasks
    num, num_pads = len(tasks), tasks[0]._num_pads
    self._num_pads = num_pads
    self._rows = num_pads * np.arange(num)
    self._destinations = np.array(tasks[0]._destinations).ravel()
    self._one_hot_pads = np.eye(num_pads, dtype=np.float32)
    self._one_hot_actions = np.eye(_NUM_ACTIONS, dtype=np.float32)
    self._sequence = np.zeros([num, num_pads], np.int64)
    self._lights = np.zeros([num * num_pads, num_pads], np.float32)
    (self._position, self._num_lit, self._num_rewarded, self._num_steps,
     self._episode_length) = np.zeros([5, num], np.int64)
    self._completed = np.zeros(num, bool)

  def load(self, i: int) -> None:
    task = self._tasks[i]
    self._sequence[i] = task._sequence
    self._lights[i * self._num_pads:(i + 1) * self._num_pads] = task._lights
    self._position[i] = task._position
    self._num_lit[i] = task._num_lit
    self._num_rewarded[i] = task._num_rewarded
    self._num_steps[i] = task._num_steps
    self._episode_length[i] = task._episode_length
    self._completed[i] = task._completed

  def step(self, actions: np.ndarray) -> memory_task.Outcome:
    pad = self._destinations.take(self._position * _NUM_ACTIONS + actions)
    right = pad == self._sequence.take(self._rows + self._num_lit)
    # Staying presses nothing. There are never more pads lit than rewarded.
    lit = np.where(pad == self._position, self._num_lit, (self._num_lit + 1) * right)
    reward = lit > self._num_rewarded
    complete = lit == self._num_pads
    self._position = pad
    self._num_lit = np.where(complete, 0, lit)
    self._num_rewarded = np.where(complete, 0, np.maximum(lit, self._num_rewarded))
    self._num_steps += 1
    self._completed |= complete
    return memory_task.Outcome(
        reward, self._num_steps == self._episode_length, self._completed, {
            'position': self._one_hot_pads.take(pad, axis=0),
            'pads': self._lights.take(self._rows + self._num_lit, axis=0),
            'previous_action': self._one_hot_actions.take(actions, axis=0),
            'previous_reward': reward[:, None].astype(np.float32),
        })


def move_towards(target: int, position: int, size: int) -> int:
  """Returns the action that begins a shortest way from `position` to `target`."""
  row, column = divmod(position, size)
  target_row, target_column = divmod(target, size)
  return (3 * ((target_row > row) - (target_row < row) + 1)
          + (target_column > column) - (target_column < column) + 1)


def destinations(size: int) -> list[list[int]]:
  """Returns the pad that each action leads to from each pad: [size^2][9]."""
  def destination(pad: int, action: int) -> int:
    row = pad // size + action // 3 - 1
    column = pad % size + action % 3 - 1
    inside = 0 <= row < size and 0 <= column < size
    return row * size + column if inside else pad

  return [[destination(pad, action) for action in range(_NUM_ACTIONS)]
          for pad in range(size**2)]
