"""Tests of writer.py with unroll.py, server.py, dataset.py: rows in, batches out."""

import itertools
import threading
import time

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import portpicker
import pytest
import reverb
import tensorflow as tf

from gtrxl_tf.replay import dataset
from gtrxl_tf.replay import server
from gtrxl_tf.replay import staleness
from gtrxl_tf.replay import unroll as unroll_lib
from gtrxl_tf.replay import writer as writer_lib
from gtrxl_tf.settings import config

_E = 3
_TIMEOUT_MS = 5000  # Time-out for items that should arrive.
_SHORT_MS = 300  # Time-out for items that should not.


def _row(n, memory=True) -> unroll_lib.Unroll:
  """Row `n` of a stream. Values encode `n`, the environment and the column."""
  def numbers(column, *shape):
    values = column + 100 * n + np.arange(_E, dtype=np.float32)
    return np.broadcast_to(
        values.reshape(_E, *(1 for _ in shape)), (_E, *shape)).astype(np.float32)

  return unroll_lib.Unroll(
      observation={'image': numbers(10, 2, 2).astype(np.uint8), 'near': numbers(10)},
      step_type=np.full(_E, 1 if n else 0, np.int32), reward=numbers(20),
      discount=numbers(30), action=numbers(40).astype(np.int32),
      policy=numbers(50, 4), record=(numbers(60, 2, 5),) if memory else (),
      episode_return=numbers(70), episode_success=numbers(80),
      task=np.zeros(_E, np.int32),
      target_step=np.int64(0), unroll_id=np.int64(0))


def _expected(first_row, unroll_length, memory_length, born=0) -> unroll_lib.Unroll:
  """The item whose row 0 is `first_row`, `[E, time, ...]`, without its ids.

  Rows before `born` are blank.
  """
  memory = memory_length > 0
  blank = tf.nest.map_structure(np.zeros_like, _row(0, memory))
  def row_specs(name, start, length):
    numbers = range(first_row + start, first_row + start + length)
    rows = [getattr(_row(n, memory) if n >= born else blank, name) for n in numbers]
    return tf.nest.map_structure(lambda *x: np.stack(x, axis=1), *rows) if rows else ()
  columns = unroll_lib.columns(unroll_length, memory_length)._asdict()
  return unroll_lib.Unroll(**{
      name: () if name in ('target_step', 'unroll_id') else row_specs(name, *window)
      for name, window in columns.items()})


def _number(unroll) -> int:
  """The item's number among those of its writer, from 0."""
  return unroll.unroll_id.item() % 2**32


