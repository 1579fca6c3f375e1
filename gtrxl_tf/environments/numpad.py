"""Numpad: find a hidden sequence of pads by trial, then repeat it from memory.

*GTrXL* (section 4.2, appendix A) plays it with a simulated ball that rolls over the
pads (Humplik et al., 2019), which is `NumpadMujoco`. In `Numpad` the ball is a token on
the grid of pads and a press is one move; the rules of the sequence are the same.
"""

import abc
from typing import Annotated, Optional

import dm_env
from dm_env import specs
import numpy as np

from gtrxl_tf import config
from gtrxl_tf.environments import memory_task

_NUM_ACTIONS = 9

# Moves drawn per pad when a sequence is mixed, see `_draw_sequence`.
_MIXING_MOVES_PER_PAD = 25


class HiddenSequence(memory_task.MemoryTask):
  """The rules of the sequence, whatever it is that presses the pads.

  Each episode hides a sequence over all pads: each once, and each a neighbour of the
  one before (Moore neighbourhood). A press of the next pad in the sequence lights it,
  any other press (of a lit pad too) clears all lit pads, and the sequence must be
  pressed from its beginning again. Lighting a pad gives reward 1, but once only: pads
  lit before the lights were cleared give nothing when lit again. The last pad completes
  the sequence: all lights go out, and every pad is worth its reward again.

  An episode lasts `episode_length` steps and ends with discount 0. The next episode
  hides another sequence, so nothing follows that a value should count. The agent sees
  no clock and cannot know how near the end is; to it, the end is a small chance of
  stopping at any step.

  Pads are counted row by row. A subclass writes `_begin` and `_step`, which calls
  `_press` for a pad that the agent presses and returns `_time_step`.
  """

  def __init__(self, size: int, episode_length: int, seed: Optional[int],
               num_actions: Optional[int] = None):
    """Creates the task; `num_actions` is explained in `MemoryTask`."""
    super().__init__(num_actions=num_actions, seed=seed)
    self._size = size
    self._num_pads = size**2
    self._episode_length = episode_length
    self._destinations = _destinations(size)
    self._rewards = memory_task.constant_rows([[0.], [1.]])

  @property
  def sequence(self) -> tuple[int, ...]:
    """The hidden sequence of the current episode, as pad numbers."""
    return tuple(self._sequence)

  def episode_success(self) -> bool:
    """Whether the whole sequence was completed, at least once.

    It tells that the search came to its end. How well the sequence was kept in mind
    afterwards is told by the return.
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
    self._num_rewarded = 0  # Of the sequence in its current repetition.
    self._num_steps = 0
    self._completed = False
    return dm_env.restart(self._begin())

  def _time_step(self, reward: int, observation: dict[str, np.ndarray]
                 ) -> dm_env.TimeStep:
    """Counts the step."""
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
    """A sequence over all pads, as good as uniform among those allowed.

    A walk on the sequences themselves, by the "backbite" move of polymer physics: join
    the last pad to a random neighbour of it, cut the link that would close a loop, and
    what comes after the cut is run through backwards. With a coin that reverses the
    sequence before each move, a move is as likely as its undoing, so the walk tends to
    the uniform distribution wherever it starts. For sizes 2, 3 and 4 its distance from
    uniform (total variation, computed over all 24, 784 and 343184 sequences) is below
    0.001 after the moves made here; larger sizes are mixed alike but not measured.
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
      # Out of the grid leads to the last pad itself, and then nothing is changed.
      neighbour = self._destinations[sequence[-1]][direction]
      cut = sequence.index(neighbour) + 1
      sequence[cut:] = sequence[cut:][::-1]
    return sequence


@config.configurable
class Numpad(HiddenSequence):
  """The Numpad on a grid of `size` x `size` pads; for the rules see `HiddenSequence`.

  The agent starts on a pad drawn uniformly, which is not pressed by this. Entering a
  pad presses it; staying, or bumping into the border, presses nothing.

  Actions: 3 * (row + 1) + (column + 1) moves by `row` and `column`, each -1, 0 or 1;
  4 stays. Observations are float32:

    position: [size^2], one-hot, the pad under the agent.
    pads: [size^2], 1 for a lit pad.
    previous_action: [9], one-hot; zeros on the first step.
    previous_reward: [1]; zero on the first step.

  The arrays are shared between time steps and read-only.
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
    """A step on a shortest way to pressing the next pad in the sequence.

    No policy does better. While pads are lit the agent stands on the last of them, and
    the next is one step away; while none is, presses on the way have nothing to
    clear. Pads that give nothing any more must be lit all the same.
    """
    target = self._sequence[self._num_lit]
    if target == self._position:  # It can only be entered from another pad.
      return next(action for action, pad in enumerate(self._destinations[target])
                  if pad != target)
    row, column = divmod(self._position, self._size)
    target_row, target_column = divmod(target, self._size)
    return (3 * ((target_row > row) - (target_row < row) + 1)
            + (target_column > column) - (target_column < column) + 1)

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

  def _observation(self, previous_action: np.ndarray, reward: int):
    return {
        'position': self._one_hot_pads[self._position],
        'pads': self._lights[self._num_lit],
        'previous_action': previous_action,
        'previous_reward': self._rewards[reward],
    }


def _destinations(size: int) -> list[list[int]]:
  """The pad that each action leads to from each pad: [size^2][9]."""
  def destination(pad: int, action: int) -> int:
    row = pad // size + action // 3 - 1
    column = pad % size + action % 3 - 1
    inside = 0 <= row < size and 0 <= column < size
    return row * size + column if inside else pad

  return [[destination(pad, action) for action in range(_NUM_ACTIONS)]
          for pad in range(size**2)]
