"""Conservative Q-learning of continuous actions: TF-Agents' `CqlSacAgent`."""

from typing import Any, Callable, Dict, Optional, Sequence, Tuple

from dm_env import specs
import numpy as np
import tensorflow as tf
from tf_agents.agents.cql import cql_sac_agent
from tf_agents.agents.ddpg import critic_network
from tf_agents.agents.sac import tanh_normal_projection_network
from tf_agents.networks import actor_distribution_network
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts

from gtrxl_tf import config
from gtrxl_tf.agents.decision import agent as agent_lib
from gtrxl_tf.losses import averages
from gtrxl_tf.losses import cql
from gtrxl_tf.networks import action_space
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import torsos


@config.configurable
class CQLSACActor(tf.Module):
  """TF-Agents' tanh-Gaussian actor. It sees one observation and has no memory.

  Args:
    action_spec: of the environment; one array of floats with bounds.
    units: width of each ReLU layer; as in the authors' code.

  Attributes:
    action_space: of `action_spec`.
    observe: makes the vector that the network sees of an observation, a `Torso`.
    network: the TF-Agents network, after `create_variables`. Its observations are
      vectors, its actions are vectors in [-1, 1].

  Raises:
    ConfigError: another action.
  """

  def __init__(self, action_spec: Any,
               units: Sequence[config.PositiveInt] = (256, 256, 256)):
    super().__init__(name='actor')
    self.action_space = action_space.ActionSpace(action_spec)
    if not (isinstance(action_spec, specs.BoundedArray)
            and np.issubdtype(action_spec.dtype, np.floating)
            and np.isfinite(action_spec.maximum - action_spec.minimum).all()):
      raise config.ConfigError(
          f'CQLSACActor.action_spec = {action_spec!r}: expected one BoundedArray of '
          'floats with finite bounds')
    dtype = tf.keras.mixed_precision.global_policy().compute_dtype
    if dtype != 'float32':
      raise config.ConfigError(
          f"OfflineExperiment.compute_dtype = {dtype!r}: expected 'float32' with "
          'CQLSACActor, as the networks of TF-Agents know no other')
    self.observe = torsos.VectorTorso((), name='observe')
    self.network = None
    self._units = tuple(units)

  def create_variables(self, observation_spec: Any) -> None:
    """Makes the network, with its variables.

    Args:
      observation_spec: nest of `dm_env` array specs, of one step's observation. All of
        it is seen as one vector.
    """
    size = sum(int(np.prod(spec.shape)) for spec in tf.nest.flatten(observation_spec))
    num_dimensions = int(np.prod(self.action_space.action_spec.shape))
    self.network = actor_distribution_network.ActorDistributionNetwork(
        tf.TensorSpec([size]),
        # Scalar bounds: of vectors TF-Agents 0.19 counts the density of uniform
        # actions once too often for each further dimension.
        tensor_spec.BoundedTensorSpec([num_dimensions], tf.float32, -1.0, 1.0),
        fc_layer_params=self._units, continuous_projection_net=(
            tanh_normal_projection_network.TanhNormalProjectionNetwork))
    self.network.create_variables()

  def initial_state(self, batch_size) -> Any:
    """Of no memory."""
    return ()

  def initial_cache(self, batch_size) -> Any:
    """Of no memory."""
    return ()

  def best_action(self, inputs: actor_critic.NetworkInputs, cache: Any
                  ) -> Tuple[Any, Any]:
    """One step: the mode, a sample of `ActionSpace` `[B, ...]`."""
    distribution, _ = self.network(
        self.observe(inputs.observation, 1), step_type=(), network_state=())
    shape = [-1, *self.action_space.action_spec.shape]
    return tf.reshape(distribution.mode(), shape), cache


