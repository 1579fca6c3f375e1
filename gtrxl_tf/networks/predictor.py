"""The losses of MERLIN's memory-based predictor.

"Unsupervised Predictive Memory in a Goal-Directed Agent" (Wayne et al., 2018, arXiv
1803.10760).
"""

from typing import Any, List, NamedTuple, Optional

from dm_env import specs
import numpy as np
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf import nests
from gtrxl_tf.cores import dropout
from gtrxl_tf.cores import merlin
from gtrxl_tf.environments import specs as specs_lib
from gtrxl_tf.networks import action_space
from gtrxl_tf.networks import heads
from gtrxl_tf.networks import tensor_specs
from gtrxl_tf.networks import torsos
from gtrxl_tf.settings import config

# An array's integers are categories up to this number of values in total.
_MOST_VALUES = 4096


class Predictions(NamedTuple):
  """The losses and values of the predictor at each step, float32, without costs."""
  kl: tf.Tensor           # [B, T], KL(posterior || prior) in nats.
  observation: tf.Tensor  # [B, T], negative log-likelihood.
  action: tf.Tensor       # [B, T], the previous action's; 0 on first steps.
  reward: tf.Tensor       # [B, T], half the squared error; 0 on first steps.
  value: tf.Tensor        # [B, T, num_values]: the predicted values themselves.


def _num_parameters(space: action_space.ActionSpace) -> int:
  """Returns the number of outputs that `_error` reads."""
  return (space.num_outputs + space.num_discrete) // 2


def _error(space: action_space.ActionSpace, outputs: tf.Tensor, samples: Any
           ) -> tf.Tensor:
  """Computes the negative log-likelihood `[...]` of samples.

  Gaussians have a standard deviation of 1.
  """
  logits, mean = tf.split(
      outputs, [space.num_discrete, outputs.shape[-1] - space.num_discrete], axis=-1)
  continuous = mean.shape[-1] > 0
  return -space.log_prob(action_space.Policy(
      logits=logits if space.num_discrete else (), mean=mean if continuous else (),
      scale=tf.ones_like(mean) if continuous else ()), samples)


def _kl(mean: tf.Tensor, log_scale: tf.Tensor, prior_mean: tf.Tensor,
        prior_log_scale: tf.Tensor) -> tf.Tensor:
  """Computes KL(posterior || prior) of diagonal Gaussians, `[...]` from `[..., Z]`.

  The computation uses logarithms, because scales could overflow.
  """
  log_ratio = log_scale - prior_log_scale
  distance = (mean - prior_mean) * tf.exp(-prior_log_scale)
  return tf.reduce_sum(
      0.5 * (tf.exp(2 * log_ratio) + tf.square(distance) - 1) - log_ratio, axis=-1)


class _Observations:
  """The likelihood of observations.

  Attributes:
    size: number of outputs that `error` reads.
  """

  def __init__(self, spec: Any, image_cost: float):
    self._image_cost = image_cost
    leaves = tf.nest.flatten(spec)
    self._is_image = [x.dtype == np.uint8 and specs_lib.is_image(x) for x in leaves]
    images, self._others = self._parts(leaves)
    self._space = action_space.ActionSpace([
        x if _is_categorical(x) else specs.Array(x.shape, np.float32)
        for x in self._others]) if self._others else None
    self._sizes = [_num_parameters(self._space) if self._others else 0,
                   *(int(np.prod(x.shape)) for x in images)]
    self.size = sum(self._sizes)

  def _parts(self, leaves):
    """Splits leaves into images and others."""
    return [[x for x, is_image in zip(leaves, self._is_image) if is_image == wanted]
            for wanted in (True, False)]

  def error(self, outputs: tf.Tensor, observation: Any) -> tf.Tensor:
    """Computes the negative log-likelihood `[...]` from outputs `[..., size]`."""
    outputs, *pixels = tf.split(outputs, self._sizes, axis=-1)
    images, others = self._parts(tf.nest.flatten(observation))
    errors = []
    if others:
      samples = self._space.from_environment([
          x if _is_categorical(spec) else torsos.scaled(spec, x)
          for spec, x in zip(self._others, others)])
      errors.append(_error(self._space, outputs, samples))
    for image, logits in zip(images, pixels):
      labels = tf.reshape(tf.cast(image, tf.float32) / 255, tf.shape(logits))
      errors.append(self._image_cost * tf.reduce_mean(
          tf.nn.sigmoid_cross_entropy_with_logits(labels, logits), axis=-1))
    return tf.add_n(errors)


def _is_categorical(spec: specs.Array) -> bool:
  return (specs_lib.is_discrete(spec)
          and sum(specs_lib.num_values(spec)) <= _MOST_VALUES)


