"""Tests of ledger.py."""

from absl.testing import absltest
import numpy as np
import tensorflow as tf

from gtrxl_tf.replay import staleness

_T, _E = 4, 2
_FIRST, _MID, _LAST = 0, 1, 2


def _unroll(unroll_id=0, target_step=0, **columns):
  """An unroll in which no episode ends, with `columns` replaced."""
  nothing = np.full((_T, _E), np.nan, np.float32)
  return dict(
      dict(unroll_id=np.int64(unroll_id), target_step=np.int64(target_step),
           step_type=np.full((_T, _E), _MID, np.int32), episode_return=nothing,
           episode_success=nothing, task=np.zeros(_E, np.int32)), **columns)


class LedgerTest(absltest.TestCase):

  def test_an_unroll_is_admitted_below_the_maximum_age(self):
    ledger = staleness.Ledger(max_age=10)
    ledger.learner_step = 100
    ages = [0, 9, 10, 50]
    admitted = [ledger.admit(**_unroll(i, 100 - age)) for i, age in enumerate(ages)]
    self.assertEqual(admitted, [True, True, False, False])
    self.assertEqual((ledger.unrolls, ledger.stale, ledger.duplicate), (2, 2, 0))

  def test_lengths_are_counted_across_unrolls_and_unknown_after_a_gap(self):
    ledger = staleness.Ledger(max_age=10)
    types = np.array([[1, 1], [2, 1], [0, 1], [1, 2]])
    ended = np.where(types == 2, 1.0, np.nan)
    for i in 0, 1, 2, 4:  # One is lost.
      ledger.admit(**_unroll(i, step_type=types, episode_return=ended))
    # The first episodes began before the first rows; the other environment's never do.
    self.assertEqual(list(ledger.lengths), [3, 3])
    restored = staleness.Ledger(max_age=10)
    restored.deserialize(ledger.serialize())
    self.assertEqual(list(restored.lengths), [3, 3])

  def test_weights_from_a_future_step_are_refused(self):
    ledger = staleness.Ledger(max_age=10)
    ledger.learner_step = 40
    self.assertFalse(ledger.admit(**_unroll(target_step=41)))
    self.assertEqual((ledger.unrolls, ledger.stale), (0, 1))
    self.assertEqual(ledger.environment_steps, 0)

  def test_nothing_is_admitted_twice(self):
    ledger = staleness.Ledger(max_age=10)
    a, b = 5 << 32, 7 << 32  # Two writers whose items are interleaved.
    ids = [a, b, a + 1, a + 1, b, a, b + 1, a + 3, a + 2]
    admitted = [ledger.admit(**_unroll(i)) for i in ids]
    self.assertEqual(admitted, [True, True, True, False, False, False, True, True,
                                False])
    self.assertEqual((ledger.unrolls, ledger.stale, ledger.duplicate), (5, 0, 4))

  def test_environment_steps_are_actions(self):
    step_type = np.full((_T, _E), _MID, np.int32)
    step_type[1, 0], step_type[2, 0] = _LAST, _FIRST  # No action leads to a FIRST row.
    ledger = staleness.Ledger(max_age=10)
    ledger.admit(**_unroll(0, step_type=step_type))
    self.assertEqual(ledger.environment_steps, _T * _E - 1)
    ledger.admit(**_unroll(1))
    self.assertEqual(ledger.environment_steps, 2 * _T * _E - 1)

  def test_returns_come_from_episodes_that_ended(self):
    returns = np.full((_T, _E), np.nan, np.float32)
    returns[1, 0], returns[3, 1] = 2.5, 0
    successes = np.full((_T, _E), np.nan, np.float32)
    successes[1, 0] = 1
    ledger = staleness.Ledger(max_age=10)
    ledger.admit(**_unroll(0, episode_return=returns, episode_success=successes))
    self.assertEqual(list(ledger.returns), [2.5, 0])
    self.assertEqual(list(ledger.successes), [1])
    ledger.admit(**_unroll(1))
    self.assertEqual(list(ledger.returns), [2.5, 0])

  def test_returns_of_each_task(self):
    ledger = staleness.Ledger(max_age=10, num_tasks=3)
    returns = np.full((_T, _E), np.nan, np.float32)
    returns[0] = 1, 2
    returns[2, 1] = 3
    ledger.admit(**_unroll(episode_return=returns, task=np.int32([2, 0])))
    self.assertEqual([list(x) for x in ledger.task_returns], [[2, 3], [], [1]])

  def test_a_checkpoint_restores_the_ledger(self):
    returns = np.full((_T, _E), np.nan, np.float32)
    returns[1] = 2.5, 4
    saved = staleness.Ledger(max_age=10, num_tasks=2)
    for i in range(3):
      saved.admit(**_unroll(i, episode_return=returns, episode_success=returns,
                            task=np.int32([0, 1])))
    saved.admit(**_unroll(2))
    path = tf.train.Checkpoint(ledger=saved).save(
        self.create_tempdir().full_path + '/checkpoint')
    restored = staleness.Ledger(max_age=10, num_tasks=2)
    restored.admit(**_unroll(70))  # Its own contents are replaced.
    tf.train.Checkpoint(ledger=restored).restore(path)
    self.assertEqual(restored.serialize(), saved.serialize())
    self.assertEqual((restored.unrolls, restored.duplicate), (3, 1))
    self.assertEqual([restored.admit(**_unroll(i)) for i in (1, 2, 3)],
                     [False, False, True])

  def test_a_checkpoint_has_the_ledgers_of_all_workers(self):
    a, b = 5 << 32, 7 << 32  # Two writers.
    chief, other = (staleness.Ledger(max_age=10, worker=i) for i in range(2))
    for i in (a, a + 1, b + 1):
      chief.admit(**_unroll(i))
    for i in (a + 2, b):
      other.admit(**_unroll(i))
    chief.set_workers([chief.own_state(), other.own_state()])
    chief.admit(**_unroll(b + 2))  # Including those that it takes after the exchange.
    path = tf.train.Checkpoint(ledger=chief).save(
        self.create_tempdir().full_path + '/checkpoint')
    for worker, unrolls in (0, 4), (1, 2), (2, 0):  # The last is new.
      restored = staleness.Ledger(max_age=10, worker=worker)
      restored.admit(**_unroll(70))
      tf.train.Checkpoint(ledger=restored).restore(path)
      self.assertEqual((restored.unrolls, restored.duplicate), (unrolls, 0))
      self.assertEqual(
          [restored.admit(**_unroll(i)) for i in (
              a, a + 1, a + 2, b, b + 1, b + 2, a + 3, b + 3)], 6 * [False] + 2 * [True])

  def test_a_checkpoint_before_an_exchange_keeps_the_other_ledgers(self):
    chief, other = (staleness.Ledger(max_age=10, worker=i) for i in range(2))
    for i in (1, 2, 3):
      other.admit(**_unroll(i))
    chief.set_workers([chief.own_state(), other.own_state()])
    for unrolls in (1, 2):  # The chief is restored, and saves without an exchange.
      restored = staleness.Ledger(max_age=10)
      restored.deserialize(chief.serialize())
      chief = restored
      chief.admit(**_unroll((7 << 32) + unrolls))
      self.assertEqual(chief.unrolls, unrolls)
    restored = staleness.Ledger(max_age=10, worker=1)
    restored.deserialize(chief.serialize())
    self.assertEqual(restored.unrolls, 3)

  def test_gauges_cover_the_time_since_the_last_call(self):
    ledger = staleness.Ledger(max_age=10)
    ledger.learner_step = 6
    a, b = 5 << 32, 7 << 32  # Two writers.
    for unroll_id, target_step in ((a, 6), (b, 2), (a + 1, 2)):
      ledger.admit(**_unroll(unroll_id, target_step))
    gauges = ledger.gauges(seconds=2.0)
    self.assertEqual(gauges, {
        'data_age': 8 / 3, 'actors': 2,
        'slowest_actor_steps_per_second': _T * _E / 2,
        'fastest_actor_steps_per_second': _T * _E})
    self.assertEqual(ledger.gauges(1.0)['actors'], 0)


if __name__ == '__main__':
  absltest.main()
