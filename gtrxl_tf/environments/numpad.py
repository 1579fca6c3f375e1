"""Numpad: find a hidden sequence of pads by trial, then repeat it from memory.

Each episode hides a sequence over all pads: every pad occurs once and is a neighbour
of the pad before it (Moore neighbourhood). Pressing the next pad in the sequence
lights it. Any other press, even of a lit pad, clears all lit pads, and the sequence
must be pressed from its beginning again. Lighting a pad gives reward 1, but only
once: pads that were lit before the lights were cleared give nothing when lit again.
The last pad completes the sequence: all lights go out, and every pad gives its reward
again.

An episode lasts `episode_length` steps and ends with discount 0: the next episode
hides another sequence, so a value should count nothing beyond the end. The agent sees
no clock and cannot know how near the end is; to it, the end is a small chance of
stopping at any step. An episode is a success if the sequence was completed at least
once: the agent found it. How well it then remembered it shows in the return.

In *GTrXL* (section 4.2, appendix A) a simulated ball rolls over the pads (Humplik et
al., 2019): that is `NumpadMujoco`. In `Numpad` the ball is a token on the grid of pads
and a press is one move; the rules of the sequence are the same. Pads are counted row
by row.
"""

import functools
from typing import Annotated, Optional

import dm_env
from dm_env import specs
import numpy as np

from gtrxl_tf.environments import episodic
from gtrxl_tf.environments import rendering
from gtrxl_tf.settings import config

_NUM_ACTIONS = 9

# Moves drawn per pad when a sequence is mixed, see `_draw_sequence`.
_MIXING_MOVES_PER_PAD = 25


@config.configurable
class Numpad(episodic.MemoryTask):
  """The Numpad on a grid of `size` x `size` pads; the module has the rules.

  The agent starts on a pad drawn uniformly; starting there does not press it. Entering
  a pad presses it; staying, or bumping into the border, presses nothing.

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
      seed: seeds the sequences and the starts.
    """
    super().__init__(_NUM_ACTIONS, seed)
    self._size = size
    self._episode_length = episode_length
    self._positions = episodic.constant_rows(np.eye(size**2))
    self._actions = episodic.constant_rows(np.eye(_NUM_ACTIONS))
    self._rewards = episodic.constant_rows([[0.], [1.]])
    self._no_action, = episodic.constant_rows(np.zeros([1, _NUM_ACTIONS]))
    self._reset()  # Every attribute of an episode exists from here on.

  @property
  def sequence(self) -> tuple[int, ...]:
    """The hidden sequence of the current episode, as pad numbers."""
    return tuple(self._hidden.sequence)

  def episode_success(self) -> bool:
    return self._hidden.success

  def informed_action(self) -> int:
    """Returns the action on a shortest way to pressing the next pad in the sequence.

    No policy does better. While pads are lit, the agent stands on the last of them and
    the next is one step away. While no pad is lit, presses on the way have nothing to
    clear. Pads that give no more reward must still be lit.
    """
    target = self._hidden.next
    if target == self._position:  # It can be entered only from another pad.
      return next(action for action, pad in enumerate(destinations(self._size)[target])
                  if pad != target)
    return move_towards(target, self._position, self._size)

  def render(self) -> np.ndarray:
    """Returns a picture, uint8 [H, W, 3].

    Lit pads are yellow. The next pad is green, although agents do not see which it is.
    """
    cells = {divmod(pad, self._size): rendering.LIT
             for pad in self._hidden.sequence[:self._hidden.num_lit]}
    cells[divmod(self._hidden.next, self._size)] = rendering.GOAL
    return rendering.draw_grid(
        self._size, self._size, cells, divmod(self._position, self._size), 40)

  def observation_spec(self) -> dict[str, specs.BoundedArray]:
    sizes = {'position': self._size**2, 'pads': self._size**2,
             'previous_action': _NUM_ACTIONS, 'previous_reward': 1}
    return {name: specs.BoundedArray([size], np.float32, 0, 1, name)
            for name, size in sizes.items()}

  def _reset(self) -> dm_env.TimeStep:
    self._hidden = HiddenSequence(self._size, self._rng)
    self._position = int(self._rng.integers(self._size**2))
    self._num_steps = 0
    return dm_env.restart(self._observation(self._no_action, 0))

  def _step(self, action: int) -> dm_env.TimeStep:
    pad = destinations(self._size)[self._position][action]
    reward = self._hidden.press(pad) if pad != self._position else 0
    self._position = pad
    self._num_steps += 1
    return episodic.later_step(
        float(reward), self._observation(self._actions[action], reward),
        self._num_steps == self._episode_length)

  def _observation(self, previous_action: np.ndarray, reward: int) -> dict[str, np.ndarray]:
    return {'position': self._positions[self._position],
            'pads': self._hidden.lights,
            'previous_action': previous_action,
            'previous_reward': self._rewards[reward]}


