"""The interface of a memory core, and small pieces that several cores share."""

import abc
from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

import tensorflow as tf

from gtrxl_tf.cores import arguments as arguments_lib
from gtrxl_tf.cores import saving

# Nests of tensors whose leading axis is the batch.
State = Any
Cache = Any
Records = Any

# The keys and values of an attention layer, each `[B, H, S, d]`.
KeysAndValues = Tuple[tf.Tensor, tf.Tensor]

BatchSize = Union[int, tf.Tensor]

# The default of a call's state, since None means the initial one. It is text because a
# SavedModel must store it.
_LEFT_OUT = 'left out'


def build_layer(layer: tf.keras.layers.Layer, input_shape) -> None:
  """Builds a sub-layer from its input shape, with its name in its variables' names."""
  with tf.name_scope(layer.name):
    layer.build(input_shape)
  layer.built = True  # As Keras does, for a `build` that does not call super().build.


class LayerNorm(tf.keras.layers.LayerNormalization):
  """Layer norm over the last axis, in float32.

  Keras' own layer accepts only inputs of the rank that it was built for.
  """

  def normalize(self, inputs: tf.Tensor) -> tf.Tensor:
    """Normalizes `[..., D]`, without `gamma` and `beta`."""
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
  """Makes a layer norm with PyTorch's epsilon."""
  return LayerNorm(epsilon=1e-5, name=name)


def make_embedding(input_shape, width: int) -> Callable[[tf.Tensor], tf.Tensor]:
  """Builds a linear embedding; returns the identity if inputs are `width` wide."""
  if input_shape[-1] == width:
    return lambda inputs: inputs
  embedding = tf.keras.layers.Dense(width, name='embedding')
  build_layer(embedding, input_shape)
  return embedding


def segment_slices(unroll_length: int, segment_length: int) -> List[slice]:
  """Returns the steps of each segment of an unroll."""
  if unroll_length % segment_length:
    raise ValueError(
        f'inputs have {unroll_length} steps: expected a multiple of segment_length = '
        f'{segment_length}; another segment_length, or a call without a state, takes '
        'them')
  return [slice(start, start + segment_length)
          for start in range(0, unroll_length, segment_length)]


def swap_time_and_batch(x: tf.Tensor) -> tf.Tensor:
  """Transposes `[B, T, ...]` to `[T, B, ...]`, and back."""
  return tf.transpose(x, [1, 0, *range(2, x.shape.rank)])


def _is_left_out(state: Any) -> bool:
  return isinstance(state, str) and state == _LEFT_OUT


