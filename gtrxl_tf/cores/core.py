"""What every memory core is: the protocol between cores and the rest of the library."""

import abc
from typing import Any

import tensorflow as tf

# A nest of tensors whose leading axis is the batch.
State = Any
Cache = Any
Records = Any


def build_layer(layer: tf.keras.layers.Layer, input_shape) -> None:
  """Builds a sub-layer of which the owner knows the input shape, under its name."""
  with tf.name_scope(layer.name):
    layer.build(input_shape)


class Core(tf.keras.layers.Layer, metaclass=abc.ABCMeta):
  """Turns `[B, T, D]` inputs into `[B, T, D']` outputs while carrying a state.

  A core runs in two forms that compute the same function:

    outputs, state = core(inputs, is_first, state)        # unroll, for learning
    outputs, cache = core.step(inputs, is_first, cache)   # one step, for acting

  `is_first` is true on the first step of an episode: that step and those after it
  see nothing that came before, whatever the state holds.

  Neither form needs to hand its state to the other. What a learner needs to rebuild
  the state before an unroll are the *records* of the `memory_length` steps before it:
  acting leaves one record a step in its cache, replay keeps them, `restore` makes a
  state of them, and `cache` the acting form of a state. After its weights have changed
  an actor does the same, so that it never mixes keys of two sets of weights.

  The conformance suite (`conformance_test.py`) holds every core to three equalities:
  an unroll of 2T equals two of T; T steps equal an unroll of T; an unroll with resets
  equals its episodes run apart.
  """

  @property
  @abc.abstractmethod
  def output_size(self) -> int:
    """Width `D'` of the outputs."""

  @property
  @abc.abstractmethod
  def memory_length(self) -> int:
    """How many past steps' records restore a state; 0 for a core without memory, or
    one whose state no records restore."""

  @property
  def segment_length(self) -> int:
    """Unrolls are of so many steps, or a multiple, and acting keeps to the same cuts.

    1 for a core of which an unroll may start and end anywhere.
    """
    return 1

  @abc.abstractmethod
  def initial_state(self, batch_size) -> State:
    """The state before anything was seen."""

  def empty_state(self, batch_size) -> State:
    """The initial state in its smallest form.

    An unroll gives the same outputs from it as from `initial_state`, perhaps with less
    work. The shapes of the two may differ.
    """
    return self.initial_state(batch_size)

  @abc.abstractmethod
  def call(self, inputs: tf.Tensor, is_first: tf.Tensor, state: State):
    """Unrolls over `inputs` `[B, T, D]`, `is_first` `[B, T]`.

    Returns:
      Outputs `[B, T, D']` and the state after the last step.
    """

  def step(self, inputs: tf.Tensor, is_first: tf.Tensor, cache: Cache):
    """One step: `inputs` `[B, D]`, `is_first` `[B]`.

    Returns:
      Outputs `[B, D']` and the cache after the step.
    """
    if not self.built:
      self.build(tf.TensorShape([None, None, inputs.shape[-1]]))
    return self._step(
        tf.cast(inputs, self.compute_dtype), tf.cast(is_first, tf.bool), cache)

  @abc.abstractmethod
  def _step(self, inputs: tf.Tensor, is_first: tf.Tensor, cache: Cache):
    """`step`, with inputs cast and variables built."""

  @abc.abstractmethod
  def cache(self, state: State) -> Cache:
    """The acting form of `state`, for the present weights (which must be built)."""

  def initial_cache(self, batch_size) -> Cache:
    """The cache before anything was seen."""
    return self.cache(self.initial_state(batch_size))

  @abc.abstractmethod
  def record(self, cache: Cache) -> Records:
    """What the step that returned `cache` adds to memory: a nest of `[B, ...]`."""

  @abc.abstractmethod
  def restore(self, records: Records, is_first: tf.Tensor) -> State:
    """The state after `memory_length` steps.

    Args:
      records: the steps' records, `[B, memory_length, ...]`, oldest first. What
        precedes the first step of an actor's life may be anything.
      is_first: the same steps' flags, `[B, memory_length]`.
    """
