"""Action recall: repeat, when asked, an action that was shown or taken earlier."""

from typing import Annotated, Optional

from dm_env import specs
import numpy as np

from gtrxl_tf.environments import memory_task
from gtrxl_tf.environments import vector_task
from gtrxl_tf.settings import config

STAY = 2  # An action of `ActionAssociativeRetrieval`.
_NONE = -1  # Stands for its first action before the agent has taken one.


@config.configurable
class ActionRecall(vector_task.VectorTask):
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
    super().__init__(
        num_actions, seed,
        # The observations without and with the flag.
        seen=memory_task.constant_rows(np.eye(num_actions + 1)[-1] * [[0], [1]]))
    self._delay = delay
    self._cues = memory_task.constant_rows(np.eye(num_actions, num_actions + 1))
    self._reset()

  def informed_action(self) -> int:
    """Returns the action that the cue named, at every step."""
    return self.episode.cue

  def observation_spec(self) -> specs.BoundedArray:
    return specs.BoundedArray(self._cues[0].shape, np.float32, 0, 1, 'cue_and_flag')

  def _begin(self) -> tuple[vector_task.Episode, np.ndarray]:
    cue = int(self._rng.integers(self._num_actions))
    return vector_task.Episode(
        cue=cue, steps_left=self._delay + 2, success=False), self._cues[cue]

  @staticmethod
  def advance(tables, e, action) -> vector_task.Outcome:
    e.steps_left = e.steps_left - 1
    last = e.steps_left == 0
    e.success = last & (action == e.cue)
    return e.success, last, tables['seen'][e.steps_left == 1]


@config.configurable
class ActionAssociativeRetrieval(vector_task.VectorTask):
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
    self._reset()

  def informed_action(self) -> int:
    """Returns 0 or 1 (equally often), then `STAY`, and the first again at the flag."""
    if self.episode.first == _NONE:
      return self.episode.beginning
    if self.episode.steps_left == 1 or self.episode.state == 0:
      return self.episode.first
    return STAY

  def observation_spec(self) -> specs.BoundedArray:
    return specs.BoundedArray(
        [3], np.float32, [0, 0, -1], [1, 1, 1], 'state_flag_noise')

  def _begin(self) -> tuple[vector_task.Episode, np.ndarray]:
    delay = self._max_delay
    if self._min_delay is not None:
      delay = int(self._rng.integers(self._min_delay, self._max_delay + 1))
    beginning = int(self._rng.integers(2))
    noise = self._rng.integers(-1, 2, size=delay + 3).tolist()
    episode = vector_task.Episode(
        first=_NONE, state=0, steps_left=delay + 2, success=False, beginning=beginning,
        noise=noise + [0] * (self._max_delay - delay),  # Indexed by the steps left.
        failure_reward=self._failure_reward)
    return episode, vector_task.features(0, 0, noise[delay + 2])

  @staticmethod
  def advance(tables, e, action) -> vector_task.Outcome:
    moves = action != STAY
    e.first = e.first + (e.first == _NONE) * (action - _NONE)  # Set only once.
    last = e.steps_left == 1
    e.success = last & (e.state == 1) & moves & (action == e.first)
    e.state = e.state ^ moves
    e.steps_left = e.steps_left - 1
    reward = e.success + (last ^ e.success) * e.failure_reward
    return reward, last, vector_task.features(
        e.state, e.steps_left == 1, e.noise[e.steps_left])
