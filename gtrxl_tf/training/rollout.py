"""Steps a TensorFlow policy in a batch of environments, for actors and evaluations.

Two more loops play without TensorFlow: `collecting.episodes` plays scripted policies, and
`collecting.source` plays algorithms that learn in a batch of tasks.
"""

import contextlib
import functools
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from absl import logging
import dm_env
import numpy as np
import tensorflow as tf
import tree

from gtrxl_tf import environments
from gtrxl_tf import nests
from gtrxl_tf.agents import policy
from gtrxl_tf.settings import config


class XLAStep(NamedTuple):
  """What a `Rollout` needs to compile a policy's step with XLA.

  Attributes:
    variables: the variables that the step reads. All of one dtype are one argument of
      the compiled step: each argument takes about 3 us of CPU time.
    must_move: maps the state after a step to a bool: whether `move` would change it.
    move: maps the state after a step to that before the next. It is not compiled: XLA
      would copy all of the state at every step.
  """
  variables: Sequence[tf.Variable]
  must_move: Callable[[Any], tf.Tensor]
  move: Callable[[Any], Any]


class Rollout:
  """Steps a policy and a batch of environments in turn.

  The policy is compiled once. For a small network, converting arrays, checking arguments
  and looking up traces take longer than the step: all inputs of one dtype are one vector,
  so are all outputs, and state is in variables, which do not pass through Python.
  """

  def __init__(self, environment: environments.BatchedEnvironment,
               action: Callable[[dm_env.TimeStep, Any], policy.PolicyStep],
               policy_state: Any, head_starts: Optional[np.ndarray] = None,
               xla: Optional[XLAStep] = None):
    """Resets the environments and compiles the policy.

    Args:
      environment: E environments.
      action: the policy's `action`.
      policy_state: the policy's initial state, for E environments.
      head_starts: see `BatchedEnvironment.reset`.
      xla: compiles `action`. Call `read_variables` when its variables have changed.
    """
    self._environment = environment
    variables = xla.variables if xla else []
    packed_variables = nests.Packing(variables)
    self._read_variables = packed_variables.reader(variables) if xla else list
    self._weights: List[tf.Tensor] = []
    self.read_variables()
    self._seen = environment.reset(head_starts)
    self._state = state_variables = tf.nest.map_structure(
        lambda x: tf.Variable(x, trainable=False), policy_state)
    inputs = self._inputs()
    observation = self._seen.observation
    self._packed_inputs = packed_inputs = nests.Packing(inputs)
    vectors = packed_inputs.pack(inputs)
    layout = []  # The outputs' structure and packing, which the trace sets.

    def flat_action(*flat):  # It does not refer to the rollout, see `_mover`.
      flat_inputs = packed_inputs.unpack(flat[:len(vectors)])
      step_type, reward, discount, *leaves = flat_inputs
      state = _values(state_variables)
      with _cached(variables, packed_variables.unpack(flat[len(vectors):])):
        policy_step = action(
            dm_env.TimeStep(tf.cast(step_type, tf.int32), reward, discount,
                        tf.nest.pack_sequence_as(observation, leaves)), state)
      moves = tf.cast(xla.must_move(policy_step.state), tf.int32) if xla else ()
      _assign_changes(state_variables, state, policy_step.state)
      returned = (policy_step._replace(state=()), moves)
      outputs = [tf.convert_to_tensor(x) for x in tf.nest.flatten(returned)]
      layout[:] = returned, nests.Packing(outputs)
      return layout[1].pack(outputs)

    specs = [tf.TensorSpec(x.shape, x.dtype) for x in (*vectors, *self._weights)]
    self._trace = lambda jit_compile: tf.function(
        flat_action, autograph=False, jit_compile=jit_compile
        ).get_concrete_function(*specs)
    self._action = self._trace(bool(xla) or None)
    self._policy_step, self._packed_outputs = layout
    self._move = xla and _mover(self._state, xla.move)

  def _inputs(self) -> List[np.ndarray]:
    """Returns the policy's inputs. Step types are float32, like most of the others."""
    seen = self._seen
    return [seen.step_type.astype(np.float32), seen.reward, seen.discount,
            *tree.flatten(seen.observation)]

  def restart(self, policy_state: Any) -> None:
    """Resets the environments and sets the policy's state."""
    self._seen = self._environment.reset()
    self.policy_state = policy_state

  def read_variables(self) -> None:
    """Takes the values that the variables have now, if XLA compiles the step."""
    nests.free_attributes(self._weights)
    self._weights = self._read_variables()

  @property
  def seen(self) -> environments.BatchedTimeStep:
    """The time steps that the next step answers."""
    return self._seen

  @property
  def policy_state(self) -> Any:
    """The policy's state before the next step. May be replaced."""
    return _values(self._state)

  @policy_state.setter
  def policy_state(self, state: Any) -> None:
    tf.nest.map_structure(lambda x, y: x.assign(y), self._state, state)

  def _outputs(self) -> List[np.ndarray]:
    """Runs the policy; returns its packed outputs."""
    inputs = list(map(tf.constant, self._packed_inputs.pack(self._inputs())))
    outputs = self._action.inference_fn.call_preflattened(
        [*inputs, *self._weights, *self._action.captured_inputs])
    arrays = [x.numpy() for x in outputs]
    nests.free_attributes((*inputs, *outputs))
    return arrays

  def warm_up(self) -> None:
    """Runs the policy and drops what it does: a first call optimizes and compiles."""
    state = self.policy_state
    try:
      self._outputs()
    except tf.errors.InvalidArgumentError as error:
      if not self._move:
        raise
      warn_without_xla(error)
      self._action = self._trace(None)
      self._outputs()
    if self._move:
      self._move()
    self.policy_state = state

  def step(self) -> Tuple[environments.BatchedTimeStep, policy.PolicyStep]:
    """Acts once; returns the time steps, and the policy's answer as arrays, without state."""
    seen = self._seen
    policy_step, moves = tree.unflatten_as(
        self._policy_step, self._packed_outputs.unpack(self._outputs()))
    if self._move and moves:
      self._move()
    self._seen = self._environment.step(policy_step.action)
    return seen, policy_step


