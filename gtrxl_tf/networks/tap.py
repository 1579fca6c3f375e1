"""TAP's model of trajectories: a vector-quantized autoencoder and a prior over codes."""

import math
from typing import Any, Tuple

import numpy as np
import tensorflow as tf

from gtrxl_tf.cores import core as core_lib
from gtrxl_tf.cores import dropout as dropout_lib
from gtrxl_tf.cores import keras
from gtrxl_tf.cores import segment_block
from gtrxl_tf.losses import tap
from gtrxl_tf.networks import action_space
from gtrxl_tf.settings import config

# Values whose standard deviation is smaller count as constant.
_MIN_DEVIATION = 1e-4


class _CausalTransformer(keras.Layer):
  """Layers with norms before the sublayers; a step sees itself and those before it."""

  def __init__(self, num_layers: int, width: int, num_heads: int, dropout: float,
               name: str):
    super().__init__(name=name)
    self._dropout = dropout
    self.blocks = segment_block.make_blocks(
        num_layers, 'block', num_heads=num_heads, head_dim=width // num_heads,
        mlp_dim=4 * width, post_norm=False, positions='none', num_slots=1,
        dropout=dropout, attention_dropout=dropout)
    self.norm = core_lib.layer_norm('norm')

  def build(self, input_shape) -> None:
    for layer in (*self.blocks, self.norm):
      core_lib.build_layer(layer, input_shape)
    super().build(input_shape)

  def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
    """Maps `[B, T, D]` to `[B, T, D]`."""
    key = dropout_lib.make_key(inputs) if training and self._dropout else None
    stream = dropout_lib.drop(inputs, self._dropout, key, len(self.blocks))
    steps = tf.range(inputs.shape[1])[tf.newaxis]
    mask = steps[:, tf.newaxis] <= steps[..., tf.newaxis]  # [1, T, T]
    for i, block in enumerate(self.blocks):
      stream = block(
          stream, stream[:, :0], None, mask, steps, dropout_lib.fold(key, i))
    return self.norm(stream)


