"""The base class of networks on a memory core."""

import abc
from typing import Any, Optional

import tensorflow as tf

from gtrxl_tf.cores import core as core_lib
from gtrxl_tf.environments import specs as specs_lib
from gtrxl_tf.networks import action_space
from gtrxl_tf.networks import observation_statistics
from gtrxl_tf.settings import config


class MemoryNetwork(tf.keras.layers.Layer, metaclass=abc.ABCMeta):
  """Embeds its inputs, runs a memory core on them, and applies heads to the outputs.

  A subclass defines its inputs: `call` unrolls over `[B, T, ...]` for learning, and
  `step` takes one step on `[B, ...]` for acting. The two compute the same function.

  Args:
    action_spec: nest of `dm_env` array specs of the environment's actions.
    core: the memory core; None is an error. Subclasses have this argument after others
      with defaults, so there it has a default, too.
    normalize_observations: whether there are statistics that normalize observations.
      They are variables, and go wherever the weights go: to the actors, into
      checkpoints, and into exported policies.

  Attributes:
    action_space: the `ActionSpace` of `action_spec`.
    core: as given.
    observation_statistics: the statistics that normalize observations, or None.
    running_statistics: whether these are running ones; see `ObservationStatistics`.
  """
  running_statistics = False

  def __init__(self, action_spec: Any, core: Optional[core_lib.Core],
               name: Optional[str] = None, normalize_observations: bool = False):
    if core is None:
      raise config.ConfigError(
          f'{type(self).__name__}.core is not set, and has no default: expected a file that '
          "sets it, as `include 'gtrxl/bases/small.gin'` does for an ActorCritic")
    # Observations stay float32 until they are normalized; the layers within cast them.
    super().__init__(name=name, autocast=False)
    self.action_space = action_space.ActionSpace(action_spec)
    self.core = core
    self.observation_statistics = None
    self._normalize_observations = normalize_observations

  def create_variables(self, observation_spec: Any) -> None:
    """Creates all variables.

    Args:
      observation_spec: nest of `dm_env` array specs of one step's observation.
    """
    self.action_space.check_mask(observation_spec)
    with tf.name_scope(self.name):
      if self._normalize_observations:
        self.observation_statistics = observation_statistics.ObservationStatistics(
            observation_spec, self.running_statistics)
        observation_spec = self.observation_statistics.unbounded(observation_spec)
      width = self._build_embedding(observation_spec)
      if not self.core.built:
        core_lib.build_layer(self.core, tf.TensorShape([None, None, width]))
      self._build_heads()
    self.built = True

  def build(self, input_shape: Any) -> None:
    """Refuses a call before `create_variables`, which alone knows the observations."""
    raise ValueError(
        f'{self.name} has no variables yet: expected an earlier call of '
        'create_variables(observation_spec)')

  @abc.abstractmethod
  def _build_embedding(self, observation_spec: Any) -> int:
    """Creates the variables before the core; returns the width of the core's inputs."""

  @abc.abstractmethod
  def _build_heads(self) -> None:
    """Creates the variables after the core, which is built."""

  def normalized(self, observation: Any) -> Any:
    """Normalizes the observation if there are statistics."""
    if self.observation_statistics is None:
      return observation
    return self.observation_statistics.normalize(observation)

  def masked(self, policy: action_space.Policy, observation: Any
             ) -> action_space.Policy:
    """Applies the observation's action mask, if there is one, to the policy."""
    _, mask = specs_lib.split_mask(observation)
    return self.action_space.masked(policy, mask)

  def initial_state(self, batch_size) -> Any:
    """Returns the core's state before the first step."""
    return self.core.initial_state(batch_size)

  def initial_cache(self, batch_size) -> Any:
    """Returns the core's cache before the first step. The variables must exist."""
    return self.core.initial_cache(batch_size)
