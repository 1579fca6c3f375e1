"""Policies for any action spec: categorical, Gaussian, or a product of both."""

import math
from typing import Any, Dict, List, NamedTuple, Optional

from dm_env import specs
import numpy as np
import tensorflow as tf
import tree

from gtrxl_tf.environments import specs as specs_lib
from gtrxl_tf.losses import distributions
from gtrxl_tf.settings import config

# Added to the softplus, since a scale of zero has no log-probability.
_SMALLEST_SCALE = 1e-4
# The most values of one integer: each has a logit.
_MOST_VALUES = 2 ** 16
# The logit of an action that is not allowed. Its probability is 0 in any precision, and
# it is finite, so that 0 times its log-probability is 0 and not NaN.
MASKED_LOGIT = -1e9


def is_allowed(logits: tf.Tensor) -> tf.Tensor:
  """Returns whether the action mask allows each logit's action."""
  return logits > 0.5 * MASKED_LOGIT


class Policy(NamedTuple):
  """Float32 parameters of a policy. A part that the action spec lacks is `()`."""
  logits: Any = ()  # [..., A]: those of all discrete actions, concatenated.
  mean: Any = ()    # [..., C]: those of all continuous dimensions, concatenated.
  scale: Any = ()   # [..., C]: standard deviations.