class Core(saving.SavableLayer, metaclass=abc.ABCMeta):
  """Maps `[B, T, D]` inputs to `[B, T, D']` outputs and carries a state.

  A core has two forms, which compute the same function:

  ```python
  outputs, state = core(inputs, is_first, state)        # unroll, for learning
  outputs, cache = core.step(inputs, is_first, cache)   # one step, for acting
  ```

  `is_first` is true on the first step of an episode. This step and those after it see
  nothing from before it, whatever the state holds from -1e20 to 1e20 (float16: -1e4 to
  1e4). If `is_first` is left out or None, no episode begins within the unroll.

  The first state is `core.initial_state(batch_size)`, or None. If the state is left
  out, an unroll also begins with the initial one, has any number of steps, and returns
  only outputs, as a layer of `tf.keras.Sequential` does:

  ```python
  outputs = core(inputs)
  outputs = core(inputs, is_first)
  outputs, state = core(inputs, is_first, None)
  ```

  The first cache is `core.initial_cache(batch_size)`.

  The two forms do not exchange states. To rebuild the state before an unroll, a
  learner needs the *records* of the `memory_length` steps before it: each step of
  acting leaves one record in its cache, replay stores the records, `restore` turns
  them into a state, and `cache` turns a state into its acting form. An actor does the
  same after its weights change, so that it never mixes keys from two sets of weights.

  If the state is left out, the steps that Keras masks are skipped: the others have the
  outputs of the sequence without them. Otherwise padding belongs at a sequence's end.
  Keras passes the mask on to the layers and losses after a core.

  Keras saves and loads models that use a core. In a functional model, a state is a nest
  of inputs, as in `examples/keras_model.py`. A core takes `name`, but no other of a
  layer's usual arguments: its dtype is that of the global policy when it is made.

  A subclass implements `_unroll`, `_step` and, where acting has a form of its own,
  `_cache`, `record` and `restore`; `docs/cores.md` has an example. The conformance
  suite (`conformance_test.py`) checks three equalities for every core: one unroll of 2T
  steps equals two of T; T steps equal an unroll of T; an unroll with resets equals its
  episodes run separately.
  """

  _input_width: Optional[int] = None  # D, once the core is built.
  _drops = False
  _unknown_length = False  # True if a graph need not know T.

  def __init__(self, *args, **kwargs):
    super().__init__(*args, **kwargs)
    self.supports_masking = True  # Later layers and losses get the mask of Keras.

  def build(self, input_shape) -> None:
    self._input_width = input_shape[-1]
    super().build(input_shape)

  @property
  @abc.abstractmethod
  def output_size(self) -> int:
    """Width `D'` of the outputs."""

  @property
  def memory_length(self) -> int:
    """Number of past steps whose records restore a state; here 1.

    It is 0 for a core without memory, and for one whose records cannot restore its
    state.
    """
    return 1

  @property
  def segment_length(self) -> int:
    """Steps per segment; 1 if an unroll may start and end anywhere.

    Unrolls that return a state consist of complete segments, and acting cuts at the
    same steps.
    """
    return 1

  @property
  def drops(self) -> bool:
    """Whether the core applies dropout where Keras' `training` is true."""
    return self._drops

  @abc.abstractmethod
  def initial_state(self, batch_size: BatchSize) -> State:
    """Returns the state before the first step of an episode."""

  def empty_state(self, batch_size: BatchSize) -> State:
    """Returns the initial state in its smallest form.

    An unroll from it gives the same outputs as one from `initial_state`, perhaps at
    less cost. The shapes of the two may differ.
    """
    return self.initial_state(batch_size)

  def __call__(self, inputs, is_first=None, state=_LEFT_OUT, **kwargs):
    inputs = arguments_lib.from_list(inputs)
    batch, steps, _ = arguments_lib.check(
        'inputs', inputs, (None, None, self._input_width), '[B, T, D]')
    if steps == 0:
      raise ValueError('inputs have 0 steps: expected at least one')
    if steps is None and not self._unknown_length and hasattr(inputs, 'shape'):
      raise ValueError('inputs have an unknown number of steps T: expected a known one, '
                       'as in tf.keras.Input([T, D]). After a second T, Keras\' fit and '
                       'predict pass None: call the model itself, or pad to one T')
    arguments = {}
    if is_first is not None:
      arguments_lib.check('is_first', is_first, (batch, steps), '[B, T], as inputs')
      arguments['is_first'] = is_first
    if not _is_left_out(state):
      if steps:
        segment_slices(steps, self.segment_length)
      arguments['state'] = (
          None if state is None else self._fitted_state(state, batch))
    if hasattr(inputs, '_keras_history'):  # Symbolic, in a functional model.
      for name, value in arguments.items():
        if not all(hasattr(x, '_keras_history') for x in tf.nest.flatten(value)
                   if x is not None):
          raise ValueError(
              f'{name} is a constant in a functional model: expected None or inputs of '
              'the model')
    return super().__call__(inputs, **arguments, **kwargs)

  def call(self, inputs: tf.Tensor, is_first: Optional[tf.Tensor] = None,
           state: Optional[State] = _LEFT_OUT, training: Optional[bool] = None,
           mask: Optional[tf.Tensor] = None) -> Any:
    """Unrolls over `inputs` `[B, T, D]` with `is_first` and Keras' `mask`, `[B, T]`.

    Returns:
      Outputs `[B, T, D']`, and the state after the last step unless `state` is left
      out.

    Raises:
      ValueError: an argument has another shape, or the state is not this core's.
    """
    mask = getattr(inputs, '_keras_mask', None) if mask is None else mask
    inputs = tf.cast(inputs, self.compute_dtype)
    if is_first is None:
      is_first = tf.zeros_like(inputs[:, :, 0], tf.bool)
    is_first = tf.cast(is_first, tf.bool)
    batch_size = inputs.shape[0] or tf.shape(inputs)[0]
    if state is None:
      state = self.initial_state(batch_size)
    if not _is_left_out(state):
      return self._unrolled(inputs, is_first, state, training)
    if mask is not None:  # Masked steps come last, where no other step sees them.
      order = tf.argsort(tf.cast(mask, tf.int32), 1, 'DESCENDING', stable=True)
      inputs, is_first = (tf.gather(x, order, batch_dims=1) for x in (inputs, is_first))
    num_steps = inputs.shape[1]
    if self.segment_length > 1:  # No step sees the padding of the last segment.
      missing = -num_steps % self.segment_length
      inputs = tf.pad(inputs, [[0, 0], [0, missing], [0, 0]])
      is_first = tf.pad(is_first, [[0, 0], [0, missing]])
    outputs, _ = self._unrolled(
        inputs, is_first, self.empty_state(batch_size), training)
    outputs = outputs[:, :num_steps]
    return outputs if mask is None else tf.gather(outputs, tf.argsort(order), batch_dims=1)

  def _unrolled(self, inputs, is_first, state, training):
    """Calls `_unroll`, and checks the outputs and the state that it returns."""
    returned = self._unroll(inputs, is_first, state, training)
    outputs, state = self._pair('_unroll', returned, inputs.shape[:2], "[B, T, D']")
    return outputs, self._fitted_state(state, inputs.shape[0], "_unroll's state")

  def _pair(self, method: str, returned: Any, axes: Sequence[Optional[int]],
            expected: str) -> Tuple[tf.Tensor, Any]:
    """Checks what a subclass's method returned, and returns it."""
    name = f'{type(self).__name__}.{method}'
    if not (isinstance(returned, tuple) and len(returned) == 2):
      raise ValueError(f'{name} returned {type(returned).__name__}: expected a pair of '
                       'outputs and state or cache')
    arguments_lib.check(
        f'outputs of {name}', returned[0], (*axes, self.output_size), expected)
    return returned

  @abc.abstractmethod
  def _unroll(self, inputs: tf.Tensor, is_first: tf.Tensor, state: State,
              training: Optional[bool]) -> Tuple[tf.Tensor, State]:
    """Implements a call, after inputs are cast and variables built.

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

    Raises:
      ValueError: an argument has another shape, or the cache is not this core's.
    """
    inputs = arguments_lib.from_list(inputs)
    batch, _ = arguments_lib.check(
        'inputs', inputs, (None, self._input_width), '[B, D]')
    arguments_lib.check('is_first', is_first, (batch,), '[B], as inputs')
    if not self.built:
      self.build(tf.TensorShape([None, None, inputs.shape[-1]]))
      self.built = True
    specs = self._specs(self.initial_cache)
    source = f'core.initial_cache({batch or "batch_size"})'
    cache = arguments_lib.fitted(
        'cache', cache, specs, batch, f'{source} or core.cache(state)')
    returned = self._step(
        tf.cast(inputs, self.compute_dtype), tf.cast(is_first, tf.bool), cache)
    outputs, cache = self._pair('_step', returned, [batch], "[B, D']")
    cache = arguments_lib.fitted("_step's cache", cache, specs, batch, source)
    return outputs, self.move(cache) if move else cache

  def move(self, cache: Cache) -> Cache:
    """Makes room in a cache that steps have filled; after most steps it does nothing.

    It is separate from the step because XLA copies the results of a condition, and so
    would copy the cache at every step. A caller that compiles the step returns only the
    tensors that differ from the old cache's, as XLA also copies unchanged ones.
    """
    return cache

  def must_move(self, cache: Cache) -> tf.Tensor:
    """Returns a bool tensor: whether `move` changes a cache that comes from a step."""
    del cache
    return tf.constant(False)

  @abc.abstractmethod
  def _step(self, inputs: tf.Tensor, is_first: tf.Tensor, cache: Cache
            ) -> Tuple[tf.Tensor, Cache]:
    """Implements `step`, after inputs are cast and variables built."""

  def cache(self, state: State) -> Cache:
    """Returns the acting form of `state` for the current weights.

    Raises:
      ValueError: the state is not this core's, or the core has no variables yet.
    """
    if not self.built and type(self)._cache is not Core._cache:
      raise ValueError(
          f'{self.name} has no variables yet, which its cache needs: expected a call of '
          'build([None, None, D]) or of the core first')
    return self._cache(self._fitted_state(state, None))

  def _cache(self, state: State) -> Cache:
    """Implements `cache`; returns the state itself unless overridden."""
    return state

  def initial_cache(self, batch_size: BatchSize) -> Cache:
    """Returns the cache before the first step of an episode; see `cache`."""
    return self.cache(self.initial_state(batch_size))

  def _fitted_state(self, state, batch_size, name='state'):
    """Returns the state with its named tuples."""
    specs = tf.nest.map_structure(
        lambda x, y: tf.TensorSpec(
            x.shape.most_specific_compatible_shape(y.shape), x.dtype),
        self._specs(self.initial_state), self._specs(self.empty_state))
    return arguments_lib.fitted(
        name, state, specs, batch_size,
        f'core.initial_state({batch_size or "batch_size"})')

  def _specs(self, make: Callable[[BatchSize], Any]) -> Any:
    """Returns specs `[None, ...]` of what a method of the core makes for a batch."""
    # Not an attribute, which TensorFlow would track.
    specs = self.__dict__.setdefault('_specs_of', {})
    if make.__name__ not in specs:
      made = make(1) if tf.executing_eagerly() else tf.function(
          make, autograph=False).get_concrete_function(1).structured_outputs
      made = tf.nest.map_structure(tf.convert_to_tensor, made)
      for x in tf.nest.flatten(made):
        if x.shape.rank == 0 or x.shape[0] != 1:
          raise ValueError(
              f'{type(self).__name__}.{make.__name__}(1) has a tensor of shape '
              f'{tuple(x.shape)}: expected the batch size as its first axis')
      specs[make.__name__] = tf.nest.map_structure(
          lambda x: tf.TensorSpec([None, *x.shape[1:]], x.dtype), made)
    return specs[make.__name__]

  def record(self, cache: Cache) -> Records:
    """Returns the record of the step that returned `cache`, a nest of `[B, ...]`.

    Here it is the cache, which suits a core whose cache is its state.
    """
    return cache

  def restore(self, records: Records, is_first: tf.Tensor) -> State:
    """Returns the state after `memory_length` steps; here it is the last record.

    Args:
      records: the steps' records, `[B, memory_length, ...]`, oldest first. Those from
        before an actor's first step may hold any numbers between -1e20 and 1e20.
      is_first: the same steps' flags, `[B, memory_length]`.
    """
    del is_first
    return tf.nest.map_structure(lambda x: x[:, -1], records)