class HiddenSequence:
  """The sequence of an episode, and which of its pads are lit."""

  def __init__(self, size: int, rng: np.random.Generator):
    """Draws a sequence over `size` x `size` pads."""
    self.sequence = _draw_sequence(size, rng)
    self.num_lit = 0  # From the beginning of the sequence.
    self.success = False  # True once all pads were lit.
    self._num_rewarded = 0  # Pads that gave a reward in this repetition of the sequence.
    lights = np.empty([size**2, size**2])
    lights[:, self.sequence] = np.tri(size**2, k=-1)
    self._lights = episodic.constant_rows(lights)  # Indexed by how many are lit.

  @property
  def next(self) -> int:
    """The pad to be pressed."""
    return self.sequence[self.num_lit]

  @property
  def lights(self) -> np.ndarray:
    """Read-only float32 [size^2], 1 for a lit pad."""
    return self._lights[self.num_lit]

  def press(self, pad: int) -> int:
    """Lights a pad, or clears all lit pads; returns the reward."""
    self.num_lit = self.num_lit + 1 if pad == self.next else 0
    reward = int(self.num_lit > self._num_rewarded)
    self._num_rewarded += reward
    if self.num_lit == len(self.sequence):
      self.num_lit = self._num_rewarded = 0
      self.success = True
    return reward


def _draw_sequence(size: int, rng: np.random.Generator) -> list[int]:
  """Draws a sequence over all pads, almost uniformly among those allowed."""
  # A random walk over sequences by the "backbite" move of polymer physics: join the last
  # pad to a random neighbour, cut the link that would close a loop, and reverse the part
  # after the cut. As a coin decides whether the sequence is reversed before each move, a
  # move is as likely as its inverse, so the walk tends to the uniform distribution. Its
  # total variation, computed for sizes 2, 3 and 4, is below 0.001 after this many moves.
  rows = np.arange(size**2).reshape(size, size)
  rows[1::2] = rows[1::2, ::-1]
  sequence = rows.ravel().tolist()
  draws = rng.integers(2 * _NUM_ACTIONS, size=_MIXING_MOVES_PER_PAD * size**2)
  ways = destinations(size)
  for draw in draws.tolist():
    direction, reverse = divmod(draw, 2)
    if reverse:
      sequence.reverse()
    # A direction out of the grid leads to the last pad itself: nothing changes.
    cut = sequence.index(ways[sequence[-1]][direction]) + 1
    sequence[cut:] = sequence[cut:][::-1]
  return sequence


def move_towards(target: int, position: int, size: int) -> int:
  """Returns the action that begins a shortest way from `position` to `target`."""
  row, column = divmod(position, size)
  target_row, target_column = divmod(target, size)
  return (3 * ((target_row > row) - (target_row < row) + 1)
          + (target_column > column) - (target_column < column) + 1)


@functools.cache
def destinations(size: int) -> list[list[int]]:
  """Returns the pad that each action leads to from each pad: [size^2][9]."""
  def destination(pad: int, action: int) -> int:
    row = pad // size + action // 3 - 1
    column = pad % size + action % 3 - 1
    inside = 0 <= row < size and 0 <= column < size
    return row * size + column if inside else pad

  return [[destination(pad, action) for action in range(_NUM_ACTIONS)] for pad in range(size**2)]