class ActionSpace:
  """The policy distribution that belongs to an action spec.

  A spec is a `DiscreteArray`, a `BoundedArray` of integers, a floating-point `Array` or
  `BoundedArray`, or a nest of them. The policy is a product of one categorical
  distribution for each discrete action and a Gaussian with diagonal covariance over all
  continuous dimensions ("hybrid continuous-discrete", Neunert et al., 2019). Each
  element of an array of integers, such as gymnasium's MultiDiscrete and MultiBinary, is
  a discrete action with the values between its own bounds.

  A *sample* has the spec's structure. Its discrete actions count from the spec's
  minimum. They are int32, or int64 if a `DiscreteArray` is. Its continuous actions are
  float32 samples of the Gaussian, in units in which the bounds are [-1, 1], so that a
  scale means the same in every dimension; they may lie outside the bounds. Without two
  finite bounds the units are the spec's, and a single bound is their zero. Bounds of
  1e30 and more count as none. A dimension whose bounds are equal counts as constant:
  its samples have no effect. Samples are stored and scored. `to_environment` converts
  them to the spec's units and clips them.

  An action mask `[..., A]`, see `environments.specs`, has the order of the logits.

  Args:
    action_spec: nest of `dm_env` array specs.

  Attributes:
    action_spec: as given.
    sample_spec: nest of `tf.TensorSpec` of one sample.
    num_outputs: number of outputs of the policy head.
    constraints: names of the KL divergences that V-MPO bounds: 'categorical' if there
      is a discrete action, 'mean' and 'scale' if there is a continuous one.
  """

  def __init__(self, action_spec: Any):
    leaves = tree.flatten_with_path(action_spec)
    for path, spec in leaves:
      name = 'action_spec' + ''.join(f'[{key!r}]' for key in path)
      if not (specs_lib.is_discrete(spec) or
              isinstance(spec, specs.Array) and np.issubdtype(spec.dtype, np.floating)):
        raise config.ConfigError(
            f'{name} = {spec!r}: expected a DiscreteArray or an array of floats, or of '
            'integers with bounds')
      if 0 in spec.shape:
        raise config.ConfigError(f'{name} = {spec!r}: expected at least one number')
      if specs_lib.is_discrete(spec) and max(specs_lib.num_values(spec)) > _MOST_VALUES:
        raise config.ConfigError(
            f'{name} = {spec!r}: expected integers of at most {_MOST_VALUES} values')
    self.action_spec = action_spec
    self._leaves = [spec for _, spec in leaves]
    self._num_values = [num for spec in self._leaves if specs_lib.is_discrete(spec)
                        for num in specs_lib.num_values(spec)]
    continuous = [spec for spec in self._leaves if not specs_lib.is_discrete(spec)]
    self._sizes = [int(np.prod(spec.shape)) for spec in continuous]
    # The bounds [C] of samples.
    self._low, self._high = (
        np.concatenate([np.ravel(x) for x in limits]).astype(np.float32)
        for limits in zip(*map(_sample_bounds, continuous))) if continuous else ((), ())
    self.num_outputs = sum(self._num_values) + 2 * sum(self._sizes)
    if not self.num_outputs:
      raise config.ConfigError(f'action_spec = {action_spec!r}: expected an action')
    self.sample_spec = tree.map_structure(_sample_spec, action_spec)
    self.constraints = (('categorical',) * bool(self._num_values)
                        + ('mean', 'scale') * bool(self._sizes))

  @property
  def num_discrete(self) -> int:
    """A, the total number of values of all discrete actions."""
    return sum(self._num_values)

  @property
  def is_discrete(self) -> bool:
    """Whether an action is a single integer and not a nest that contains one."""
    return specs_lib.is_discrete(self.action_spec) and not self.action_spec.shape

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

  def check_bounded(self, user: str) -> None:
    """Checks that the action is one array of floats with finite bounds.

    Args:
      user: the class that supports no other action, for the message.
    """
    if not (isinstance(self.action_spec, specs.BoundedArray) and self._sizes
            and np.isfinite([*self._low, *self._high]).all()):
      raise config.ConfigError(
          f'{user}.action_spec = {self.action_spec!r}: expected one BoundedArray of '
          'floats with finite bounds')

  def check_mask(self, observation_spec: Any) -> None:
    """Checks the action mask in an observation's spec, if there is one."""
    _, spec = specs_lib.split_mask(observation_spec)
    if spec is None:
      return
    name = f'observation_spec[{specs_lib.MASK!r}] = {spec!r}'
    if not self._num_values:
      raise config.ConfigError(f'{name}: expected no mask, as no action is discrete')
    if (not isinstance(spec, specs.Array) or spec.shape != (self.num_discrete,)
        or spec.dtype.kind not in 'biu'):
      raise config.ConfigError(
          f'{name}: expected bools or integers [{self.num_discrete}], one for each '
          'value of each discrete action')

  def masked(self, policy: Policy, mask: Optional[tf.Tensor]) -> Policy:
    """Gives probability 0 to the values of discrete actions that are not allowed.

    A discrete action of which the mask allows no value keeps them all: environments
    give masks of zeros where no action is taken, as at an episode's last step.

    Args:
      policy: `[..., A]`.
      mask: `[..., A]`, nonzero where allowed; None allows everything.
    """
    if mask is None:
      return policy
    logits = []
    for action_logits, allowed in zip(self._logits(policy), tf.split(
        tf.cast(mask, tf.bool), self._num_values, axis=-1)):
      allowed |= ~tf.reduce_any(allowed, axis=-1, keepdims=True)
      logits.append(tf.where(allowed, action_logits, MASKED_LOGIT))
    return policy._replace(logits=tf.concat(logits, axis=-1))

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

    The Gaussian's divergence is decoupled into the components of the mean and of the
    scale. The divergences of several discrete actions are summed to one constraint.
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
    """Returns the most likely sample."""
    return self._sample([tf.argmax(logits, axis=-1) for logits in self._logits(policy)],
                        policy.mean)

  def sample(self, policy: Policy, seed: Any) -> Any:
    """Draws a sample.

    Categorical samples use Gumbel noise, since XLA cannot compile
    `stateless_categorical`.

    Args:
      policy: `[B, ...]`.
      seed: two integers, as for `tf.random.stateless_*`; or one integer or None, as for
        `tf.random.uniform`. The same two integers give the same sample each time, but
        not the same one with XLA as without it.
    """
    seed, discrete = stateless_seed(seed), []
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
    """Converts samples to the spec's units and dtypes, and clips them to its bounds."""
    def convert(spec: specs.Array, sample: tf.Tensor) -> tf.Tensor:
      if specs_lib.is_discrete(spec):
        return tf.cast(tf.cast(sample, tf.int64) + specs_lib.minimum(spec), spec.dtype)
      middle, half = _middle_and_half(spec)
      action = tf.cast(middle + half * sample, spec.dtype)
      if not isinstance(spec, specs.BoundedArray):
        return action
      # In the spec's dtype, as float32's nearest number to a bound may exceed it.
      return tf.clip_by_value(action, spec.minimum, spec.maximum)
    return tree.map_structure_up_to(
        self.action_spec, convert, self.action_spec, samples)

  def from_environment(self, actions: Any) -> Any:
    """Inverts `to_environment`: converts actions in the spec's units to samples."""
    def convert(spec: specs.Array, action: tf.Tensor) -> tf.Tensor:
      if specs_lib.is_discrete(spec):
        return tf.cast(tf.cast(action, tf.int64) - specs_lib.minimum(spec),
                       _sample_spec(spec).dtype)
      middle, half = _middle_and_half(spec)
      return (tf.cast(action, tf.float32) - middle) / half
    return tree.map_structure_up_to(
        self.action_spec, convert, self.action_spec, actions)

  def squared_error(self, policy: Policy, samples: Any) -> tf.Tensor:
    """Returns the squared error of the Gaussian's mean, [...] float32.

    It is averaged over continuous dimensions.
    """
    _, continuous = self._parts(samples)
    return tf.reduce_mean(tf.square(policy.mean - continuous), axis=-1)

  def encode(self, samples: Any, dtype: tf.DType) -> tf.Tensor:
    """Converts samples to features.

    Discrete actions become one-hot vectors. Continuous ones are clipped to their bounds
    as they are for the environment.
    """
    discrete, continuous = self._parts(samples)
    features = [tf.one_hot(action, num_values, dtype=dtype)
                for action, num_values in zip(discrete, self._num_values)]
    if self._sizes:
      clipped = tf.clip_by_value(continuous, self._low, self._high)
      features.append(tf.cast(clipped, dtype))
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
        self._leaves,
        # Reverb turns lists into tuples.
        tree.flatten_up_to(self.action_spec, samples, check_types=False)):
      if not spec.shape and specs_lib.is_discrete(spec):
        discrete.append(sample)
        continue
      sample = tf.convert_to_tensor(sample)
      batch_dims = sample.shape.rank - len(spec.shape)
      flat = tf.reshape(sample, tf.concat(
          [tf.shape(sample)[:batch_dims], [math.prod(spec.shape)]], axis=0))
      if specs_lib.is_discrete(spec):
        discrete.extend(tf.unstack(flat, num=math.prod(spec.shape), axis=-1))
      else:
        continuous.append(flat)
    return discrete, tf.concat(continuous, axis=-1) if continuous else ()

  def _sample(self, discrete, continuous) -> Any:
    """Inverts `_parts` for samples `[B, ...]`."""
    discrete = iter(discrete)
    parts = iter(tf.split(continuous, self._sizes, axis=-1) if self._sizes else [])
    leaves = []
    for spec in self._leaves:
      if not spec.shape and specs_lib.is_discrete(spec):
        leaves.append(tf.cast(next(discrete), _sample_spec(spec).dtype))
        continue
      if specs_lib.is_discrete(spec):
        part = tf.cast(tf.stack(
            [next(discrete) for _ in specs_lib.num_values(spec)], axis=-1), tf.int32)
      else:
        part = next(parts)
      leaves.append(tf.reshape(
          part, tf.concat([tf.shape(part)[:-1], spec.shape], axis=0)))
    return tree.unflatten_as(self.action_spec, leaves)


