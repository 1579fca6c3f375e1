"""The interface of a memory core, and small pieces that several cores share."""

import abc
from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

import tensorflow as tf

from gtrxl_tf.cores import saving

# Nests of tensors whose leading axis is the batch.
State = Any
Cache = Any
Records = Any

# Of an attention layer, each `[B, H, S, d]`.
KeysAndValues = Tuple[tf.Tensor, tf.Tensor]

BatchSize = Union[int, tf.Tensor]


def build_layer(layer: tf.keras.layers.Layer, input_shape) -> None:
  """Builds a sub-layer from its input shape, with its name in its variables' names."""
  with tf.name_scope(layer.name):
    layer.build(input_shape)


class LayerNorm(tf.keras.layers.LayerNormalization):
  """Layer norm over the last axis, in float32.

  Keras' own layer accepts only inputs of the rank that it was built for.
  """

  def normalize(self, inputs: tf.Tensor) -> tf.Tensor:
    """The norm of `[..., D]` before `gamma` and `beta` are applied."""
    return tf.cast(self._normalize(inputs), inputs.dtype)

  def _normalize(self, inputs):
    x = tf.cast(inputs, tf.float32)
    x -= tf.reduce_mean(x, axis=-1, keepdims=True)
    variance = tf.reduce_mean(tf.square(x), axis=-1, keepdims=True)
    return x * tf.math.rsqrt(variance + self.epsilon)

  def call(self, inputs: tf.Tensor) -> tf.Tensor:
    gamma, beta = (tf.cast(x, tf.float32) for x in (self.gamma, self.beta))
    return tf.cast(self._normalize(inputs) * gamma + beta, inputs.dtype)


def layer_norm(name: str) -> LayerNorm:
  """A layer norm with PyTorch's epsilon."""
  return LayerNorm(epsilon=1e-5, name=name)


def make_embedding(input_shape, width: int) -> Callable[[tf.Tensor], tf.Tensor]:
  """A linear embedding, built, or the identity if inputs are `width` wide already."""
  if input_shape[-1] == width:
    return _as_is
  embedding = tf.keras.layers.Dense(width, name='embedding')
  build_layer(embedding, input_shape)
  return embedding


def _as_is(inputs: tf.Tensor) -> tf.Tensor:
  return inputs


def segment_slices(unroll_length: int, segment_length: int) -> List[slice]:
  """The steps of each segment of an unroll.

  Raises:
    ValueError: the unroll does not consist of complete segments.
  """
  if unroll_length % segment_length:
    raise ValueError(f'inputs have {unroll_length} steps: expected a multiple of '
                     f'segment_length = {segment_length}')
  return [slice(start, start + segment_length)
          for start in range(0, unroll_length, segment_length)]


def swap_time_and_batch(x: tf.Tensor) -> tf.Tensor:
  """`[B, T, ...]` to `[T, B, ...]`, and back."""
  return tf.transpose(x, [1, 0, *range(2, x.shape.rank)])


def _shape(name: str, x: Any, sizes: Sequence[Any], expected: str
           ) -> Sequence[Optional[int]]:
  """The sizes of an argument's leading axes, so far as they are known.

  Args:
    name: of the argument.
    x: tensor, array, or nested list, whose shape is not known.
    sizes: of each axis; None admits any. Further axes may follow a last `...`.
    expected: the shape as text.

  Raises:
    ValueError: the shape differs.
  """
  if hasattr(x, '_fields'):  # A state.
    raise ValueError(f'{name} of type {type(x).__name__}: expected {expected}')
  more = sizes[-1:] == (...,)
  sizes = sizes[:-1] if more else sizes
  shape = tf.TensorShape(getattr(x, 'shape', None))
  unknown = (None,) * len(sizes)
  if shape.rank is None:
    return unknown
  if not (shape[:len(sizes)] if more else shape).is_compatible_with(sizes):
    known = ' with ' + ', '.join(
        f'{letter} = {size}' for letter, size in zip('BT', sizes) if size)
    raise ValueError(f'{name} of shape {tuple(shape)}: expected {expected}'
                     f'{known if any(sizes) else ""}')
  return tuple(shape[:len(sizes)])


