"""Policies for any action spec: categorical, Gaussian, or a product of both."""

from typing import Any, Dict, List, NamedTuple

from dm_env import specs
import numpy as np
import tensorflow as tf
import tree

from gtrxl_tf import config
from gtrxl_tf.losses import distributions

# Added to the softplus, since a scale of zero has no log-probability.
_SMALLEST_SCALE = 1e-4


class Policy(NamedTuple):
  """Float32 parameters of a policy. A part that the action spec lacks is `()`."""
  logits: Any = ()  # [..., A]: of all discrete actions, concatenated.
  mean: Any = ()    # [..., C]: of all continuous dimensions, concatenated.
  scale: Any = ()   # [..., C]: standard deviations.


class ActionSpace:
  """The policy distribution that belongs to an action spec.

  A spec is a `DiscreteArray`, a floating-point `Array` or `BoundedArray`, or a nest of
  them. The policy is a product of one categorical distribution for each discrete action
  and a Gaussian with diagonal covariance over all continuous dimensions ("hybrid
  continuous-discrete", Neunert et al., 2019).

  A *sample* has the spec's structure. Its discrete actions are the environment's. Its
  continuous actions are float32 samples of the Gaussian, in units in which the bounds
  are [-1, 1], so that a scale means the same in every dimension; they may lie outside
  the bounds. Samples are stored and scored. `to_environment` clips them and converts
  them to the spec's units.

  Args:
    action_spec: nest of `dm_env` array specs.

  Attributes:
    action_spec: as given.
    sample_spec: nest of `tf.TensorSpec` of one sample.
    num_outputs: number of outputs of the policy head.
    constraints: names of the KL divergences that V-MPO bounds: 'categorical' if there
      is a discrete action, 'mean' and 'scale' if there is a continuous one.

  Raises:
    ConfigError: a spec is neither discrete nor continuous; the message names it.
  """

  def __init__(self, action_spec: Any):
    leaves = tree.flatten_with_path(action_spec)
    for path, spec in leaves:
      if not (isinstance(spec, specs.DiscreteArray) or
              isinstance(spec, specs.Array) and np.issubdtype(spec.dtype, np.floating)):
        name = 'action_spec' + ''.join(f'[{key!r}]' for key in path)
        raise config.ConfigError(
            f'{name} = {spec!r}: expected a DiscreteArray or an array of floats')
    if not leaves:
      raise config.ConfigError(f'action_spec = {action_spec!r}: expected an action')
    self.action_spec = action_spec
    self._leaves = [spec for _, spec in leaves]
    self._num_values = [int(spec.num_values) for spec in self._leaves
                        if isinstance(spec, specs.DiscreteArray)]
    self._sizes = [int(np.prod(spec.shape)) for spec in self._leaves
                   if not isinstance(spec, specs.DiscreteArray)]
    self.num_outputs = sum(self._num_values) + 2 * sum(self._sizes)
    self.sample_spec = tree.map_structure(_sample_spec, action_spec)
    self.constraints = (('categorical',) * bool(self._num_values)
                        + ('mean', 'scale') * bool(self._sizes))

  @property
  def num_discrete(self) -> int:
    """A, the total number of values of all discrete actions."""
    return sum(self._num_values)

  @property
  def is_discrete(self) -> bool:
    """Whether an action is one integer."""
    return len(self._leaves) == 1 and bool(self._num_values)

  def policy(self, outputs: tf.Tensor) -> Policy:
    """Converts the policy head's outputs [..., num_outputs] to parameters.

    The scale is a softplus, as in V-MPO.
    """
    logits, mean, scale = tf.split(
        outputs, [sum(self._num_values), sum(self._sizes), sum(self._sizes)], axis=-1)
    return Policy(
        logits=logits if self._num_values else (),
        mean=mean if self._sizes else (),
        scale=tf.nn.softplus(scale) + _SMALLEST_SCALE if self._sizes else ())

  def log_prob(self, policy: Policy, samples: Any) -> tf.Tensor:
    """Returns log pi [...], float32, of samples with batch axes `...`."""
    terms = []
    if self._num_values:
      terms.append(self.discrete_log_prob(policy, samples))
    if self._sizes:
      _, continuous = self._parts(samples)
      terms.append(distributions.gaussian_log_prob(
          policy.mean, policy.scale, continuous))
    return tf.add_n(terms)

  def discrete_log_prob(self, policy: Policy, samples: Any) -> tf.Tensor:
    """Returns `log_prob` of the discrete actions alone."""
    discrete, _ = self._parts(samples)
    return tf.add_n([
        distributions.categorical_log_prob(logits, action)
        for logits, action in zip(self._logits(policy), discrete)])

  def kl(self, target: Policy, online: Policy) -> Dict[str, tf.Tensor]:
    """Returns KL(target || online) by the names in `constraints`, each [...] float32.

    The Gaussian's is decoupled into the components of the mean and of the scale. The
    divergences of several discrete actions are summed to one constraint.
    """
    divergences = {}
    if self._num_values:
      divergences['categorical'] = tf.add_n([
          distributions.categorical_kl(*logits)
          for logits in zip(self._logits(target), self._logits(online))])
    if self._sizes:
      divergences['mean'] = distributions.gaussian_kl_mean(
          target.mean, target.scale, online.mean)
      divergences['scale'] = distributions.gaussian_kl_scale(target.scale, online.scale)
    return divergences

  def entropy(self, policy: Policy) -> tf.Tensor:
    """Returns the entropy [...], float32, in nats; differential if continuous."""
    terms = []
    for logits in self._logits(policy):
      log_probs = tf.nn.log_softmax(logits)
      terms.append(-tf.reduce_sum(tf.exp(log_probs) * log_probs, axis=-1))
    if self._sizes:
      terms.append(tf.reduce_sum(
          tf.math.log(policy.scale) + 0.5 * np.log(2 * np.pi * np.e), axis=-1))
    return tf.add_n(terms)

  def with_temperature(self, policy: Policy, temperature: float) -> Policy:
    """Divides logits by the temperature, and multiplies standard deviations by it."""
    return policy._replace(
        logits=policy.logits / temperature if self._num_values else (),
        scale=policy.scale * temperature if self._sizes else ())

  def mode(self, policy: Policy) -> Any:
    """Returns the likeliest sample."""
    return self._sample([tf.argmax(logits, axis=-1) for logits in self._logits(policy)],
                        policy.mean)

  def sample(self, policy: Policy, seed: Any) -> Any:
    """Draws a sample.

    Categorical samples use Gumbel noise, since XLA cannot compile
    `stateless_categorical`.

    Args:
      policy: `[B, ...]`.
      seed: two integers, as for `tf.random.stateless_*`: the same seed gives the same
        sample. Or a seed of TF-Agents' policies: one integer or None.
    """
    if seed is None or isinstance(seed, int):
      seed = tf.random.uniform([2], maxval=tf.int32.max, dtype=tf.int32, seed=seed)
    discrete = []
    for i, logits in enumerate(self._logits(policy)):
      uniform = tf.random.stateless_uniform(
          tf.shape(logits), _fold_in(seed, i + 1), minval=np.finfo(np.float32).tiny)
      discrete.append(
          tf.argmax(logits - tf.math.log(-tf.math.log(uniform)), axis=-1))
    continuous = ()
    if self._sizes:
      noise = tf.random.stateless_normal(tf.shape(policy.mean), seed)
      continuous = policy.mean + policy.scale * noise
    return self._sample(discrete, continuous)

  def to_environment(self, samples: Any) -> Any:
    """Converts samples to the spec's units and dtypes, and clips them to its bounds.

    A dimension without bounds is neither clipped nor rescaled.
    """
    def convert(spec: specs.Array, sample: tf.Tensor) -> tf.Tensor:
      if isinstance(spec, specs.DiscreteArray):
        return sample
      middle, half = _middle_and_half(spec)
      clipped = tf.clip_by_value(middle + half * sample, *_bounds(spec))
      return tf.cast(clipped, spec.dtype)
    return tree.map_structure_up_to(
        self.action_spec, convert, self.action_spec, samples)

  def from_environment(self, actions: Any) -> Any:
    """Converts actions in the spec's units to samples; the inverse of
    `to_environment`."""
    def convert(spec: specs.Array, action: tf.Tensor) -> tf.Tensor:
      if isinstance(spec, specs.DiscreteArray):
        return tf.cast(action, spec.dtype)
      middle, half = _middle_and_half(spec)
      return (tf.cast(action, tf.float32) - middle) / half
    return tree.map_structure_up_to(
        self.action_spec, convert, self.action_spec, actions)

  def squared_error(self, policy: Policy, samples: Any) -> tf.Tensor:
    """Returns the squared error of the Gaussian's mean, [...] float32, averaged over
    continuous dimensions."""
    _, continuous = self._parts(samples)
    return tf.reduce_mean(tf.square(policy.mean - continuous), axis=-1)

  def encode(self, samples: Any, dtype: tf.DType) -> tf.Tensor:
    """Converts samples to features: discrete actions become one-hot vectors, continuous
    ones are clipped to [-1, 1] as they are for the environment."""
    discrete, continuous = self._parts(samples)
    features = [tf.one_hot(action, num_values, dtype=dtype)
                for action, num_values in zip(discrete, self._num_values)]
    if self._sizes:
      features.append(tf.cast(tf.clip_by_value(continuous, -1, 1), dtype))
    return tf.concat(features, axis=-1)

  def _logits(self, policy: Policy) -> List[tf.Tensor]:
    """Returns the logits of each discrete action."""
    if not self._num_values:
      return []
    return tf.split(policy.logits, self._num_values, axis=-1)

  def _parts(self, samples: Any):
    """Returns the discrete actions, each [...], and the continuous ones, [..., C]."""
    discrete, continuous = [], []
    for spec, sample in zip(
        self._leaves, tree.flatten_up_to(self.action_spec, samples)):
      if isinstance(spec, specs.DiscreteArray):
        discrete.append(sample)
      else:
        batch_dims = sample.shape.rank - len(spec.shape)
        continuous.append(tf.reshape(
            sample, tf.concat([tf.shape(sample)[:batch_dims], [-1]], axis=0)))
    return discrete, tf.concat(continuous, axis=-1) if continuous else ()

  def _sample(self, discrete, continuous) -> Any:
    """Inverts `_parts` for samples `[B, ...]`."""
    discrete = iter(discrete)
    parts = iter(tf.split(continuous, self._sizes, axis=-1) if self._sizes else [])
    leaves = []
    for spec in self._leaves:
      if isinstance(spec, specs.DiscreteArray):
        leaves.append(tf.cast(next(discrete), spec.dtype))
      else:
        part = next(parts)
        leaves.append(tf.reshape(
            part, tf.concat([tf.shape(part)[:-1], spec.shape], axis=0)))
    return tree.unflatten_as(self.action_spec, leaves)


def _sample_spec(spec: specs.Array) -> tf.TensorSpec:
  discrete = isinstance(spec, specs.DiscreteArray)
  return tf.TensorSpec(spec.shape, spec.dtype if discrete else tf.float32)


def _bounds(spec: specs.Array):
  if not isinstance(spec, specs.BoundedArray):
    bounds = -np.inf, np.inf
  else:
    bounds = spec.minimum, spec.maximum
  return [np.broadcast_to(bound, spec.shape).astype(np.float32) for bound in bounds]


def _middle_and_half(spec: specs.Array):
  """Returns the middle and half the width of the bounds; 0 and 1 without bounds."""
  low, high = _bounds(spec)
  finite = np.isfinite(low) & np.isfinite(high)
  middle, half = np.zeros_like(low), np.ones_like(low)
  middle[finite] = (high[finite] + low[finite]) / 2
  half[finite] = (high[finite] - low[finite]) / 2
  return middle, half


def _fold_in(seed: tf.Tensor, data: int) -> tf.Tensor:
  return tf.random.experimental.stateless_fold_in(tf.cast(seed, tf.int32), data)