def _sample_spec(spec: specs.Array) -> tf.TensorSpec:
  if isinstance(spec, specs.DiscreteArray) and spec.dtype == np.int64:
    return tf.TensorSpec(spec.shape, tf.int64)
  return tf.TensorSpec(
      spec.shape, tf.int32 if specs_lib.is_discrete(spec) else tf.float32)


def _middle_and_half(spec: specs.Array):
  """Returns the zero and the unit of samples, in the spec's units, float32."""
  return [x.astype(np.float32) for x in specs_lib.middle_and_half(spec)]


def _sample_bounds(spec: specs.Array):
  """Returns the bounds of samples, infinite where there are none."""
  middle, half = specs_lib.middle_and_half(spec)
  return [(bound - middle) / half for bound in specs_lib.bounds(spec)]


def stateless_seed(seed: Any) -> Any:
  """Returns two integers for `tf.random.stateless_*`.

  They are drawn if `seed` is one integer or None.
  """
  if seed is None or isinstance(seed, (int, np.integer)):
    return tf.random.uniform([2], maxval=tf.int32.max, dtype=tf.int32, seed=seed)
  return seed


def _fold_in(seed: tf.Tensor, data: int) -> tf.Tensor:
  return tf.random.experimental.stateless_fold_in(tf.cast(seed, tf.int32), data)
