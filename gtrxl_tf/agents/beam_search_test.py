"""Searches plans of which the best is known."""

import itertools

from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from gtrxl_tf.agents import beam_search

_K, _M, _B = 4, 3, 2
_PLANS = np.array(list(itertools.product(range(_K), repeat=_M)))


class BeamSearchTest(tf.test.TestCase, parameterized.TestCase):
  """Two tasks, in which a plan's value and probability are sums over pairs of codes."""

  def setUp(self):
    super().setUp()
    random = np.random.RandomState(3)
    self.gains = random.randn(_B, _K + 1, _K).astype(np.float32)  # From code to code.
    logits = random.randn(_B, _K + 1, _K)
    self.table = np.float32(
        logits - np.log(np.exp(logits).sum(-1, keepdims=True)))

  def total(self, table, plans):
    """The sums `[B, N]` of a table's entries along plans `[B, N, m]`."""
    before = np.concatenate([np.full_like(plans[..., :1], _K), plans[..., :-1]], -1)
    return np.sum(table[np.arange(_B)[:, None, None], before, plans], axis=-1)

  def search(self, penalty=0.0, threshold=0.5, width=5000, expansions=1):
    def log_probs(plans):
      plans = plans.numpy()
      last = plans[..., -1] if plans.shape[-1] else np.full(plans.shape[:2], _K)
      return tf.constant(self.table[np.arange(_B)[:, None], last])
    return beam_search.beam_search(
        log_probs, lambda plans: tf.constant(self.total(self.gains, plans.numpy())),
        _B, _M, width, expansions, penalty, threshold, tf.constant([0, 1]))

  @parameterized.parameters(
      *itertools.product([0.0], [0.5], [(5000, 1), (64, 16), (64, 64)]),
      *itertools.product([1.0], [0.5, 0.05], [(5000, 1), (64, 16), (64, 64)]),
      *itertools.product([100.0], [0.5], [(5000, 1), (64, 16), (64, 64)]))
  def test_it_finds_the_best_plan(self, penalty, threshold, size):
    plans = np.tile(_PLANS, [_B, 1, 1])
    objective = self.total(self.gains, plans) + penalty * np.minimum(
        self.total(self.table, plans), _M * np.log(threshold))
    found, value = self.search(penalty, threshold, *size)
    self.assertAllEqual(found, _PLANS[objective.argmax(-1)])
    self.assertAllClose(value, objective.max(-1))

  def test_a_narrow_beam_finds_it_where_gains_do_not_depend_on_the_code_before(self):
    self.gains[:] = self.gains[:, :1]
    found, _ = self.search(width=2, expansions=50)
    best = self.gains[:, 0].argmax(-1)
    self.assertAllEqual(found, np.tile(best[:, np.newaxis], [1, _M]))

  def test_a_beam_of_one_is_greedy(self):
    found, _ = self.search(width=1, expansions=200)
    last = np.full(_B, _K)
    for m in range(_M):
      last = self.gains[np.arange(_B), last].argmax(-1)
      self.assertAllEqual(found[:, m], last)

  def test_an_improbable_plan_is_refused_however_good_it_is(self):
    self.table[:] = np.log([0.6, 0.3, 0.09, 0.01])
    self.gains[:] = [0, 1, 2, 9]
    free, _ = self.search(width=64, expansions=64)
    self.assertAllEqual(free, [[3] * _M] * _B)
    # The best of the plans whose codes have a mean probability of 0.3 or more.
    careful, _ = self.search(penalty=1e4, threshold=0.299)
    self.assertAllEqual(careful, [[1] * _M] * _B)

  def test_draws_follow_the_prior(self):
    log_probs = np.log(np.float32([[[0.5, 0.25, 0.125, 0.125]]]))
    drawn = beam_search._sample(  # pylint: disable=protected-access
        tf.constant(log_probs), 20_000, tf.constant([1, 2]))
    share = np.bincount(np.ravel(drawn), minlength=_K) / 20_000
    self.assertAllClose(share, [0.5, 0.25, 0.125, 0.125], atol=0.015)


if __name__ == '__main__':
  tf.test.main()
