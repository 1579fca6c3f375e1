"""Beam search over plans of codes, the planner of TAP (Jiang et al., 2023)."""

import math
from typing import Any, Callable, Tuple

import tensorflow as tf


def beam_search(log_probs: Callable[[tf.Tensor], tf.Tensor],
                values: Callable[[tf.Tensor], tf.Tensor], batch_size: Any,
                num_codes: int, beam_width: int, expansions: int,
                penalty: float, threshold: float, seed: Any
                ) -> Tuple[tf.Tensor, tf.Tensor]:
  """Finds plans of codes with a high value and probability, by beam search.

  It looks for the plan z of M codes with the highest objective

    value(z) + penalty min(log p(z), M log threshold)

  Each plan of the beam is continued by codes drawn from the prior p, and the best of
  the longer plans are the next beam. A plan that is drawn twice counts once; in the
  authors' code its copies push others out. If there are fewer plans than places, a plan
  has several places. Among plans whose codes have a probability of at least `threshold`
  on (geometric) average, the value alone decides.

  Args:
    log_probs: takes plans, int32 `[B, W, m]`; returns the prior's log-probabilities
      `[B, W, K]` of the next code.
    values: takes plans `[B, N, m]`; returns their values `[B, N]`.
    batch_size: B, the number of independent searches.
    num_codes: M.
    beam_width: places in the beam.
    expansions: codes drawn from each place; `beam_width` times as many at the first code.
    penalty: alpha, in the unit of values.
    threshold: beta.
    seed: int32 `[2]`.

  Returns:
    The best plan, `[B, M]`, and its objective `[B]`.
  """
  plans = tf.zeros([batch_size, 1, 0], tf.int32)
  log_prob = tf.zeros([batch_size, 1])
  first = tf.zeros([batch_size, 1], tf.int32)  # The first place of each place's plan.
  for m in range(num_codes):
    code_log_probs = log_probs(plans)
    num_values = code_log_probs.shape[-1]
    drawn = _sample(code_log_probs, expansions if m else beam_width * expansions,
                    tf.random.experimental.stateless_fold_in(seed, m))
    # A number for each longer plan. Sorted, those of equal plans are neighbours.
    drawn = tf.sort(tf.reshape(first[..., tf.newaxis] * num_values + drawn,
                               [batch_size, beam_width * expansions]))
    is_new = tf.pad(drawn[:, 1:] != drawn[:, :-1], [[0, 0], [1, 0]], constant_values=True)
    log_prob = tf.gather(log_prob, drawn // num_values, batch_dims=1) + tf.gather(
        tf.reshape(code_log_probs, [batch_size, -1]), drawn, batch_dims=1)
    plans = tf.concat([tf.gather(plans, drawn // num_values, batch_dims=1),
                       drawn[..., tf.newaxis] % num_values], axis=2)
    objective = tf.where(is_new, values(plans) + penalty * tf.minimum(
        log_prob, num_codes * math.log(threshold)), -math.inf)
    objective, best = tf.math.top_k(objective, beam_width)
    first = tf.range(beam_width) % tf.reduce_sum(
        tf.cast(is_new, tf.int32), axis=1, keepdims=True)
    best = tf.gather(best, first, batch_dims=1)
    plans, log_prob = (tf.gather(x, best, batch_dims=1) for x in (plans, log_prob))
  return plans[:, 0], objective[:, 0]


def _sample(log_probs: tf.Tensor, num: int, seed: tf.Tensor) -> tf.Tensor:
  """Draws `num` codes with replacement, int32 `[B, W, num]`, from `[B, W, K]`."""
  # This inverts the cumulative distribution, and needs no noise for each code.
  cumulative = tf.cumsum(tf.exp(log_probs), axis=-1)
  uniform = tf.random.stateless_uniform(
      tf.concat([tf.shape(log_probs)[:2], [num]], 0), seed)
  uniform *= cumulative[..., -1:]  # Rounding leaves it near 1.
  below = cumulative[:, :, tf.newaxis] <= uniform[..., tf.newaxis]
  index = tf.reduce_sum(tf.cast(below, tf.int32), axis=-1)
  return tf.minimum(index, log_probs.shape[-1] - 1)