def warn_without_xla(error: tf.errors.InvalidArgumentError) -> None:
  """Warns that XLA lacks an operation of a policy; raises an error of another kind."""
  if 'unsupported operations' not in error.message:
    raise error
  logging.warning('acting without XLA, which is slower: %s', config.one_line(error))


def _values(variables: Any) -> Any:
  """Returns the values of a nest of variables."""
  return tf.nest.map_structure(lambda x: x.read_value(), variables)


def _assign_changes(variables: Any, old: Any, new: Any) -> None:
  """Assigns only values that are new tensors: XLA would copy unchanged ones too."""
  for variable, x, y in zip(*map(tf.nest.flatten, (variables, old, new))):
    if x is not y:
      variable.assign(y)


def _mover(variables: Any, move: Callable[[Any], Any]) -> Callable[[], None]:
  """Returns a function that applies `move` to a nest of variables."""
  # It does not refer to the rollout, whose environments would otherwise live on until
  # garbage is collected, perhaps in a thread that must not close their renderers.
  @functools.partial(tf.function, autograph=False)
  def moved():
    state = _values(variables)
    _assign_changes(variables, state, move(state))

  return moved


@contextlib.contextmanager
def _cached(variables: Sequence[tf.Variable], values: Sequence[tf.Tensor]
            ) -> Iterator[None]:
  """Lets a trace read `values` in place of the variables, where it reads them whole."""
  # pylint: disable=protected-access
  for variable, value in zip(variables, values):
    variable._cached_value = value
  try:
    yield
  finally:
    for variable in variables:
      variable._cached_value = None
