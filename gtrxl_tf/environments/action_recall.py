"""Action recall: do, when asked, what was shown a while ago."""

from typing import Annotated, Optional

import dm_env
from dm_env import specs
import numpy as np

from gtrxl_tf import config
from gtrxl_tf.environments import memory_task


@config.configurable
class ActionRecall(memory_task.MemoryTask):
  """A cue names an action, which is to be given after `delay` blank observations.

  The first observation shows the cue, drawn uniformly among the actions. Then follow
  `delay` observations without information, and then one with the flag that asks for
  recall. The action given to the flagged observation ends the episode, with reward 1
  and success if it is the one the cue named, else 0. Actions before that change
  nothing, so every episode has `delay + 2` steps, and a guess is right once in
  `num_actions` times. Discount is 0 at the end: the task is over.

  Observations are float32 [num_actions + 1]: the cue one-hot (zeros after the first
  step), then the flag. The arrays are shared between time steps and read-only.
  """

  def __init__(self,
               num_actions: Annotated[int, config.Range(2)] = 4,
               delay: config.NonNegativeInt = 10,
               seed: Optional[config.NonNegativeInt] = None):
    """Creates the task, which is of no paper: small enough to be learned in a minute.

    Args:
      num_actions: actions to tell apart.
      delay: blank observations between the cue and the flag.
      seed: of the cues.
    """
    super().__init__(num_actions=num_actions, seed=seed)
    self._delay = delay
    *self._cues, self._flag = memory_task.constant_rows(np.eye(num_actions + 1))
    [self._blank] = memory_task.constant_rows(np.zeros([1, num_actions + 1]))
    self._reset()  # Every attribute of an episode exists from here on.

  def episode_success(self) -> bool:
    """Whether the action given at the flag was the one that the cue named."""
    return self._success

  def informed_action(self) -> int:
    """The action that the cue named, at every step."""
    return self._cue

  def observation_spec(self) -> specs.BoundedArray:
    return specs.BoundedArray(self._blank.shape, np.float32, 0, 1, 'cue_and_flag')

  def _reset(self) -> dm_env.TimeStep:
    self._cue = int(self._rng.integers(self._num_actions))
    self._blanks_left = self._delay
    self._asked = False
    self._success = False
    return dm_env.restart(self._cues[self._cue])

  def _step(self, action: int) -> dm_env.TimeStep:
    if self._asked:
      self._success = action == self._cue
      return dm_env.termination(float(self._success), self._blank)
    if self._blanks_left:
      self._blanks_left -= 1
      return dm_env.transition(0.0, self._blank)
    self._asked = True
    return dm_env.transition(0.0, self._flag)
