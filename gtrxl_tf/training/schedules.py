"""Learning rate schedules: a warm-up, then a decay."""

import math
from typing import Any, Dict, Literal, Optional

import tensorflow as tf

Decay = Literal['linear', 'cosine', 'cyclic_cosine']


class WarmUpAndDecay(tf.keras.optimizers.schedules.LearningRateSchedule):
  """A learning rate that rises linearly from 0 and then decays to a share of its peak.

  The rise counts gradient steps. So does the decay, unless it follows the progress of a
  run, whose gradient steps may not be known in advance.

  Both cosines are cut off at that share, as in RATE's code and in the code it is based
  on; Keras' `alpha` would scale them instead.
  """

  def __init__(self, peak: float, warmup_steps: int, decay: Decay, decay_steps: int,
               final: float, progress: Optional[tf.Variable] = None):
    """Creates the schedule.

    Args:
      peak: the learning rate after the warm-up.
      warmup_steps: gradient steps of the rise; 0 for none.
      decay: `linear`; `cosine`; or `cyclic_cosine`, which rises again after
        `decay_steps`.
      decay_steps: the gradient step, counted from the first, at which the decay ends.
      final: the share of `peak` at that step.
      progress: the share of a run that is over. If given, the decay ends with the run,
        and `decay_steps` only says which share of the run the rise takes.
    """
    self._settings = dict(peak=peak, warmup_steps=warmup_steps, decay=decay,
                          decay_steps=decay_steps, final=final)  # For Keras.
    self._peak = peak
    self._warmup_steps = warmup_steps
    self._final = final
    self._decay = decay
    self._progress = progress
    self._decay_steps = decay_steps
    self._length = max(decay_steps - warmup_steps, 1)
    self._cosine = tf.keras.optimizers.schedules.CosineDecay(1.0, self._length)

  def __call__(self, step: Any) -> tf.Tensor:
    step = tf.cast(step, tf.float32)
    rise = (step + 1) / max(self._warmup_steps, 1)
    if self._progress is not None:
      step = self._progress * self._decay_steps
    decaying = tf.maximum(step - self._warmup_steps, 0)
    return self._peak * tf.minimum(rise, self._fall(decaying))

  def _fall(self, step: tf.Tensor) -> tf.Tensor:
    """Returns the share of the peak that is left after `step` steps of decay."""
    if self._decay == 'linear':
      # Keras' PolynomialDecay differs in the last bit, which would change what an
      # interrupted run resumes with.
      return 1 - (1 - self._final) * tf.minimum(step / self._length, 1)
    if self._decay == 'cosine':
      return tf.maximum(self._final, self._cosine(step))
    return tf.maximum(self._final, 0.5 * (1 + tf.cos(math.pi * (step / self._length))))

  def get_config(self) -> Dict[str, Any]:
    return self._settings
