"""Steps a TensorFlow policy in a batch of environments, for actors and evaluations.

Two more loops play without TensorFlow: `datasets.collect` plays scripted policies, and
`sources.source` plays algorithms that learn in a batch of tasks.
"""

import math
from typing import Any, Callable, List, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf
from tf_agents.trajectories import policy_step
from tf_agents.trajectories import time_step as ts
import tree

from gtrxl_tf import environments


class Rollout:
  """Steps a policy and a batch of environments in turn.

  The policy is compiled once. For a small network, converting each array and looking up
  the trace for a nest of arguments take longer than the step. All inputs of one dtype
  are therefore one vector, and so are all outputs; the state remains in TensorFlow.
  """

  def __init__(self, environment: environments.BatchedEnvironment,
               action: Callable[[ts.TimeStep, Any], policy_step.PolicyStep],
               policy_state: Any, head_starts: Optional[np.ndarray] = None):
    """Resets the environments and compiles the policy.

    Args:
      environment: E environments.
      action: the policy's `action`.
      policy_state: the policy's initial state, for E environments.
      head_starts: see `BatchedEnvironment.reset`.
    """
    self._environment = environment
    self._seen = environment.reset(head_starts)
    self._state_structure = policy_state
    self._state = tf.nest.flatten(policy_state)
    inputs = self._inputs()
    observation = self._seen.observation
    self._packed_inputs = _Packing(inputs)
    vectors = self._packed_inputs.pack(inputs, np.concatenate)

    def flat_action(*flat):
      flat_inputs = self._packed_inputs.unpack(flat[:len(vectors)], tf.reshape)
      step_type, reward, discount, *leaves = flat_inputs
      done = action(
          ts.TimeStep(tf.cast(step_type, tf.int32), reward, discount,
                      tf.nest.pack_sequence_as(observation, leaves)),
          tf.nest.pack_sequence_as(policy_state, flat[len(vectors):]))
      self._done_structure = done._replace(state=())
      outputs = [tf.convert_to_tensor(x) for x in tf.nest.flatten(self._done_structure)]
      self._packed_outputs = _Packing(outputs)
      return [*self._packed_outputs.pack(outputs, lambda x: tf.concat(x, axis=0)),
              *tf.nest.flatten(done.state)]

    self._action = _flat_call(tf.function(
        flat_action, autograph=False).get_concrete_function(
            *(tf.TensorSpec(x.shape, x.dtype) for x in (*vectors, *self._state))))

  def _inputs(self) -> List[np.ndarray]:
    """Returns the policy's inputs. Step types are float32, as most of the others."""
    seen = self._seen
    return [seen.step_type.astype(np.float32), seen.reward, seen.discount,
            *tree.flatten(seen.observation)]

  def restart(self, policy_state: Any) -> None:
    """Resets the environments and sets the policy's state."""
    self._seen = self._environment.reset()
    self.policy_state = policy_state

  @property
  def seen(self) -> environments.BatchedTimeStep:
    """The time steps that the next step answers."""
    return self._seen

  @property
  def policy_state(self) -> Any:
    """The policy's state before the next step. May be replaced."""
    return tf.nest.pack_sequence_as(self._state_structure, self._state)

  @policy_state.setter
  def policy_state(self, state: Any) -> None:
    self._state = [tf.convert_to_tensor(x) for x in tf.nest.flatten(state)]

  def _outputs(self) -> List[tf.Tensor]:
    vectors = self._packed_inputs.pack(self._inputs(), np.concatenate)
    return self._action(*map(tf.constant, vectors), *self._state)

  def warm_up(self) -> None:
    """Runs the policy and drops what it returns: a first call optimizes and compiles.

    The policy must be a function of its inputs, with no other state.
    """
    self._outputs()

  def step(self) -> Tuple[environments.BatchedTimeStep, policy_step.PolicyStep]:
    """Acts once.

    Returns:
      The time steps, and the policy's answer to them as arrays, without its state.
    """
    seen, outputs = self._seen, self._outputs()
    num_vectors = self._packed_outputs.num_vectors
    done = tree.unflatten_as(self._done_structure, self._packed_outputs.unpack(
        [x.numpy() for x in outputs[:num_vectors]], np.reshape))
    self._state = outputs[num_vectors:]
    self._seen = self._environment.step(done.action)
    return seen, done


class _Packing:
  """Packs arrays or tensors of given shapes and dtypes into one vector per dtype.

  Attributes:
    num_vectors: the number of dtypes.
  """

  def __init__(self, examples: Sequence[Any]):
    dtypes = [tf.as_dtype(x.dtype) for x in examples]
    order = list(dict.fromkeys(dtypes))
    self.num_vectors = len(order)
    self._members = [[i for i, dtype in enumerate(dtypes) if dtype == one]
                     for one in order]
    ends = [0] * len(order)
    self._places = []
    for x, dtype in zip(examples, dtypes):
      vector, shape = order.index(dtype), tuple(x.shape)
      start, ends[vector] = ends[vector], ends[vector] + math.prod(shape)
      self._places.append((vector, start, ends[vector], shape))

  def pack(self, leaves: Sequence[Any], concatenate: Callable[[list], Any]) -> List[Any]:
    """Returns the vectors; `concatenate` joins vectors."""
    reshape = np.reshape if isinstance(leaves[0], np.ndarray) else tf.reshape
    return [concatenate([reshape(leaves[i], [-1]) for i in members])
            for members in self._members]

  def unpack(self, vectors: Sequence[Any], reshape: Callable[[Any, tuple], Any]
             ) -> List[Any]:
    """Inverts `pack`."""
    return [reshape(vectors[vector][start:end], shape)
            for vector, start, end, shape in self._places]


def _flat_call(function) -> Callable[..., List[tf.Tensor]]:
  """Returns a faster way to call a concrete function of tensors that returns a list.

  A concrete function binds and checks its arguments at every call, which takes longer
  than calling the function inside it. Where TensorFlow has no such function, it is
  called itself.
  """
  inner = getattr(function, '_inference_function', None)
  if not hasattr(inner, 'call_flat'):
    return function
  captured = function.captured_inputs
  return lambda *tensors: inner.call_flat(*tensors, *captured)