class Core(saving.SavableLayer, metaclass=abc.ABCMeta):
  """Maps `[B, T, D]` inputs to `[B, T, D']` outputs and carries a state.

  A core has two forms, which compute the same function:

    outputs, state = core(inputs, is_first, state)        # unroll, for learning
    outputs, cache = core.step(inputs, is_first, cache)   # one step, for acting

  `is_first` is true on the first step of an episode. This step and those after it
  see nothing from before it, whatever the state holds.

  The two forms do not exchange states. To rebuild the state before an unroll, a
  learner needs the *records* of the `memory_length` steps before it: each step of
  acting leaves one record in its cache, replay stores the records, `restore` turns
  them into a state, and `cache` turns a state into its acting form. An actor does the
  same after its weights change, so that it never mixes keys from two sets of weights.

  In a functional Keras model the state is a nest of inputs, as in
  `examples/keras_model.py`. Keras saves and loads models that use a core.

  The conformance suite (`conformance_test.py`) checks three equalities for every core:
  one unroll of 2T steps equals two of T; T steps equal an unroll of T; an unroll with
  resets equals its episodes run separately.
  """

  @property
  @abc.abstractmethod
  def output_size(self) -> int:
    """Width `D'` of the outputs."""

  @property
  @abc.abstractmethod
  def memory_length(self) -> int:
    """Number of past steps whose records restore a state.

    0 for a core without memory, and for one whose state records cannot restore.
    """

  @property
  def segment_length(self) -> int:
    """Steps per segment; 1 if an unroll may start and end anywhere.

    Unrolls consist of complete segments, and acting cuts at the same steps.
    """
    return 1

  _drops = False

  @property
  def drops(self) -> bool:
    """Whether the core applies dropout where Keras' `training` is true."""
    return self._drops

  @abc.abstractmethod
  def initial_state(self, batch_size: BatchSize) -> State:
    """The state before the first step of an episode."""

  def empty_state(self, batch_size: BatchSize) -> State:
    """The initial state in its smallest form.

    An unroll from it gives the same outputs as one from `initial_state`, perhaps at
    less cost. The shapes of the two may differ.
    """
    return self.initial_state(batch_size)

  def __call__(self, inputs, is_first, state, **kwargs):
    # A functional model that Keras loads has lists in place of named tuples.
    if isinstance(state, list):
      state = tf.nest.pack_sequence_as(
          self.initial_state(1), tf.nest.flatten(state))
    batch, steps, _ = _shape('inputs', inputs, (None, None, None), '[B, T, D]')
    _shape('is_first', is_first, (batch, steps), '[B, T], as inputs')
    for part in tf.nest.flatten(state)[:1]:
      _shape('state', part, (batch, ...), '[B, ...], as inputs')
    return super().__call__(inputs, is_first, state, **kwargs)

  @abc.abstractmethod
  def call(self, inputs: tf.Tensor, is_first: tf.Tensor, state: State
           ) -> Tuple[tf.Tensor, State]:
    """Unrolls over `inputs` `[B, T, D]`, `is_first` `[B, T]`.

    Returns:
      Outputs `[B, T, D']` and the state after the last step.
    """

  def step(self, inputs: tf.Tensor, is_first: tf.Tensor, cache: Cache,
           move: bool = True) -> Tuple[tf.Tensor, Cache]:
    """Takes one step.

    Args:
      inputs: `[B, D]`.
      is_first: `[B]`.
      cache: the cache before the step.
      move: whether to apply `move` to the new cache. If not, the caller does so.

    Returns:
      Outputs `[B, D']` and the cache after the step.
    """
    batch, _ = _shape('inputs', inputs, (None, None), '[B, D]')
    _shape('is_first', is_first, (batch,), '[B], as inputs')
    if not self.built:
      self.build(tf.TensorShape([None, None, inputs.shape[-1]]))
    outputs, cache = self._step(
        tf.cast(inputs, self.compute_dtype), tf.cast(is_first, tf.bool), cache)
    return outputs, self.move(cache) if move else cache

  def move(self, cache: Cache) -> Cache:
    """Makes room in a cache that a step has filled; most steps leave it as it is.

    It is separate from the step because XLA copies the results of a condition, and so
    would copy the cache at every step. A caller that compiles the step returns only the
    tensors that differ from the old cache's, as XLA also copies unchanged ones.
    """
    return cache

  def must_move(self, cache: Cache) -> tf.Tensor:
    """A bool: whether `move` changes a cache that comes from a step."""
    del cache
    return tf.constant(False)

  @abc.abstractmethod
  def _step(self, inputs: tf.Tensor, is_first: tf.Tensor, cache: Cache
            ) -> Tuple[tf.Tensor, Cache]:
    """Implements `step`, after inputs are cast and variables built."""

  @abc.abstractmethod
  def cache(self, state: State) -> Cache:
    """The acting form of `state` for the current weights, which must be built."""

  def initial_cache(self, batch_size: BatchSize) -> Cache:
    """The cache before the first step of an episode; see `cache`.

    Raises:
      ValueError: the core needs its variables for it, and is not built.
    """
    try:
      return self.cache(self.initial_state(batch_size))
    except AttributeError as error:
      if self.built:
        raise
      raise ValueError(
          f'{self.name} has no variables yet, of which its cache is made: expected a '
          'call of build([None, None, D]), or of the core, before') from error

  @abc.abstractmethod
  def record(self, cache: Cache) -> Records:
    """The memory record of the step that returned `cache`, a nest of `[B, ...]`."""

  @abc.abstractmethod
  def restore(self, records: Records, is_first: tf.Tensor) -> State:
    """The state after `memory_length` steps.

    Args:
      records: the steps' records, `[B, memory_length, ...]`, oldest first. Those from
        before an actor's first step may hold anything.
      is_first: the same steps' flags, `[B, memory_length]`.
    """
