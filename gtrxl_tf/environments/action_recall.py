"""Action recall: repeat, when asked, an action that was shown or taken earlier."""

from typing import Annotated, Optional

import dm_env
from dm_env import specs
import numpy as np

from gtrxl_tf.environments import episodic
from gtrxl_tf.settings import config

STAY = 2  # An action of `ActionAssociativeRetrieval`.


@config.configurable
class ActionRecall(episodic.MemoryTask):
  """A cue names an action, which the agent must take after `delay` blank observations.

  The first observation shows the cue, drawn uniformly among the actions. Next come
  `delay` observations without information, and then one with the flag that asks for
  recall. The action taken on the flagged observation ends the episode, with reward 1
  and success if it is the one that the cue named, else 0. Earlier actions change
  nothing, so every episode has `delay + 2` steps, and one guess in `num_actions` is
  right. The discount is 0 at the end: the task is over.

  Observations are float32 [num_actions + 1]: the cue one-hot (zeros after the first
  step), then the flag. The arrays are shared between time steps and read-only.
  """

  def __init__(self,
               num_actions: Annotated[int, config.Range(2)] = 4,
               delay: config.NonNegativeInt = 10,
               seed: Optional[config.NonNegativeInt] = None):
    """Creates the task, which is not from a paper: it can be learned in a minute.

    Args:
      num_actions: actions to tell apart.
      delay: blank observations between the cue and the flag.
      seed: seeds the cues.
    """
    super().__init__(num_actions, seed)
    self._delay = delay
    self._cues = episodic.constant_rows(np.eye(num_actions, num_actions + 1))
    self._blank, self._flag = episodic.constant_rows(np.eye(num_actions + 1)[-1] * [[0], [1]])
    self._reset()  # Every attribute of an episode exists from here on.

  def informed_action(self) -> int:
    """Returns the action that the cue named, at every step."""
    return self._cue

  def observation_spec(self) -> specs.BoundedArray:
    return specs.BoundedArray(self._blank.shape, np.float32, 0, 1, 'cue_and_flag')

  def _reset(self) -> dm_env.TimeStep:
    self._cue = int(self._rng.integers(self._num_actions))
    self._steps_left = self._delay + 2
    self._success = False
    return dm_env.restart(self._cues[self._cue])

  def _step(self, action: int) -> dm_env.TimeStep:
    self._steps_left -= 1
    if self._steps_left:
      return dm_env.transition(0.0, self._flag if self._steps_left == 1 else self._blank)
    self._success = action == self._cue
    return dm_env.termination(float(self._success), self._blank)


@config.configurable
class ActionAssociativeRetrieval(episodic.MemoryTask):
  """The first action must be repeated `delay` steps later (RATE, appendix C).

  There are two states, S0, where the agent starts, and S1. The actions 0 and 1 move to
  the other state; 2 stays. An episode has `delay + 2` steps: the first action, `delay`
  steps, and the action taken on the flagged observation. It is a success, with reward
  1, if the last action moves from S1 to S0 and is the same as the first; else the
  reward is `failure_reward`. Every other reward is 0, and so is the discount at the
  end.

  Observations are float32 [3]: the state, 0 or 1; the flag; and noise of -1, 0 or 1,
  drawn uniformly at every step.

  An agent that chooses its first action needs no memory: it can always begin with the
  same one. The task is meant for recorded episodes, in which `informed_action` begins
  with 0 and with 1 equally often. The paper measures how probable a model finds the
  last action, given the first. `ActionRecall` is a similar task for agents that act.
  """

  def __init__(self,
               delay: config.NonNegativeInt = 87,
               min_delay: Optional[config.NonNegativeInt] = None,
               failure_reward: float = -1.0,
               seed: Optional[config.NonNegativeInt] = None):
    """Creates the task.

    Args:
      delay: steps in S1. The paper's code has 27, 57 and 87 in its data: three less
        than one, two or three segments of 30.
      min_delay: if given, every episode draws its own delay uniformly from `min_delay`
        to `delay`; delays are fixed in the paper.
      failure_reward: -1 in the paper's text, 0 in its code.
      seed: seeds the noise, the delays, and the first action of `informed_action`.
    """
    if min_delay is not None and min_delay > delay:
      raise config.ConfigError(
          f'ActionAssociativeRetrieval.min_delay = {min_delay}: expected at most '
          f'delay = {delay}')
    super().__init__(num_actions=3, seed=seed)
    self._min_delay = min_delay
    self._max_delay = delay
    self._failure_reward = failure_reward
    self._reset()  # Every attribute of an episode exists from here on.

  def informed_action(self) -> int:
    """Returns 0 or 1 (equally often), then `STAY`, and the first again at the flag."""
    if self._first is None:
      return self._beginning
    if self._steps_left == 1 or self._state == 0:
      return self._first
    return STAY

  def observation_spec(self) -> specs.BoundedArray:
    return specs.BoundedArray([3], np.float32, [0, 0, -1], [1, 1, 1], 'state_flag_noise')

  def _reset(self) -> dm_env.TimeStep:
    delay = self._max_delay
    if self._min_delay is not None:
      delay = int(self._rng.integers(self._min_delay, self._max_delay + 1))
    self._beginning = int(self._rng.integers(2))
    self._noise = self._rng.integers(-1, 2, size=delay + 3).tolist()
    self._first, self._state, self._steps_left = None, 0, delay + 2
    self._success = False
    return dm_env.restart(self._observation())

  def _step(self, action: int) -> dm_env.TimeStep:
    if self._first is None:
      self._first = action
    self._steps_left -= 1
    last = self._steps_left == 0
    moves = action != STAY
    self._success = last and self._state == 1 and moves and action == self._first
    self._state ^= moves
    reward = 1.0 if self._success else float(self._failure_reward) if last else 0.0
    return episodic.later_step(reward, self._observation(), last)

  def _observation(self) -> np.ndarray:
    # The noise is indexed by the steps left.
    return np.array([self._state, self._steps_left == 1, self._noise[self._steps_left]],
                    np.float32)
