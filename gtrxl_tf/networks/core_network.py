"""Memory cores for the agents of TF-Agents."""

from typing import Any, Callable, Optional, Tuple, Union

import dm_env
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf.environments import optional
from gtrxl_tf.networks import tensor_specs
from gtrxl_tf.networks import torsos
import gtrxl_tf.networks.before_tf_agents  # noqa: F401
from gtrxl_tf.settings import config

network = optional.load('tf_agents.networks.network', 'CoreNetwork', 'online')
nest_utils = optional.load('tf_agents.utils.nest_utils', 'CoreNetwork', 'online')


@config.configurable
class CoreNetwork(network.Network):
  """A torso, a core and a head as a `tf_agents` network, for TF-Agents' own agents.

  It is used like `LSTMEncodingNetwork`: it accepts `[B, ...]` and `[B, T, ...]`, clears
  its memory at steps that are FIRST, and has the core's state as its network state.
  TF-Agents' agents unroll from the initial state, so in training they see no memory
  from before the sequence. This library's V-MPO does.

  >>> import functools
  >>> import tensorflow as tf
  >>> from gtrxl_tf import cores
  >>> from gtrxl_tf import networks
  >>> network = networks.CoreNetwork(
  ...     tf.TensorSpec([5]), torso=functools.partial(networks.VectorTorso, [8]),
  ...     core=functools.partial(
  ...         cores.TransformerXL, 1, 8, num_heads=2, head_dim=4, memory_length=4))
  >>> outputs, state = network(tf.zeros([2, 6, 5]))
  >>> outputs.shape
  TensorShape([2, 6, 8])

  A head makes this the network of an agent. `examples/tf_agents_dqn.py` gives a DQN
  `head=functools.partial(tf.keras.layers.Dense, num_actions)`;
  `examples/tf_agents_ppo.py` gives PPO one network with TF-Agents'
  `CategoricalProjectionNetwork`, whose outputs are distributions, and one with a value.

  In gin, `@CoreNetwork` makes a network from an observation's spec; `CoreNetwork.core`
  and `CoreNetwork.torso` are then bound to functions, such as `@TransformerXL`.

  Args:
    input_tensor_spec: spec of the observation, without batch.
    core: makes a core. It is a function, as torso and head are, because `copy()` makes
      a network with new variables.
    torso: makes a torso, by default the paper's two tanh layers, or a network of
      TF-Agents without state, such as an `EncodingNetwork` with preprocessing layers
      for a nest of observations.
    head: makes a Keras layer or a projection network of TF-Agents that is applied to
      the core's outputs, or a nest of these. Without one the outputs are the core's.
  """

  def __init__(self, input_tensor_spec: Any,
               core: Callable[[], cores.Core] = cores.TransformerXL,
               torso: Callable[[], Union[torsos.Torso, network.Network]] = (
                   torsos.VectorTorso),
               name: Optional[str] = None,
               head: Optional[Callable[[], Any]] = None):
    for argument, make in ('core', core), ('torso', torso), ('head', head):
      if isinstance(make, tf.Module) or make is not None and not callable(make):
        raise config.ConfigError(
            f'CoreNetwork.{argument} = {make!r:.80}: expected a function that makes one')
    made = core()
    if not isinstance(made, cores.Core):
      raise config.ConfigError(
          f'CoreNetwork.core makes a {type(made).__name__}: expected a core')
    if made.segment_length > 1:
      raise config.ConfigError(
          f'CoreNetwork.core makes a {type(made).__name__} with segments of '
          f'{made.segment_length} steps: expected a core that can be unrolled by one '
          'step, such as TransformerXL')
    embeds = torso()
    if not isinstance(embeds, (torsos.Torso, network.Network)):
      raise config.ConfigError(
          f'CoreNetwork.torso makes a {type(embeds).__name__}: expected a Torso, such as '
          'VectorTorso, or a network of TF-Agents')
    super().__init__(
        input_tensor_spec, state_spec=tensor_specs.without_batch(made.initial_state(1)),
        name=name or 'CoreNetwork')
    self._core = made
    self._torso = embeds
    self._head = head and head()

  def call(self, observation: Any, step_type: Optional[tf.Tensor] = None,
           network_state: Any = (), training: bool = False) -> Tuple[Any, Any]:
    """Returns the head's outputs for `[B, ...]` or `[B, T, ...]`, and the next state."""
    one_step = not nest_utils.is_batched_nested_tensors(
        observation, self.input_tensor_spec, num_outer_dims=2,
        allow_extra_fields=True)
    if one_step:
      observation = tf.nest.map_structure(lambda x: x[:, tf.newaxis], observation)
      if step_type is not None:
        step_type = step_type[:, tf.newaxis]
    embedded = self._embed(observation, step_type, training)
    if step_type is None:
      is_first = tf.zeros(tf.shape(embedded)[:2], tf.bool)
      is_first = tf.ensure_shape(is_first, embedded.shape[:2])
    else:
      is_first = tf.equal(step_type, int(dm_env.StepType.FIRST))
    if network_state is None or isinstance(network_state, tuple) and not network_state:
      network_state = self._core.initial_state(tf.shape(embedded)[0])
    outputs, network_state = self._core(embedded, is_first, network_state)
    outputs = outputs[:, 0] if one_step else outputs
    if self._head is None:
      return outputs, network_state
    def apply(head):
      if isinstance(head, network.Network):
        return head(outputs, outer_rank=1 if one_step else 2, training=training)[0]
      return head(outputs)
    return tf.nest.map_structure(apply, self._head), network_state

  def _embed(self, observation, step_type, training):
    if isinstance(self._torso, network.Network):
      return self._torso(observation, step_type=step_type, training=training)[0]
    return self._torso(observation, 2)
