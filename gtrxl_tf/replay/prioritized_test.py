"""Tests of the replay table, through a real server."""

import math
import pathlib

from absl.testing import absltest
from absl.testing import parameterized
import dm_env
import numpy as np
import portpicker
import pytest
import reverb
import tensorflow as tf

from gtrxl_tf.replay import dataset
from gtrxl_tf.replay import prioritized
from gtrxl_tf.replay import server as server_lib
from gtrxl_tf.replay import staleness
from gtrxl_tf.replay import unroll as unroll_lib
from gtrxl_tf.replay import writer as writer_lib
from gtrxl_tf.settings import config

_T, _M, _E = 4, 3, 2


def _row(t, step_type=dm_env.StepType.MID, target_step=0):
  """Row t of the stream: its number is in every column."""
  return unroll_lib.Unroll(
      observation=np.full([_E, 1], t, np.float32),
      step_type=np.full([_E], step_type, np.int32),
      reward=np.full([_E], t, np.float32), discount=np.ones([_E], np.float32),
      action=np.full([_E], t, np.int32), policy=(),
      record=np.full([_E, 2], t, np.float32),
      episode_return=np.full(
          [_E], t if step_type == dm_env.StepType.LAST else np.nan, np.float32),
      episode_success=np.full([_E], np.nan, np.float32),
      task=np.zeros([_E], np.int32), target_step=np.int64(target_step),
      unroll_id=np.int64(0))


