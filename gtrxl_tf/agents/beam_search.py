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

  Each plan of the beam is continued by different codes drawn from the prior p, and the
  best of the longer plans are the next beam, so that no plan is in it twice. In the
  authors' code, which draws with replacement, copies of a good plan push others out.
  Among plans whose codes have a probability of at least `threshold` on (geometric)
  average, the value alone decides.

  Args:
    log_probs: takes plans, int32 `[B, W, m]`; returns the prior's log-probabilities
      `[B, W, K]` of the next code.
    values: takes plans `[B, N, m]`; returns their values `[B, N]`.
    batch_size: B, the number of independent searches.
    num_codes: M.
    beam_width: plans in the beam.
    expansions: codes drawn for each plan of a full beam, and more for fewer plans.
    penalty: alpha, in the unit of values.
    threshold: beta.
    seed: int32 `[2]`.

  Returns:
    The best plan, `[B, M]`, and its objective `[B]`.
  """
  plans = tf.zeros([batch_size, 1, 0], tf.int32)
  log_prob = tf.zeros([batch_size, 1])
  objective = log_prob
  for m in range(num_codes):
    code_log_probs = log_probs(plans)
    num_drawn = min(
        beam_width * expansions // plans.shape[1], code_log_probs.shape[-1])
    drawn = _sample(code_log_probs, num_drawn,
                    tf.random.experimental.stateless_fold_in(seed, m))
    log_prob = log_prob[..., tf.newaxis] + tf.gather(
        code_log_probs, drawn, batch_dims=2)
    log_prob = tf.reshape(log_prob, [batch_size, -1])
    plans = tf.concat([
        tf.repeat(plans, num_drawn, axis=1),
        tf.reshape(drawn, [batch_size, -1, 1])], axis=2)
    objective = values(plans) + penalty * tf.minimum(
        log_prob, num_codes * math.log(threshold))
    objective, best = tf.math.top_k(objective, min(beam_width, plans.shape[1]))
    plans, log_prob = (
        tf.gather(x, best, batch_dims=1) for x in (plans, log_prob))
  return plans[:, 0], objective[:, 0]


def _sample(log_probs: tf.Tensor, num: int, seed: tf.Tensor) -> tf.Tensor:
  """Draws `num` different codes, int32 `[B, W, num]`, from `[B, W, K]`."""
  # The largest sums with Gumbel noise are draws without replacement.
  uniform = tf.random.stateless_uniform(tf.shape(log_probs), seed, minval=1e-30)
  return tf.math.top_k(log_probs - tf.math.log(-tf.math.log(uniform)), num).indices
