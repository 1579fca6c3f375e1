"""Memory cores for the agents of TF-Agents."""

from typing import Any, Callable, Optional, Tuple

import tensorflow as tf
from tf_agents.networks import network
from tf_agents.trajectories import time_step as ts
from tf_agents.utils import nest_utils

from gtrxl_tf import config
from gtrxl_tf import cores
from gtrxl_tf import specs
from gtrxl_tf.networks import torsos


@config.configurable
class CoreNetwork(network.Network):
  """A torso and a core as a `tf_agents` network, used like `LSTMEncodingNetwork`.

  It accepts `[B, ...]` and `[B, T, ...]`, clears its memory at steps that are FIRST,
  and has the core's state as its network state. TF-Agents' agents unroll from the
  initial state, so in training they see no memory from before the sequence. This
  library's V-MPO does.

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

  With a Q head it is the network of TF-Agents' DQN, for example:

  >>> from tf_agents.networks import sequential
  >>> q_network = sequential.Sequential(
  ...     [network, tf.keras.layers.Dense(3)], input_spec=tf.TensorSpec([5]))

  In gin, `@CoreNetwork` makes one from an observation's spec; `CoreNetwork.core` and
  `CoreNetwork.torso` are then bound to functions, such as `@TransformerXL`.

  Args:
    input_tensor_spec: spec of the observation, without batch.
    core: makes a core. It is a function because `copy()` makes a network with new
      variables.
    torso: makes a torso; by default the paper's two tanh layers.
  """

  def __init__(self, input_tensor_spec: Any,
               core: Callable[[], cores.Core] = cores.TransformerXL,
               torso: Callable[[], torsos.Torso] = torsos.VectorTorso,
               name: Optional[str] = None):
    made = core()
    super().__init__(
        input_tensor_spec, state_spec=specs.without_batch(made.initial_state(1)),
        name=name or 'CoreNetwork')
    self._core = made
    self._torso = torso()

  def call(self, observation: Any, step_type: Optional[tf.Tensor] = None,
           network_state: Any = (), training: bool = False) -> Tuple[tf.Tensor, Any]:
    """Returns the core's outputs, `[B, D]` or `[B, T, D]`, and its next state."""
    del training
    one_step = not nest_utils.is_batched_nested_tensors(
        observation, self.input_tensor_spec, num_outer_dims=2,
        allow_extra_fields=True)
    if one_step:
      observation = tf.nest.map_structure(lambda x: x[:, tf.newaxis], observation)
      if step_type is not None:
        step_type = step_type[:, tf.newaxis]
    embedded = self._torso(observation, 2)
    if step_type is None:
      is_first = tf.zeros(tf.shape(embedded)[:2], tf.bool)
      is_first = tf.ensure_shape(is_first, embedded.shape[:2])
    else:
      is_first = tf.equal(step_type, ts.StepType.FIRST)
    if network_state in ((), None):
      network_state = self._core.initial_state(tf.shape(embedded)[0])
    outputs, network_state = self._core(embedded, is_first, network_state)
    return outputs[:, 0] if one_step else outputs, network_state
