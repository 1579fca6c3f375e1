"""Optimizers and their settings."""

import abc
import dataclasses
from typing import Optional

import tensorflow as tf

from gtrxl_tf.settings import config
from gtrxl_tf.training import learner
from gtrxl_tf.training import schedules

_EPSILON = 1e-8


class OptimizerSettings(abc.ABC):
  """The settings of an optimizer.

  Optimizers count gradient steps. A learner step takes one of them, or more with
  `OnlineExperiment.num_epochs` or `num_minibatches`.

  Attributes:
    clip_norm: the norm to which gradients are clipped; None for no clipping.
    ema_momentum: see `AdamW`; 0 if the weights are not averaged.
  """
  clip_norm: Optional[float] = None
  ema_momentum: float = 0.0

  @abc.abstractmethod
  def make(self, gradient_steps: Optional[int],
           progress: Optional[tf.Variable] = None) -> learner.Optimizer:
    """Makes the optimizer.

    Args:
      gradient_steps: how many it will take, about; None if that is not known.
      progress: the share of the run that is over, which schedules then follow.
    """


@config.configurable
@dataclasses.dataclass(frozen=True)
class Adam(OptimizerSettings):
  """Adam as V-MPO uses it.

  The defaults are V-MPO's: a constant learning rate and no clipping. Epsilon is 1e-8; all
  other settings are TensorFlow's.

  Args:
    learning_rate: the learning rate at the start of the run.
    final_learning_rate: the share of it at the end of the run, to which it falls
      linearly: with the environment steps that were trained on, or offline with the
      learner steps.
    clip_norm: the norm to which gradients are clipped; None for no clipping.
  """
  learning_rate: config.PositiveFloat = 1e-4
  final_learning_rate: config.UnitInterval = 1.0
  clip_norm: Optional[config.PositiveFloat] = None

  def make(self, gradient_steps: Optional[int],
           progress: Optional[tf.Variable] = None) -> learner.Optimizer:
    learning_rate = self.learning_rate
    if self.final_learning_rate < 1:
      if gradient_steps is None:
        raise config.ConfigError(
            f'Adam.final_learning_rate = {self.final_learning_rate}: expected 1.0, '
            'since the experiment does not set how many steps it takes')
      learning_rate = schedules.WarmUpAndDecay(
          learning_rate, 0, 'linear', gradient_steps, self.final_learning_rate,
          progress)
    # The legacy class has one fused op for each variable, and traces in half the time
    # of the newer class.
    return tf.keras.optimizers.legacy.Adam(learning_rate, epsilon=_EPSILON)


@config.configurable
@dataclasses.dataclass(frozen=True)
class AdamW(OptimizerSettings):
  """AdamW on all variables, with a warm-up and a decay of the learning rate.

  The defaults are RATE's (Table 8, T-Maze).

  Args:
    learning_rate: the learning rate after the warm-up.
    weight_decay: the weight decay, decoupled from the gradient.
    beta_1: decay of the first moment.
    beta_2: decay of the second moment.
    warmup_steps: gradient steps over which the learning rate rises from 0.
    decay: how the learning rate falls afterwards: `linear` or `cosine`. The published
      code of RATE continues the cosine beyond its end, so that the rate rises again:
      `cyclic_cosine`.
    decay_steps: the gradient step at which the decay ends. By default it ends with the
      run, see `Adam`.
    final_learning_rate: the share of the learning rate at the end of the decay.
    clip_norm: the norm to which gradients are clipped; None for no clipping.
    ema_momentum: the share that an average of the weights keeps of itself at each
      gradient step; the new weights make up the rest. The average starts as the first
      weights. Offline, policies act with it, and training is the same without it. 0 for
      no average, as in the papers; 0.99 averages over about 100 steps.
  """
  learning_rate: config.PositiveFloat = 3e-4
  weight_decay: config.NonNegativeFloat = 0.1
  beta_1: config.UnitInterval = 0.9
  beta_2: config.UnitInterval = 0.95
  warmup_steps: config.NonNegativeInt = 100
  decay: schedules.Decay = 'linear'
  decay_steps: Optional[config.PositiveInt] = None
  final_learning_rate: config.UnitInterval = 0.1
  clip_norm: Optional[config.PositiveFloat] = 1.0
  ema_momentum: config.UnitInterval = 0.0

  def __post_init__(self):
    for name in 'beta_1', 'beta_2', 'ema_momentum':
      if getattr(self, name) == 1:  # Averages would never change.
        raise config.ConfigError(f'AdamW.{name} = 1.0: expected less than 1')
    if self.decay_steps is not None and self.decay_steps <= self.warmup_steps:
      raise config.ConfigError(
          f'AdamW.decay_steps = {self.decay_steps}: expected more than AdamW.warmup_steps = '
          f'{self.warmup_steps}')

  def make(self, gradient_steps: Optional[int],
           progress: Optional[tf.Variable] = None) -> learner.Optimizer:
    decay_steps = self.decay_steps or gradient_steps
    if decay_steps is None:
      raise config.ConfigError(
          'AdamW.decay_steps is not set: expected a number of gradient steps, since the '
          'experiment does not set how many it takes')
    schedule = schedules.WarmUpAndDecay(
        self.learning_rate, self.warmup_steps, self.decay, decay_steps,
        self.final_learning_rate, None if self.decay_steps else progress)
    if self.ema_momentum:
      return tf.keras.optimizers.AdamW(
          schedule, weight_decay=self.weight_decay, beta_1=self.beta_1,
          beta_2=self.beta_2, epsilon=_EPSILON, use_ema=True,
          ema_momentum=self.ema_momentum)
    return _FusedAdamW(schedule, self.weight_decay, self.beta_1, self.beta_2)


class _FusedAdamW(tf.keras.optimizers.legacy.Adam):
  """AdamW with three operations for each variable.

  Keras' class has about 25, which took 15 % of the CPU time of a small learner step. It
  is used where weights are averaged, which the class here does not do.
  """

  def __init__(self, learning_rate: schedules.WarmUpAndDecay, weight_decay: float,
               beta_1: float, beta_2: float):
    super().__init__(learning_rate, beta_1, beta_2, epsilon=_EPSILON, name='AdamW')
    self._weight_decay = weight_decay

  def _prepare_local(self, var_device, var_dtype, apply_state):
    super()._prepare_local(var_device, var_dtype, apply_state)
    settings = apply_state[(var_device, var_dtype)]
    settings['decay'] = settings['lr_t'] * self._weight_decay

  def _resource_apply_dense(self, grad, var, apply_state=None):
    decay = apply_state[(var.device, var.dtype.base_dtype)]['decay']
    with tf.control_dependencies([var.assign_sub(decay * var)]):
      return super()._resource_apply_dense(grad, var, apply_state)
