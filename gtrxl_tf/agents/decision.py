"""Imitation of recorded episodes, conditioned on the return: agent and policy."""

import functools
from typing import Any, Dict, NamedTuple, Optional, Tuple

import dm_env
import tensorflow as tf

from gtrxl_tf.agents import agent as agent_lib
from gtrxl_tf.agents import imitation
from gtrxl_tf.agents import policy as policy_lib
from gtrxl_tf.agents import windows
from gtrxl_tf.networks import action_space
from gtrxl_tf.networks import decision
from gtrxl_tf.settings import config


@config.configurable
class DecisionAgent(agent_lib.OfflineAgent):
  """Imitates recorded actions.

  The loss is the cross-entropy of discrete actions plus the squared error of the mean
  of continuous ones (Chen et al., 2021; RATE, Algorithm 1).

  >>> from dm_env import specs
  >>> import numpy as np
  >>> import tensorflow as tf
  >>> from gtrxl_tf import agents
  >>> from gtrxl_tf import cores
  >>> from gtrxl_tf import networks
  >>> network = networks.DecisionNetwork(
  ...     specs.DiscreteArray(3), networks.VectorTorso([8]),
  ...     cores.RATE(1, 8, num_heads=2, head_dim=4, mlp_dim=8, segment_length=6))
  >>> network.create_variables(specs.Array((5,), np.float32))
  >>> agent = agents.DecisionAgent(network)
  >>> batch = agents.Segments(
  ...     return_to_go=tf.ones([2, 4]), observation=tf.zeros([2, 4, 5]),
  ...     action=tf.zeros([2, 4], tf.int32), reward=tf.zeros([2, 4]),
  ...     discount=tf.ones([2, 4]), valid=tf.ones([2, 4], tf.bool),
  ...     is_first=tf.constant([[True, False, False, False]] * 2))
  >>> loss, metrics = agent.loss(batch)
  >>> sorted(metrics)
  ['accuracy', 'cross_entropy', 'loss']

  Args:
    network: the network that learns; its variables must exist.
  """

  def __init__(self, network: decision.DecisionNetwork):
    super().__init__('decision', network)

  def loss(self, batch: decision.Segments) -> Tuple[tf.Tensor, Dict[str, Any]]:
    """Computes the loss of a batch, and metrics; on a replica, that replica's share.

    Values at steps that are not valid have no influence, but must be finite.

    Returns:
      The loss, and metrics. If the batch has states, the metrics contain `carried`: the
      nest of states after every segment, `[B, N, ...]`.
    """
    policy, carried = self._unroll(batch)
    loss, metrics = imitation.loss(
        self.network.action_space, policy, batch.action, batch.valid)
    return loss, {**metrics, **carried}

  def _unroll(self, batch: decision.Segments) -> Tuple[action_space.Policy, Dict[str, Any]]:
    """Computes the policy at every step, and the metric `carried` if there is one."""
    inputs = batch._replace(state=())
    num_steps = batch.valid.shape[1]
    if not tf.nest.flatten(batch.state):
      state = self.network.initial_state(tf.shape(batch.valid)[0])
      return self.network(inputs, state, training=True)[0], {}
    segment = self.network.core.segment_length // decision.TOKENS_PER_STEP
    segment = segment or num_steps  # A core without segments sees a single one.
    policies, states, state = [], [], batch.state
    for start in range(0, num_steps, segment):
      policy, state = self.network(
          tf.nest.map_structure(lambda x: x[:, start:start + segment], inputs), state,
          training=True)
      policies.append(policy)
      states.append(state)
    return (tf.nest.map_structure(lambda *x: tf.concat(x, axis=1), *policies),
            {'carried': tf.nest.map_structure(lambda *x: tf.stack(x, axis=1), *states)})


class DecisionState(NamedTuple):
  """The memory between steps."""
  core: Any                # The cache of the core or of the window.
  return_to_go: tf.Tensor  # [B]: the remaining return before the step's reward.
  steps: tf.Tensor         # [B] int32: number of steps taken in the episode.


@config.configurable
class DecisionPolicy(policy_lib.NetworkPolicy):
  """A policy conditioned on what remains of a target return.

  Each reward is subtracted from the return. The state need not be reset: at a step that
  is FIRST the network clears its memory, and the return starts again at the target.

  Args:
    network: the network that acts; its variables must exist.
    observation_spec: nest of dm_env specs.
    action_spec: nest of dm_env specs.
    target_return: the return to reach, in the rewards' units.
    return_scale: returns are divided by it before they enter the network.
    return_discount: must be 1, as rewards are subtracted as they are.
    return_reset_period: number of steps after which the return starts again at the
      target, as the RATE paper does at each segment on MuJoCo. By default it does so at
      each episode only.
    greedy: takes the most likely action instead of sampling; see `imitation.sample`.
    window: how many of the last steps the network sees, see `windows.DecisionWindow`;
      the context of a Decision Transformer. By default the network uses the core's
      memory.

  Attributes:
    window: as given.
  """

  def __init__(self, network: decision.DecisionNetwork, observation_spec: Any,
               action_spec: Any, target_return: float,
               return_scale: config.PositiveFloat = 1.0,
               return_discount: config.UnitInterval = 1.0,
               return_reset_period: Optional[config.PositiveInt] = None,
               greedy: bool = True, window: Optional[config.PositiveInt] = None):
    self._make = functools.partial(
        DecisionPolicy, network, observation_spec, action_spec, target_return,
        return_scale, return_discount, return_reset_period, window=window)
    if return_discount != 1:
      raise config.ConfigError(
          f'OfflineExperiment.return_discount = {return_discount} with DecisionPolicy: '
          'expected 1, as it subtracts rewards from the target as they are')
    if window is None and network.oracle is not None:
      raise config.ConfigError(
          'DecisionPolicy.window = None with DecisionNetwork.oracle: expected the '
          'length of the context')
    if window is not None:
      network = windows.DecisionWindow(network, window)
    self.window = window
    self._target = target_return / return_scale
    self._return_scale = return_scale
    self._period = return_reset_period
    self._greedy = greedy
    super().__init__(network, observation_spec, action_spec)

  def greedy(self) -> 'DecisionPolicy':
    return self if self._greedy else self._make(greedy=True)

  def get_initial_state(self, batch_size: Any) -> DecisionState:
    return DecisionState(
        core=self._network.initial_cache(batch_size),
        return_to_go=tf.zeros([batch_size]), steps=tf.zeros([batch_size], tf.int32))

  def action(self, time_step: dm_env.TimeStep, policy_state: DecisionState,
             seed: Any = None) -> policy_lib.PolicyStep:
    is_first = time_step.first()
    steps = tf.where(is_first, 0, policy_state.steps)
    resets = is_first if self._period is None else tf.equal(steps % self._period, 0)
    return_to_go = tf.where(
        resets, self._target,
        policy_state.return_to_go - time_step.reward / self._return_scale)
    policy, cache = self._network.step(
        return_to_go, time_step.observation, is_first, policy_state.core,
        timestep=steps)
    space = self._network.action_space
    sample = space.mode(policy) if self._greedy else (
        imitation.sample(space, policy, seed))
    cache = self._network.remember_action(sample, cache, timestep=steps)
    return policy_lib.PolicyStep(
        space.to_environment(sample), DecisionState(cache, return_to_go, steps + 1))