@config.configurable
class CQLSACAgent(tf.Module):
  """CQL(H) on soft actor-critic (Kumar et al., 2020).

  The critics and all that trains them, the conservative term with it, are those of
  TF-Agents' `CqlSacAgent`. The losses of the actor and of the entropy's weight are
  here, so that the learner takes one step on all of them at once; `CqlSacAgent` would
  take them one after the other, with optimizers of its own.

  Neither actor nor critics have memory, and all of an observation is one vector: this
  is for control from states, not from images.

  The authors' code takes steps of Adam on 256 steps of data, with learning rates of
  3e-4 for the critics and 1e-4 or 3e-4 for the rest, and without weight decay, warm-up,
  decay or clipping.

  Args:
    network: the actor, with its variables.
    critic_units: width of each ReLU layer of the two critics.
    alpha: weight of the conservative term; the authors give 5 or 10.
    lagrange_threshold: if given, the weight begins at alpha and is learned so that the
      term comes to this, tau of the paper's CQL(Lagrange). By default it stays.
    num_samples: how many actions of the actor, and how many uniform ones, the
      conservative term is estimated from, at each step.
    discount: gamma.
    target_update_rate: share by which the target critics move at each learner step.

  The defaults are those of the authors' code for MuJoCo (its README and
  `examples/cql_mujoco_new.py`); the paper's are for older data.
  """

  def __init__(self, network: CQLSACActor,
               critic_units: Sequence[config.PositiveInt] = (256, 256, 256),
               alpha: config.PositiveFloat = 5.0,
               lagrange_threshold: Optional[config.PositiveFloat] = None,
               num_samples: config.PositiveInt = 10,
               discount: config.UnitInterval = 0.99,
               target_update_rate: config.PositiveFraction = 5e-3):
    super().__init__(name='cql_sac')
    self.network = network
    self._discount = discount
    self._lagrange_threshold = lagrange_threshold
    self._log_alpha = tf.Variable(
        np.log(alpha), dtype=tf.float32, name='log_alpha',
        trainable=lagrange_threshold is not None)
    self._log_temperature = tf.Variable(0.0, name='log_temperature')
    actor = network.network
    observation_spec, action_spec = actor.input_tensor_spec, actor.output_tensor_spec
    self._critics = [
        critic_network.CriticNetwork(
            (observation_spec, action_spec), joint_fc_layer_params=tuple(critic_units),
            kernel_initializer='glorot_uniform',
            last_kernel_initializer='glorot_uniform', name=f'critic_{i}')
        for i in range(2)]
    self._sac = cql_sac_agent.CqlSacAgent(
        ts.time_step_spec(observation_spec), action_spec, actor_network=actor,
        critic_network=self._critics[0], critic_network_2=self._critics[1],
        actor_optimizer=None, critic_optimizer=None, alpha_optimizer=None,
        cql_alpha=alpha, use_lagrange_cql_alpha=False, num_cql_samples=num_samples,
        include_critic_entropy_term=False, target_update_tau=target_update_rate,
        train_step_counter=tf.Variable(0, dtype=tf.int64, trainable=False))
    self._sac.initialize()

  @property
  def learned_variables(self):
    """What an optimizer changes: actor, critics, and the weights that are learned."""
    weights = self._log_temperature, self._log_alpha
    return (*self.network.trainable_variables, *self._critic_variables,
            *(weight for weight in weights if weight.trainable))

  @property
  def _critic_variables(self):
    return [x for critic in self._critics for x in critic.trainable_variables]

  def loss(self, batch: agent_lib.Segments) -> Tuple[tf.Tensor, Dict[str, tf.Tensor]]:
    """The loss of a batch, and what is worth watching; of replicas, each one's share.

    What a batch holds at steps that are not valid does not count.

    Returns:
      The sum of all losses, each with a gradient to its own variables, and metrics.
    """
    mask = cql.have_targets(batch.valid, batch.discount)
    step, actions, next_step = self._transitions(batch, mask)
    # Of this replica in a mean over the steps of all; one of none would have no mean.
    share = averages.MaskedMean(mask)(tf.ones_like(batch.reward))
    num_replicas = tf.distribute.get_strategy().num_replicas_in_sync
    alpha, temperature = tf.exp(self._log_alpha), tf.exp(self._log_temperature)

    def critic_losses():
      # pylint: disable=protected-access
      # In this one TF-Agents divides by the number of replicas.
      td_loss = 0.5 * num_replicas * share * (
          self._sac._critic_loss_with_optional_entropy_term(
              step, actions, next_step, tf.math.squared_difference, self._discount))
      conservative_loss = share * self._sac._cql_loss(step, actions)
      return td_loss + alpha * conservative_loss, (td_loss, conservative_loss)

    def actor_losses():
      distribution, _ = self.network.network(step.observation, step.step_type, ())
      sample = distribution.sample()
      log_prob = distribution.log_prob(sample)
      values = [critic((step.observation, sample))[0] for critic in self._critics]
      loss = tf.reduce_mean(temperature * log_prob - tf.minimum(*values))
      return share * loss, -share * tf.reduce_mean(log_prob)

    critic_loss, (td_loss, conservative_loss) = _for(
        self._critic_variables, critic_losses)
    actor_loss, entropy = _for(self.network.trainable_variables, actor_losses)
    # Minus the number of dimensions, as in SAC (Haarnoja et al., 2018b).
    target_entropy = -share * actions.shape[-1]
    temperature_loss = self._log_temperature * tf.stop_gradient(
        entropy - target_entropy)
    loss = critic_loss + actor_loss + temperature_loss
    metrics = {'td_loss': td_loss, 'conservative_loss': conservative_loss,
               'actor_loss': actor_loss, 'entropy': entropy,
               'temperature': share * temperature}
    if self._lagrange_threshold is not None:
      loss -= alpha * tf.stop_gradient(
          conservative_loss - share * self._lagrange_threshold)
      metrics['alpha'] = share * alpha
    return loss, {'loss': loss, **metrics}

  def after_step(self, metrics: Dict[str, Any]) -> Dict[str, tf.Tensor]:
    """Moves the target critics."""
    self._update_target()
    return metrics

  def _transitions(self, batch: agent_lib.Segments, mask: tf.Tensor):
    """The steps to learn from, their actions `[N, C]`, and the steps after them."""
    select = lambda x: tf.boolean_mask(x, mask)
    observation = self.network.observe(batch.observation, 2)
    # A row's last step is learned from only if nothing comes after it.
    after = tf.concat([observation[:, 1:], observation[:, -1:]], axis=1)
    step_type = tf.fill(tf.shape(mask), ts.StepType.MID)
    step = ts.TimeStep(step_type, tf.zeros_like(batch.reward),
                       tf.ones_like(batch.discount), observation)
    next_step = ts.TimeStep(step_type, batch.reward, batch.discount, after)
    actions = tf.reshape(batch.action, [
        *batch.valid.shape, *self.network.network.output_tensor_spec.shape])
    return tf.nest.map_structure(select, (step, actions, next_step))

  @tf.function(autograph=False)
  def _update_target(self) -> None:
    self._sac._update_target()  # pylint: disable=protected-access


def _for(variables: Sequence[tf.Variable], losses: Callable[[], Tuple[tf.Tensor, Any]]
         ) -> Tuple[tf.Tensor, Any]:
  """What `losses()` returns, the first of it with a gradient to `variables` alone."""
  with tf.GradientTape(watch_accessed_variables=False) as tape:
    tape.watch(variables)
    loss, others = losses()
  gradients = tape.gradient(loss, variables)
  linear = tf.add_n([tf.reduce_sum(tf.stop_gradient(gradient) * variable)
                     for gradient, variable in zip(gradients, variables)])
  loss, others = tf.nest.map_structure(tf.stop_gradient, (loss, others))
  return loss + linear - tf.stop_gradient(linear), others