@config.configurable
class Predictor(tf.keras.layers.Layer):
  """MERLIN's prior, its decoders, and the costs of its losses.

  The prior predicts the latent z_t from the core's context, which comes from the steps
  before, and from the previous action. A head decodes a sample of the posterior. The
  loss of a step is the sum of these terms, each times its cost:

    kl            KL(posterior || prior)
    observation   -log p(o_t | z), without the action mask and the instruction
    action        -log p(a_{t-1} | z)
    reward        1/2 (r(z) - r_t)^2
    value         1/2 (V(z) - G_t)^2, with the agent's returns, normalized by PopArt

  Integers with bounds are categorical, pixels Bernoulli and other numbers Gaussian with
  a standard deviation of 1. Observations are those that the torso sees, normalized if
  there are statistics, or else scaled by their bounds.

  The paper's text was not available. These parts are the paper's, as public
  implementations of it (in ALF, yosider's) and of its authors' next agent, RMA,
  confirm: diagonal Gaussians; a prior with two tanh layers of 2 Z; the reconstruction
  of all inputs and the return; squared errors of rewards and returns.

  These are choices of this library: pixels are Bernoulli; the action is an input of the
  prior and not of the LSTM; one head with a hidden layer decodes everything, while the
  paper decodes images by transposed convolutions; V does not have the policy as an
  input, nor a second term for the action; the agent's baseline is its own value head,
  on the core's outputs. Where PopArt's statistics move, that head is rescaled and V is
  not.

  Args:
    hidden_units: hidden units of the decoding head.
    kl_cost: factor of the KL. 1 makes the sum of the first four terms a bound on the
      likelihood.
    observation_cost: factor of the observation's term.
    action_cost: factor of the action's term.
    reward_cost: factor of the reward's term.
    value_cost: factor of the value's term.
    image_cost: factor of an image's part of the observation's term, which is a mean
      over pixels.

  The defaults of `value_cost` and `image_cost` are RMA's (Hung et al., 2019); the
  paper's own values could not be checked.

  Attributes:
    costs: the costs, by the names of the fields of `Predictions`.
  """

  def __init__(self, hidden_units: config.PositiveInt = 256,
               kl_cost: config.NonNegativeFloat = 1.0,
               observation_cost: config.NonNegativeFloat = 1.0,
               action_cost: config.NonNegativeFloat = 1.0,
               reward_cost: config.NonNegativeFloat = 1.0,
               value_cost: config.NonNegativeFloat = 0.4,
               image_cost: config.NonNegativeFloat = 50.0,
               name: Optional[str] = None):
    super().__init__(name=name, dtype='float32')
    self.costs = Predictions(
        kl_cost, observation_cost, action_cost, reward_cost, value_cost)._asdict()
    self._hidden_units = hidden_units
    self._image_cost = image_cost

  def create_variables(self, core: cores.MERLIN, observation_spec: Any,
                       space: action_space.ActionSpace, num_values: int) -> None:
    """Creates all variables.

    Args:
      core: the core whose beliefs are the inputs.
      observation_spec: nest of `dm_env` array specs of what is reconstructed.
      space: the space of actions.
      num_values: number of value functions.
    """
    self._space = space
    self._observations = _Observations(observation_spec, self._image_cost)
    self._sizes = [self._observations.size, _num_parameters(space), 1, num_values]
    self._decoder = heads.MLPHead(
        sum(self._sizes), self._hidden_units, name='decoder')
    width = 2 * core.latent_dim
    self._prior = [
        tf.keras.layers.Dense(width, 'tanh', name='prior_0'),
        tf.keras.layers.Dense(width, 'tanh', name='prior_1'),
        tf.keras.layers.Dense(width, dtype='float32', name='prior_2')]
    self._decoder(tf.zeros([1, core.latent_dim]))
    self._prior_of(tf.zeros([1, core.context_dim]),
                   tensor_specs.zeros(space.sample_spec, [1]))

  def _prior_of(self, context: tf.Tensor, previous_action: Any) -> List[tf.Tensor]:
    """Computes the prior's mean and log scale."""
    outputs = tf.concat(
        [context, self._space.encode(previous_action, tf.float32)], axis=-1)
    for layer in self._prior:
      outputs = layer(outputs)
    return tf.split(outputs, 2, axis=-1)

  def call(self, beliefs: merlin.Beliefs, observation: Any, previous_action: Any,
           reward: tf.Tensor, is_first: tf.Tensor) -> Predictions:
    """Computes the errors at the steps of an unroll.

    Args:
      beliefs: the beliefs of the core, `[B, T, ...]`.
      observation: `[B, T, ...]`, of the spec that the variables were created for.
      previous_action: `[B, T, ...]`.
      reward: `[B, T]`.
      is_first: bool `[B, T]`; where true, `previous_action` and `reward` are ignored.
    """
    previous_action, reward = nests.where(
        is_first, tf.nest.map_structure(tf.zeros_like, (previous_action, reward)),
        (previous_action, reward))
    prior = self._prior_of(beliefs.context, previous_action)
    # Stateless, like dropout: a run that resumes draws what it would have drawn.
    noise = tf.random.stateless_normal(
        tf.shape(beliefs.mean), dropout.make_key(beliefs.mean))
    sample = beliefs.mean + tf.exp(beliefs.log_scale) * noise
    observation_outputs, action_outputs, predicted_reward, value = tf.split(
        self._decoder(sample), self._sizes, axis=-1)
    going_on = tf.cast(~is_first, tf.float32)
    return Predictions(
        kl=_kl(beliefs.mean, beliefs.log_scale, *prior),
        observation=self._observations.error(observation_outputs, observation),
        action=going_on * _error(self._space, action_outputs, previous_action),
        reward=going_on * 0.5 * tf.square(
            tf.squeeze(predicted_reward, -1) - tf.cast(reward, tf.float32)),
        value=value)