@config.configurable
class TAPNetwork(keras.Layer):
  """A model of T steps of a trajectory as M codes (Jiang et al., 2023).

  A step is the vector x of state, action, reward and return-to-go, each normalized by
  the statistics of the dataset. The encoder is a transformer over steps; the maximum
  of its outputs over each L steps is replaced by the nearest of K codes. The decoder
  maps codes and the first state to the steps, and the prior maps the first state and
  the codes so far to the probabilities of the next code. All three are causal, so that
  the first codes of a plan decode to its first steps.

  The sizes are those of the authors' code for MuJoCo. So are two details: steps after
  the episode's end have a flag, which the decoder predicts, and the decoder's states
  are differences from the first one. Their code differs in further details. For
  example, it has GELUs where these layers have ReLUs, has no norm after the encoder's
  last layer, and averages errors over all steps, not only over those that exist.

  Args:
    action_spec: the environment's action spec: one array of floats with finite bounds.
    num_steps: T.
    steps_per_code: L; T is a multiple of it.
    num_codes: K.
    code_dim: C, the width of a code.
    num_layers: layers of each transformer.
    model_dim: D.
    num_heads: heads of each attention layer, each D / heads wide.
    dropout: share dropped in training, as in `SegmentTransformer`, everywhere.
    code_decay: decay, per learner step, of the moving averages that define the codes.

  Attributes:
    action_space: the `ActionSpace` of `action_spec`.
    num_steps: as given.
    steps_per_code: as given.
    num_codes: as given.
    observation_statistics: None; `assign_statistics` takes their place.
  """

  def __init__(self, action_spec: Any, num_steps: config.PositiveInt = 24,
               steps_per_code: config.PositiveInt = 3,
               num_codes: config.PositiveInt = 512,
               code_dim: config.PositiveInt = 512,
               num_layers: config.NumLayers = 4,
               model_dim: config.PositiveInt = 512,
               num_heads: config.PositiveInt = 4,
               dropout: config.UnitInterval = 0.1,
               code_decay: config.UnitInterval = 0.99):
    super().__init__(name='tap_network')
    self.action_space = action_space.ActionSpace(action_spec)
    self.action_space.check_bounded('TAPNetwork')
    for name, value, divisor_name, divisor in (
        ('num_steps', num_steps, 'steps_per_code', steps_per_code),
        ('model_dim', model_dim, 'num_heads', num_heads)):
      if value % divisor:
        raise config.ConfigError(
            f'TAPNetwork.{name} = {value}: expected a multiple of {divisor_name} = '
            f'{divisor}')
    self.num_steps = num_steps
    self.steps_per_code = steps_per_code
    self.num_codes = num_codes
    self.observation_statistics = None
    self._code_dim = code_dim
    self._code_decay = code_decay
    self._width = model_dim
    self._encoder, self._decoder, self._prior = (
        _CausalTransformer(num_layers, model_dim, num_heads, dropout, name)
        for name in ('encoder', 'decoder', 'prior'))

  def create_variables(self, observation_spec: Any) -> None:
    """Creates all variables.

    Args:
      observation_spec: nest of `dm_env` array specs of one step's observation, which
        is flattened into one vector: the state.
    """
    self.action_space.check_mask(observation_spec)
    states = sum(math.prod(spec.shape) for spec in tf.nest.flatten(observation_spec))
    actions = math.prod(self.action_space.action_spec.shape)
    self._sizes = [states, actions, 1, 1]
    size, width = sum(self._sizes), self._width

    def dense(name: str, inputs: int, outputs: int, **settings):
      layer = tf.keras.layers.Dense(outputs, name=name, **settings)
      core_lib.build_layer(layer, tf.TensorShape([None, None, inputs]))
      return layer

    def table(name: str, *shape: int, initializer='zeros', trainable=False):
      # Float32 under any policy; what is not trained is a statistic.
      return self.add_weight(
          name=name, shape=shape, dtype=tf.float32, initializer=initializer,
          trainable=trainable)

    with tf.name_scope(self.name):
      for layer in (self._encoder, self._decoder, self._prior):
        core_lib.build_layer(layer, tf.TensorShape([None, None, width]))
      self._embed_step = dense('embed_step', size + 1, width)
      self._embed_feature = dense('embed_feature', width, self._code_dim, dtype='float32')
      self._embed_plan = dense('embed_plan', states + self._code_dim, width)
      self._predict = dense('predict', width, size + 1, dtype='float32')
      self._embed_state = dense('embed_state', states, width)
      self._logits = dense(
          'logits', width, self.num_codes, use_bias=False, dtype='float32')
      self.positions = table('positions', self.num_steps, width, trainable=True)
      self.prior_positions = table(
          'prior_positions', self.num_steps // self.steps_per_code, width,
          trainable=True)
      self.code_embedding = table(
          'code_embedding', self.num_codes, width, trainable=True,
          initializer=tf.keras.initializers.RandomNormal(stddev=0.02))
      limit = 1 / self.num_codes
      self.codebook = table(
          'codebook', self.num_codes, self._code_dim,
          initializer=tf.keras.initializers.RandomUniform(-limit, limit))
      self.code_counts = table('code_counts', self.num_codes, initializer='ones')
      self.code_sums = table('code_sums', self.num_codes, self._code_dim)
      self.code_sums.assign(self.codebook)
      self.mean = table('mean', size)
      self.deviation = table('deviation', size, initializer='ones')
    self.built = True

  def assign_statistics(self, observation: Any, action: Any, reward: Any,
                        return_to_go: Any) -> None:
    """Sets the statistics by which steps are normalized.

    Args:
      observation: two nests, mean and deviation of every number of an observation.
      action: mean and deviation in the environment's units.
      reward: mean and deviation.
      return_to_go: mean and deviation.
    """
    from_environment = self.action_space.from_environment
    zero = from_environment(np.zeros_like(action[0]))
    action = from_environment(action[0]), from_environment(action[1]) - zero
    mean, deviation = (
        np.concatenate([np.ravel(x) for x in tf.nest.flatten(part)])
        for part in zip(observation, action, reward, return_to_go))
    self.mean.assign(mean)
    self.deviation.assign(np.where(deviation < _MIN_DEVIATION, 1, deviation))

  def states(self, observation: Any, batch_dims: int) -> tf.Tensor:
    """Normalizes observations to states, float32 `[..., S]`.

    Args:
      observation: nest of `[..., *shape]`.
      batch_dims: the number of the observation's batch axes.
    """
    size = self._sizes[0]
    return (_vector(observation, batch_dims) - self.mean[:size]) / self.deviation[:size]

  def steps(self, observation: Any, action: Any, reward: tf.Tensor,
            return_to_go: tf.Tensor) -> tf.Tensor:
    """Normalizes recorded steps `[B, T, ...]` to float32 `[B, T, X]`."""
    vectors = tf.concat([
        _vector(x, 2) for x in (observation, action, reward, return_to_go)], axis=-1)
    return (vectors - self.mean) / self.deviation

  def denormalized(self, steps: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Splits normalized steps `[..., X]` and undoes their normalization.

    Returns:
      Samples of `ActionSpace` `[..., A]`, rewards `[...]` and returns-to-go `[...]`.
    """
    _, actions, rewards, returns = tf.split(
        steps * self.deviation + self.mean, self._sizes, axis=-1)
    return actions, rewards[..., 0], returns[..., 0]

  def error_weights(self, action_weight: float) -> np.ndarray:
    """Returns the weight of each squared error, float32 `[X]`: `action_weight` or 1."""
    return np.repeat(np.float32([1, action_weight, 1, 1]), self._sizes)

  def encode(self, steps: tf.Tensor, valid: tf.Tensor, training: bool = False
             ) -> tf.Tensor:
    """Encodes steps as features, float32 `[B, M, C]`.

    Args:
      steps: `[B, T, X]`.
      valid: bool `[B, T]`, the steps that exist.
      training: whether dropout is active.
    """
    known = tf.cast(valid, tf.float32)[..., tf.newaxis]
    steps = tf.where(known > 0, steps, 0.)
    inputs = self._embed_step(tf.concat([steps, 1 - known], axis=-1))
    outputs = self._encoder(inputs + self._first(self.positions, inputs), training)
    # The gradient of `tf.reduce_max` looks for the maximum by equality, which XLA's
    # rounding may lose: it would be 0 / 0.
    pooled = tf.nn.max_pool1d(
        outputs, self.steps_per_code, self.steps_per_code, 'VALID')
    return self._embed_feature(tf.cast(pooled, tf.float32))

  def quantize(self, features: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
    """Quantizes features to the nearest codes.

    Returns:
      The codes' indices `[B, M]`, and the codes `[B, M, C]`.
    """
    indices = tap.nearest_codes(features, self.codebook)
    return indices, self.codes(indices)

  def codes(self, indices: tf.Tensor) -> tf.Tensor:
    """Looks up the codes, float32 `[..., C]`, of indices `[...]`."""
    return tf.gather(tf.convert_to_tensor(self.codebook), indices)

  def decode(self, codes: tf.Tensor, state: tf.Tensor, training: bool = False
             ) -> Tuple[tf.Tensor, tf.Tensor]:
    """Decodes the first m codes of a plan.

    Args:
      codes: `[B, m, C]`.
      state: the normalized state at the first step, `[B, S]`.
      training: whether dropout is active.

    Returns:
      Normalized steps, float32 `[B, m L, X]`, and logits of whether the episode is over
      there `[B, m L]`.
    """
    states = tf.repeat(state[:, tf.newaxis], codes.shape[1], axis=1)
    inputs = self._embed_plan(tf.concat([states, codes], axis=-1))
    inputs = tf.repeat(inputs, self.steps_per_code, axis=1)
    outputs = self._decoder(inputs + self._first(self.positions, inputs), training)
    predicted = self._predict(tf.cast(outputs, tf.float32))
    first = tf.pad(state, [[0, 0], [0, sum(self._sizes[1:])]])
    return predicted[..., :-1] + first[:, tf.newaxis], predicted[..., -1]

  def prior(self, indices: tf.Tensor, state: tf.Tensor, training: bool = False
            ) -> tf.Tensor:
    """Computes logits, float32 `[B, m + 1, K]`, of the first m + 1 codes of a plan.

    Args:
      indices: indices of the first m codes, `[B, m]`.
      state: the normalized state at the first step, `[B, S]`.
      training: whether dropout is active.
    """
    # A product, as the gradient of a lookup comes as slices.
    inputs = tf.tensordot(
        tf.one_hot(indices, self.num_codes), self.code_embedding, axes=1)
    inputs = tf.pad(inputs, [[0, 0], [1, 0], [0, 0]])
    state = tf.cast(self._embed_state(state), tf.float32)
    inputs += self._first(self.prior_positions, inputs) + state[:, tf.newaxis]
    outputs = self._prior(tf.cast(inputs, self.compute_dtype), training)
    return self._logits(tf.cast(outputs, tf.float32))

  def move_codes(self, counts: tf.Tensor, sums: tf.Tensor) -> None:
    """Moves codes to the features of a batch, given its `code_sums`."""
    variables = self.codebook, self.code_counts, self.code_sums
    moved = tap.moved_codes(
        *map(tf.convert_to_tensor, variables), counts, sums, self._code_decay)
    for variable, value in zip(variables, moved):
      variable.assign(value)

  def initial_state(self, batch_size) -> Any:
    """Returns the empty state: each plan begins at the current observation."""
    return ()

  def initial_cache(self, batch_size) -> Any:
    """Returns the empty cache, since a plan needs no memory."""
    return ()

  def _first(self, positions, inputs):
    """Returns the positions of the first steps, as many as inputs `[B, T, D]` have."""
    return tf.cast(positions[:inputs.shape[1]], inputs.dtype)


def _vector(nest: Any, batch_dims: int) -> tf.Tensor:
  """Concatenates all numbers of a nest of `[..., *shape]` to float32 `[..., n]`."""
  flat = []
  for x in tf.nest.flatten(nest):
    x = tf.convert_to_tensor(x)
    size = math.prod(x.shape[batch_dims:].as_list())
    flat.append(tf.cast(
        tf.reshape(x, tf.concat([tf.shape(x)[:batch_dims], [size]], 0)), tf.float32))
  return tf.concat(flat, axis=-1)
