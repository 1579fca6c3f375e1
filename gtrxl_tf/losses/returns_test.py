"""Compares returns with a reference and with their definition."""

import pathlib

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf.losses import returns

GOLDEN = pathlib.Path(__file__).parents[2] / 'testdata' / 'golden' / 'ppo.npz'
GAMMA = 0.9


def _loop(rewards, discounts, values, is_last, gamma, td_lambda=1.):
  """The definition, step by step, in float64."""
  batch_size, num_rows = rewards.shape
  result = np.zeros([batch_size, num_rows - 1])
  for b in range(batch_size):
    for t in reversed(range(num_rows - 1)):
      ends = is_last[b, t + 1] or t + 2 == num_rows
      after = values[b, t + 1]
      if not ends:
        after = (1 - td_lambda) * after + td_lambda * result[b, t + 1]
      result[b, t] = rewards[b, t + 1] + gamma * discounts[b, t + 1] * after
  return result


def _unroll(batch_size, num_steps, seed=0):
  """Episodes of random lengths; half terminate, half reach a time limit."""
  random = np.random.RandomState(seed)
  shape = [batch_size, num_steps + 1]
  is_last = random.rand(*shape) < 0.15
  discounts = np.where(is_last & (random.rand(*shape) < 0.5), 0., 1.)
  return (random.randn(*shape).astype(np.float32), discounts.astype(np.float32),
          random.randn(*shape).astype(np.float32), is_last)


class GoldenTest(tf.test.TestCase, parameterized.TestCase):
  """Agreement with rlax, whose batches are [T, B] instead of [B, T]."""

  @parameterized.product(i=[0, 1, 2, 3], jit_compile=[False, True])
  @pytest.mark.medium
  def test_lambda_returns_and_generalized_advantages(self, i, jit_compile):
    golden = {name: x.swapaxes(0, 1) if x.ndim == 2 else x
              for name, x in np.load(GOLDEN).items() if name.startswith('returns/')}
    rewards, discounts, values, is_last = (
        golden[f'returns/{name}']
        for name in ('rewards', 'discounts', 'values', 'is_last'))
    evaluate = tf.function(
        returns.n_step_returns, autograph=False, jit_compile=jit_compile)
    got = evaluate(rewards, discounts, values, is_last, float(golden['returns/gamma']),
                   float(golden['returns/lambdas'][i])).numpy()
    valid = ~is_last[:, :-1]
    self.assertGreater(np.sum(~valid), 10)
    for name, mine in (('targets', got), ('advantages', got - values[:, :-1])):
      want = golden[f'returns/{name}{i}']
      self.assertAllEqual(np.isnan(want), ~valid)
      self.assertAllClose(mine[valid], want[valid], rtol=1e-5, atol=1e-5)


class NStepReturnsTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.product(
      num_steps=[1, 2, 3, 8, 13, 95],
      settings=[(0.,), (0.9,), (0.99,), (1.,), (0.9, 0.), (0.9, 0.5), (0.9, 0.95)])
  def test_equals_the_definition(self, num_steps, settings):
    unroll = _unroll(7, num_steps)
    self.assertAllClose(
        returns.n_step_returns(*unroll, *settings), _loop(*unroll, *settings),
        rtol=1e-5, atol=1e-5)

  @parameterized.named_parameters(
      ('the_end_of_the_unroll', 1, False, 1, [1 + .9 * (2 + .9 * 7), 2 + .9 * 7]),
      ('a_termination', 0, True, 1, [1 + .9 * 2, 2]),
      ('a_time_limit', 1, True, 1, [1 + .9 * (2 + .9 * 7), 2 + .9 * 7]),
      ('one_step_ahead', 0, True, 0, [1 + .9 * 6, 2]))
  def test_what_comes_after(self, discount, is_last, td_lambda, expected):
    num = 4 if is_last else 3  # Another episode may follow.
    got = returns.n_step_returns(
        rewards=[[0., 1., 2., 9.][:num]], discounts=[[1., 1., discount, 1.][:num]],
        values=[[5., 6., 7., 8.][:num]], is_last=[[False, False, is_last, False][:num]],
        gamma=GAMMA, td_lambda=td_lambda)
    self.assertAllClose(got[:, :2], [expected])

  @parameterized.parameters(False, True)
  def test_further_axes_have_separate_returns(self, jit_compile):
    cells = [_unroll(4, 13, seed) for seed in range(6)]
    _, discounts, _, is_last = cells[0]
    rewards, values = (
        np.stack([cell[i] for cell in cells], axis=-1).reshape([4, 14, 2, 3])
        for i in (0, 2))
    evaluate = tf.function(
        returns.n_step_returns, autograph=False, jit_compile=jit_compile)
    got = evaluate(rewards, discounts, values, is_last, GAMMA)
    want = [_loop(cell[0], discounts, cell[2], is_last, GAMMA) for cell in cells]
    self.assertAllClose(
        got, np.stack(want, axis=-1).reshape([4, 13, 2, 3]), rtol=1e-5, atol=1e-5)

  def test_nothing_crosses_the_end_of_an_episode(self):
    rewards, discounts, values, is_last = _unroll(1, 12)
    is_last[:] = False
    is_last[:, 5] = True
    before = returns.n_step_returns(rewards, discounts, values, is_last, GAMMA)
    for array in (rewards, discounts, values):
      array[:, 6:] = np.nan
    after = returns.n_step_returns(rewards, discounts, values, is_last, GAMMA)
    self.assertAllClose(after[:, :5], before[:, :5])

  def test_rewards_discounts_and_values_at_step_zero_are_ignored(self):
    rewards, discounts, values, is_last = _unroll(2, 9)
    before = returns.n_step_returns(rewards, discounts, values, is_last, GAMMA)
    for array in (rewards, discounts, values):
      array[:, 0] = np.nan
    after = returns.n_step_returns(rewards, discounts, values, is_last, GAMMA)
    self.assertAllEqual(after, before)

  def test_no_gradient_flows_through_it(self):
    rewards, discounts, values, is_last = map(tf.constant, _unroll(2, 5))
    with tf.GradientTape() as tape:
      tape.watch(values)
      got = returns.n_step_returns(rewards, discounts, values, is_last, GAMMA)
    self.assertIsNone(tape.gradient(got, values))

  def test_half_precision_is_computed_in_float32(self):
    rewards, discounts, values, is_last = _unroll(2, 5)
    values = tf.cast(values, tf.bfloat16)
    got = returns.n_step_returns(rewards, discounts, values, is_last, GAMMA)
    self.assertEqual(got.dtype, tf.float32)
    self.assertAllEqual(got, returns.n_step_returns(
        rewards, discounts, tf.cast(values, tf.float32), is_last, GAMMA))

  def test_bad_inputs_are_refused(self):
    rewards, discounts, values, is_last = _unroll(2, 5)
    with self.assertRaisesRegex(ValueError, '^values'):
      returns.n_step_returns(rewards, discounts, values[:, 1:], is_last, GAMMA)
    with self.assertRaisesRegex(ValueError, '^discounts'):
      returns.n_step_returns(rewards, discounts[:1], values, is_last, GAMMA)
    with self.assertRaisesRegex(ValueError, '^is_last'):
      returns.n_step_returns(rewards, discounts, values, is_last[0], GAMMA)
    with self.assertRaisesRegex(ValueError, '^rewards: .* static T >= 1, got'):
      returns.n_step_returns(rewards[0], discounts[0], values[0], is_last[0], GAMMA)
    with self.assertRaisesRegex(ValueError, '^rewards: .* static T >= 1, got'):
      returns.n_step_returns(*(x[:, :1] for x in _unroll(2, 5)), GAMMA)
    with self.assertRaisesRegex(ValueError, '^gamma: .* got 1.1$'):
      returns.n_step_returns(rewards, discounts, values, is_last, 1.1)
    with self.assertRaisesRegex(ValueError, '^td_lambda'):
      returns.n_step_returns(rewards, discounts, values, is_last, GAMMA, -0.5)


if __name__ == '__main__':
  absltest.main()