class UnrollsTest(parameterized.TestCase):

  def start(self, unroll_length, memory_length, queue_size=100):
    """Starts a server and returns a writer."""
    self.unroll_length, self.memory_length = unroll_length, memory_length
    self.row_spec = _row(0, memory_length > 0)
    port = portpicker.pick_unused_port()
    self.server = server.serve(
        port, self.row_spec, unroll_length, memory_length, queue_size,
        [tf.Variable(0.0)])
    self.addCleanup(self.server.stop)
    self.address = f'localhost:{port}'
    self.client = reverb.Client(self.address)
    self.ledger = staleness.Ledger(max_age=100)
    return self.writer()

  def writer(self, identity=1):
    writer = writer_lib.UnrollWriter(
        self.client, self.row_spec, self.unroll_length, self.memory_length, identity)
    writer.open()
    self.addCleanup(writer.close)
    return writer

  def write(self, writer, rows):
    """Appends rows by number; returns the numbers of rows that completed an item."""
    return [n for n in rows if writer.append(_row(n, self.memory_length > 0))]

  def batches(self, num_items=1):
    """Waits for the first item, then yields batches until the queue is empty."""
    return dataset.unrolls(
        self.address, num_items, self.ledger, timeout_ms=_SHORT_MS,
        should_stop=lambda: self.ledger.unrolls + self.ledger.stale > 0)

  def read(self):
    """All items in the queue, each as its own batch."""
    return list(self.batches().as_numpy_iterator())

  def assert_item(self, unroll, expected):
    unroll = unroll._replace(target_step=(), unroll_id=())
    tf.nest.map_structure(np.testing.assert_array_equal, unroll, expected)

  @parameterized.parameters(
      (8, 20), (8, 8), (8, 3), (8, 1), (8, 0), (1, 0), (1, 2), (13, 5), (13, 30),
      (33, 7), (64, 10), (95, 40), (95, 0), (95, 200))
  def test_rows_come_out_as_they_went_in(self, unroll_length, memory_length):
    writer = self.start(unroll_length, memory_length)
    num_items = 3 + memory_length // unroll_length
    complete = self.write(writer, range(num_items * unroll_length + 1))
    self.assertEqual(
        complete, [(k + 1) * unroll_length for k in range(num_items)])
    # No item waits for more rows: the last one is available at once.
    self.assertTrue(writer.wait(0, _TIMEOUT_MS))
    unrolls = self.read()
    self.assertLen(unrolls, num_items)
    for k, unroll in enumerate(unrolls):
      self.assert_item(
          unroll, _expected(k * unroll_length, unroll_length, memory_length))
      self.assertEqual(unroll.memory_length, memory_length)
      np.testing.assert_array_equal(unroll.unroll_id, [[(1 << 32) + k]])

  def test_the_last_row_of_an_unroll_is_the_first_of_the_next(self):
    writer = self.start(unroll_length=6, memory_length=4)
    self.write(writer, range(5 * 6 + 1))
    self.assertTrue(writer.wait(0, _TIMEOUT_MS))
    unrolls = self.read()
    self.assertLen(unrolls, 5)
    for one, next_one in zip(unrolls, unrolls[1:]):
      for name in ('observation', 'reward', 'discount', 'step_type'):
        tf.nest.map_structure(
            lambda x, y: np.testing.assert_array_equal(x[:, -1], y[:, -7]),
            getattr(one, name), getattr(next_one, name))

  @parameterized.parameters((6, 4), (6, 9), (6, 0), (1, 3), (35, 40))
  def test_an_item_can_be_written_before_the_policy_acts_in_its_last_row(
      self, unroll_length, memory_length):
    writer = self.start(unroll_length, memory_length)
    for k in range(4):
      first = k * unroll_length + (k > 0)
      self.write(writer, range(first, (k + 1) * unroll_length))
      last = _row((k + 1) * unroll_length, memory_length > 0)
      if k != 1:  # Items of both kinds take turns.
        writer.end_unroll(last._replace(action=(), policy=(), record=()))
        # All of it is sent, although the row is not complete.
        self.assertTrue(writer.wait(0, _TIMEOUT_MS))
        with self.assertRaisesRegex(ValueError, 'one call of `end_unroll`'):
          writer.end_unroll(last)
      self.assertTrue(writer.append(last))
      self.assertEqual(int(writer.history[-1].unroll_id), (1 << 32) + k)
    if unroll_length > 1:
      with self.assertRaisesRegex(ValueError, '^1 rows of the unroll are written'):
        writer.end_unroll(last)
    self.assertTrue(writer.wait(0, _TIMEOUT_MS))
    unrolls = self.read()
    self.assertEqual(list(map(_number, unrolls)), [0, 1, 2, 3])
    for k, unroll in enumerate(unrolls):
      self.assert_item(
          unroll, _expected(k * unroll_length, unroll_length, memory_length))

  def test_a_stream_that_is_lost_after_the_end_of_an_unroll_continues(self):
    writer = self.start(unroll_length=6, memory_length=4)
    self.write(writer, range(6))
    writer.end_unroll(_row(6))
    self.assertTrue(writer.wait(0, _TIMEOUT_MS))
    writer.open()
    self.assertEqual(self.write(writer, range(6, 13)), [12])
    self.assertTrue(writer.wait(0, _TIMEOUT_MS))
    unrolls = self.read()
    self.assertEqual(list(map(_number, unrolls)), [0, 1])
    for k, unroll in enumerate(unrolls):
      self.assert_item(unroll, _expected(6 * k, 6, 4))

  @pytest.mark.medium
  def test_a_batch_has_all_environments_of_each_item(self):
    writer = self.start(unroll_length=6, memory_length=4)
    self.write(writer, range(4 * 6 + 1))
    specs = self.batches(num_items=2).element_spec
    first, second = itertools.islice(self.batches(num_items=2), 2)
    for batch, items in ((first, (0, 1)), (second, (2, 3))):
      expected = [_expected(6 * k, 6, 4) for k in items]
      self.assert_item(
          tf.nest.map_structure(lambda x: x.numpy(), batch),
          tf.nest.map_structure(lambda *x: np.concatenate(x), *expected))
      np.testing.assert_array_equal(
          batch.unroll_id[:, 0], [(1 << 32) + k for k in items])
      # A compiled learner needs every shape.
      tf.nest.map_structure(
          lambda spec, x: self.assertEqual(spec.shape, x.shape), specs, batch)

  def test_writers_of_one_server_do_not_mix(self):
    one = self.start(unroll_length=6, memory_length=4)
    two = self.writer(identity=2)
    for n in range(6 + 1):
      self.write(one, [n])
      self.write(two, [1000 + n])
    for writer in (one, two):
      self.assertTrue(writer.wait(0, _TIMEOUT_MS))
    unrolls = {x.unroll_id.item() // 2**32: x for x in self.read()}
    self.assert_item(unrolls[1], _expected(0, 6, 4))
    self.assert_item(unrolls[2], _expected(1000, 6, 4, born=1000))

  @parameterized.parameters((6, 4), (6, 9), (6, 0))
  def test_a_new_stream_keeps_memory_and_drops_unfinished_unrolls(
      self, unroll_length, memory_length):
    writer = self.start(unroll_length, memory_length)
    # Two unrolls, and four rows of a third.
    self.write(writer, range(2 * unroll_length + 5))
    self.assertTrue(writer.wait(0, _TIMEOUT_MS))
    writer.open()
    self.assertTrue(writer.starts_unroll)
    start = 2 * unroll_length + 5
    complete = self.write(writer, range(start, start + 2 * unroll_length + 1))
    self.assertEqual(complete, [start + unroll_length, start + 2 * unroll_length])
    self.assertTrue(writer.wait(0, _TIMEOUT_MS))
    unrolls = self.read()
    self.assertEqual(list(map(_number, unrolls)), [0, 1, 2, 3])
    for k, unroll in enumerate(unrolls[2:]):
      self.assert_item(unroll, _expected(
          start + k * unroll_length, unroll_length, memory_length))
    self.assertEqual(self.ledger.duplicate, 0)

  @pytest.mark.medium
  def test_a_full_queue_makes_its_writer_wait(self):
    writer = self.start(unroll_length=4, memory_length=2, queue_size=2)
    self.write(writer, range(2 * 4 + 1))
    self.assertTrue(writer.wait(0, _TIMEOUT_MS))
    self.write(writer, range(2 * 4 + 1, 3 * 4 + 1))
    self.assertTrue(writer.wait(1, _TIMEOUT_MS))
    self.assertFalse(writer.wait(0, _SHORT_MS))
    self.assertFalse(writer.wait(0, _SHORT_MS))
    unrolls = self.batches().as_numpy_iterator()
    for k in range(3):
      self.assert_item(next(unrolls), _expected(4 * k, 4, 2))
      self.assertTrue(writer.wait(0, _TIMEOUT_MS))

  def test_an_item_is_sampled_once(self):
    writer = self.start(unroll_length=4, memory_length=2)
    self.write(writer, range(10 * 4 + 1))
    self.assertTrue(writer.wait(0, _TIMEOUT_MS))
    self.assertEqual(list(map(_number, self.read())), list(range(10)))
    self.assertEqual(self.read(), [])
    self.assertEqual((self.ledger.unrolls, self.ledger.duplicate), (10, 0))

  def test_refused_items_are_in_no_batch(self):
    writer = self.start(unroll_length=4, memory_length=2)
    self.write(writer, range(3 * 4 + 1))
    self.ledger.learner_step = 100
    for n in range(3 * 4 + 1, 6 * 4 + 1):
      writer.append(_row(n)._replace(target_step=np.int64(100)))
    self.assertTrue(writer.wait(0, _TIMEOUT_MS))
    # The first row of the fourth unroll still came from old weights.
    self.assertEqual(list(map(_number, self.read())), [4, 5])
    self.assertEqual((self.ledger.unrolls, self.ledger.stale), (2, 4))

  def test_at_most_one_item_is_prefetched_and_none_admitted_early(self):
    writer = self.start(unroll_length=4, memory_length=2)
    self.write(writer, range(20 * 4 + 1))
    self.assertTrue(writer.wait(0, _TIMEOUT_MS))
    batches = iter(self.batches(num_items=2))
    for k in range(1, 4):
      next(batches)
      time.sleep(0.1)
      self.assertEqual(self.ledger.unrolls, 2 * k)
      left = self.client.server_info()[writer_lib.TABLE].current_size
      self.assertGreaterEqual(left, 20 - 2 * k - 1)

  @pytest.mark.medium
  def test_a_batch_outlasts_the_time_out_between_its_items(self):
    writer = self.start(unroll_length=4, memory_length=2)
    rests = []
    def slow_writer():
      for k in range(4):
        self.write(writer, range(4 * k + (k > 0), 4 * k + 5))
        time.sleep(2 * _SHORT_MS / 1000)
        rests.append(k)
    thread = threading.Thread(target=slow_writer)
    thread.start()
    batch = next(iter(dataset.unrolls(
        self.address, 3, self.ledger, lambda: len(rests) == 4, _SHORT_MS)))
    thread.join()
    self.assertEqual([x % 2**32 for x in batch.unroll_id[:, 0].numpy()], [0, 1, 2])

  def test_a_dataset_ends_when_it_should_stop(self):
    self.start(unroll_length=4, memory_length=2)
    asked = itertools.count()
    batches = dataset.unrolls(
        self.address, 1, self.ledger, lambda: next(asked) == 2, timeout_ms=50)
    self.assertEqual(list(batches), [])

  @parameterized.parameters(
      (dict(reward=np.zeros(_E + 1, np.float32)), 'reward'),
      (dict(reward=np.zeros(_E, np.float64)), 'reward has shape .* dtype float64: exp'),
      (dict(reward=0.0), 'reward has type float, which has no shape: expected shape'),
      (dict(observation={'near': np.zeros(_E, np.float32)}),
       r"observation\['image'\] is missing"),
      (dict(record=(np.zeros((_E, 2, 5), np.float32), np.zeros(_E))),
       r'record\[1\] was not expected'),
      (dict(observation={'image': np.zeros((_E, 2, 3), np.uint8),
                         'near': np.zeros(_E, np.float32)}), 'observation.*image'),
      (dict(record=(np.zeros((_E, 2, 4), np.float32),)), 'record'))
  def test_a_row_that_does_not_fit_is_refused_by_name(self, columns, name):
    writer = self.start(unroll_length=4, memory_length=2)
    self.write(writer, range(3))
    with self.assertRaisesRegex(ValueError, f'^a row does not fit .*{name}'):
      writer.append(_row(3)._replace(**columns))
    # No part of the row was written.
    self.write(writer, range(3, 5))
    self.assertTrue(writer.wait(0, _TIMEOUT_MS))
    unroll, = self.read()
    self.assert_item(unroll, _expected(0, 4, 2))

  def test_the_first_row_of_a_stream_is_compared_by_name(self):
    writer = self.start(unroll_length=4, memory_length=2)
    row = _row(0)
    other = row._replace(observation={
        'image': row.observation['image'], 'other': row.observation['near']})
    for _ in range(2):
      with self.assertRaisesRegex(ValueError, r"observation\['near'\] is missing"):
        writer.append(other)
    self.write(writer, range(4 + 1))
    self.assertTrue(writer.wait(0, _TIMEOUT_MS))
    unroll, = self.read()
    self.assert_item(unroll, _expected(0, 4, 2))

  def test_a_server_with_other_settings_is_refused(self):
    self.start(unroll_length=4, memory_length=2)
    self.unroll_length = 5
    with self.assertRaisesRegex(
        config.ConfigError, "do not fit the server's: .*reward has shape \\(6, 3\\) "
        'and dtype float32: expected shape \\(5, 3\\)'):
      self.writer()

  @parameterized.parameters(
      (0, 2, 'unroll_length = 0: expected an integer >= 1'),
      (4, -1, 'memory_length = -1: expected an integer >= 0'))
  def test_invalid_lengths_are_refused(self, unroll_length, memory_length, error):
    with self.assertRaisesRegex(ValueError, error):
      writer_lib.UnrollWriter(None, _row(0), unroll_length, memory_length)

  @parameterized.parameters((1, 1), (13, 13), (24, 24), (64, 32), (95, 19), (37, 1))
  def test_chunks_divide_the_unroll(self, unroll_length, expected):
    self.assertEqual(writer_lib.chunk_length(unroll_length), expected)


if __name__ == '__main__':
  absltest.main()