class ReplayTest(parameterized.TestCase, tf.test.TestCase):

  def start(self, checkpoints=None, queue_size=1000, **settings):
    self.replay = prioritized.Replay(**{'min_unrolls': 1, **settings})
    self.port = portpicker.pick_unused_port()
    self.server = server_lib.serve(
        self.port, _row(0), _T, _M, queue_size, [tf.Variable(0.0)], checkpoints,
        replay=self.replay)
    self.addCleanup(lambda: self.server.stop())  # pylint: disable=unnecessary-lambda
    self.client = reverb.Client(f'localhost:{self.port}')
    self.ledger = staleness.Ledger(math.inf)

  def write(self, num_rows, identity=1, first=0, **columns):
    """Writes rows; an episode ends in row 5 of every 6."""
    writer = writer_lib.UnrollWriter(
        self.client, _row(0), _T, _M, identity, self.replay)
    writer.open()
    for t in range(first, first + num_rows):
      kind = {0: dm_env.StepType.FIRST, 5: dm_env.StepType.LAST}.get(
          t % 6, dm_env.StepType.MID)
      writer.append(_row(t, kind, **columns))
    self.assertTrue(writer.wait(0, 10000))
    writer.close()

  def stream(self, new_items, num_items=1):
    """Batches for ever, one after `new_items` notices each."""
    return iter(dataset.replayed(
        f'localhost:{self.port}', num_items, new_items, self.replay, self.ledger,
        lambda: False, timeout_ms=500))

  def size(self, table=prioritized.TABLE):
    return self.client.server_info()[table].current_size

  @parameterized.parameters((0, 6), (2, 11), (3, 21))
  def test_unrolls_overlap_and_each_step_is_counted_once(self, overlap, num):
    self.start(overlap=overlap)
    self.write(_T + 1 + (num - 1) * (_T - overlap))
    self.assertEqual(self.size(), num)
    self.assertEqual(self.size(writer_lib.TABLE), num)
    found = set()
    for sample in self.client.sample(prioritized.TABLE, 10 * num, emit_timesteps=False):
      observation, step_type = sample.data[0][:, 0, 0], sample.data[1]
      self.assertAllEqual(observation, observation[0] + np.arange(_T + 1))
      self.assertLen(step_type, _M + _T + 1)
      found.add(int(observation[0]))
    self.assertContainsSubset(found, [i * (_T - overlap) for i in range(num)])
    next(self.stream(num))
    rows = np.arange(1 + overlap, _T + 1 + (num - 1) * (_T - overlap))
    self.assertEqual(self.ledger.environment_steps, _E * np.sum(rows % 6 != 0))
    self.assertAllEqual(self.ledger.returns, np.repeat(rows[rows % 6 == 5], _E))

  @pytest.mark.medium
  def test_a_batch_has_weights_keys_and_rows_of_all_environments(self):
    self.start(importance_exponent=0.5, priority_exponent=1.0)
    self.write(1 + 2 * _T)
    first, second = sorted(
        {s.info.key: s.data[0][0, 0, 0] for s in self.client.sample(
            prioritized.TABLE, 50, emit_timesteps=False)}.items(), key=lambda x: x[1])
    prioritized.update_priorities(self.client, np.array([first[0], second[0]], np.uint64),
                       np.array([1.0, 2.0, 0.5, 0.5]))
    self.ledger.learner_step = 7
    batch = next(self.stream(1, 40))
    self.assertEqual(batch.unroll.observation.shape, [80, _T + 1, 1])
    self.assertEqual(batch.unroll.record.shape, [80, _M, 2])
    keys = np.repeat(batch.key.numpy(), _E)
    rare = keys == second[0]
    self.assertBetween(np.mean(rare), 0.05, 0.5)  # A quarter: 0.5 against 1.5.
    self.assertAllEqual(batch.unroll.observation[:, 0, 0],
                        np.where(rare, second[1], first[1]))
    self.assertAllClose(batch.weight, np.where(rare, 1, 3 ** -0.5))
    self.assertEqual(self.ledger.oldest, 8)
    self.assertEqual(self.ledger.gauges(1.0)['data_age'], 7)

  @pytest.mark.medium
  def test_the_learner_waits_until_the_table_has_enough(self):
    self.start(min_unrolls=5 * _E)
    batches = iter(dataset.replayed(
        f'localhost:{self.port}', 2, 1, self.replay, self.ledger,
        lambda: self.ledger.unrolls >= 4, timeout_ms=500))
    self.write(1 + 4 * _T)
    self.assertIsNone(next(batches, None))
    self.assertEqual(self.ledger.unrolls, 4)  # The queue was emptied all the same.
    self.write(1 + _T, identity=2)
    self.assertIsNotNone(next(self.stream(1)))

  def test_the_oldest_items_leave_a_full_table(self):
    self.start(capacity=3 * _E)
    self.write(1 + 5 * _T)
    self.assertEqual(self.size(), 3)
    found = {s.data[0][0, 0, 0] for s in self.client.sample(
        prioritized.TABLE, 60, emit_timesteps=False)}
    self.assertEqual(found, {2 * _T, 3 * _T, 4 * _T})
    # A learner may still have the key of an item that has left.
    prioritized.update_priorities(self.client, np.array([12345], np.uint64), np.array([2.0, 2.0]))

  def test_a_table_that_holds_no_whole_number_of_items_can_be_filled(self):
    self.start(capacity=2 * _E + 1, min_unrolls=2 * _E + 1)
    self.write(1 + 5 * _T)
    self.assertEqual(self.size(), 3)
    self.assertTrue(self.replay.is_filled(self.client, _E))

  @pytest.mark.medium
  def test_a_restored_server_repeats_no_steps_and_keeps_priorities(self):
    checkpoints = pathlib.Path(self.create_tempdir().full_path)
    self.start(checkpoints)
    self.write(1 + 2 * _T)
    batch = next(self.stream(2))
    prioritized.update_priorities(self.client, batch.key.numpy(), np.array([9.0, 9.0]))
    server_lib.checkpoint(self.port)
    counted = self.ledger.environment_steps
    self.server.stop()
    ledger = self.ledger
    self.start(checkpoints)
    self.ledger = ledger
    self.assertEqual(self.size(), 2)
    self.write(1 + _T, identity=2, target_step=50)  # Of a learner that was killed.
    self.assertIsNotNone(next(self.stream(1)))
    self.assertEqual(ledger.stale, 0)
    self.assertEqual(ledger.environment_steps, counted + _E * _T)
    priorities = [s.info.priority for s in self.client.sample(
        prioritized.TABLE, 40, emit_timesteps=False)]
    self.assertIn(9.0, priorities)

  def test_a_notice_that_comes_twice_is_counted_once(self):
    self.start()
    self.write(1 + 2 * _T)
    self.write(1 + _T)  # Another stream under the same name.
    self.write(1 + _T, identity=2)
    next(self.stream(3))
    self.assertEqual((self.ledger.unrolls, self.ledger.duplicate), (3, 1))

  def test_servers_and_settings_that_do_not_fit_are_refused(self):
    self.start()
    plain = writer_lib.UnrollWriter(self.client, _row(0), _T, _M)
    with self.assertRaisesRegex(config.ConfigError, 'do not fit'):
      plain.open()
    port = portpicker.pick_unused_port()
    server = server_lib.serve(port, _row(0), _T, _M, 1, [])
    self.addCleanup(server.stop)
    writer = writer_lib.UnrollWriter(
        reverb.Client(f'localhost:{port}'), _row(0), _T, _M, replay=self.replay)
    with self.assertRaisesRegex(config.ConfigError, "has no table 'replay'"):
      writer.open()
    with self.assertRaisesRegex(
        config.ConfigError, 'Replay.min_unrolls = 9: expected at most Replay.capacity'):
      prioritized.Replay(capacity=8, min_unrolls=9)


if __name__ == '__main__':
  absltest.main()
