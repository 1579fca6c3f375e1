"""Memory cores for TF-Agents' own agents, where an LSTM network stood."""

from typing import Any, Callable, Optional

import tensorflow as tf
from tf_agents.networks import network
from tf_agents.trajectories import time_step as ts
from tf_agents.utils import nest_utils

from gtrxl_tf import config
from gtrxl_tf import cores
from gtrxl_tf.networks import torsos


@config.configurable
class CoreNetwork(network.Network):
  """Torso and core as a `tf_agents` network, called like `LSTMEncodingNetwork`.

  It takes `[B, ...]` or `[B, T, ...]`, forgets where a step is FIRST, and its network
  state is the core's. TF-Agents' stock agents unroll from the initial state, so in
  training they see no memory from before the sequence; this library's V-MPO does.

  Args:
    input_tensor_spec: of the observation, without batch.
    core: makes a core. A function, since `copy()` makes another network with its own.
    torso: makes a torso; by default the paper's two tanh layers.
  """

  def __init__(self, input_tensor_spec: Any,
               core: Callable[[], cores.Core] = cores.TransformerXL,
               torso: Callable[[], torsos.Torso] = torsos.VectorTorso,
               name: Optional[str] = None):
    made = core()
    state_spec = tf.nest.map_structure(
        lambda x: tf.TensorSpec(x.shape[1:], x.dtype), made.initial_state(1))
    super().__init__(
        input_tensor_spec, state_spec=state_spec, name=name or 'CoreNetwork')
    self._core = made
    self._torso = torso()

  def call(self, observation, step_type=None, network_state=(), training=False):
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
