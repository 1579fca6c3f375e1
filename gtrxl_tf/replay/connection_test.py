"""Tests of both kinds of replay, a Reverb server and shared memory, by one suite."""

import itertools
import math
import os
import threading
import time

from absl.testing import absltest
from absl.testing import parameterized
import dm_env
import numpy as np
import portpicker
import pytest
import tensorflow as tf

from gtrxl_tf.replay import connection
from gtrxl_tf.replay import packed_weights
from gtrxl_tf.replay import replay_testing
from gtrxl_tf.replay import reverb_replay
from gtrxl_tf.replay import server
from gtrxl_tf.replay import shared_memory
from gtrxl_tf.replay import staleness
from gtrxl_tf.replay import unroll as unroll_lib
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


def _specs(row):
  return tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), row)


class _Suite(metaclass=parameterized.TestGeneratorMetaclass):
  """Tests of a replay; a subclass says of which by `serve`."""

  def start(self, unroll_length, memory_length, queue_size=100, num_actors=2, overlap=0,
            variables=(), half=False):
    """Starts a replay and returns a writer."""
    self.layout = unroll_lib.Layout(
        _specs(_row(0, memory_length > 0)), unroll_length, memory_length, overlap,
        queue_size, num_actors, packed_weights.specs(variables, half), half)
    self.address = self.serve()
    self.ledger = staleness.Ledger(max_age=100, overlap=overlap)
    self.replay = connection.connect(self.address, self.layout)
    self.put = 0  # Items.
    return self.writer()

  def writer(self, actor=0, identity=None):
    """A writer whose identity is, by default, one more than the actor's index."""
    writer = connection.connect(self.address, self.layout).writer(
        actor, identity or actor + 1)
    writer.open()
    self.addCleanup(writer.close)
    return writer

  def write(self, writer, rows, **columns):
    """Appends rows by number; returns the numbers of rows that completed an item."""
    complete = [n for n in rows if writer.append(
        _row(n, self.layout.memory_length > 0)._replace(**columns))]
    self.put += len(complete)
    return complete

  def queue(self, num_items=1):
    queue = self.replay.queue(num_items, self.ledger)
    queue.connect()
    self.addCleanup(queue.close)
    return queue

  def read(self, num_items=1):
    """Takes all items that `write` has put into the queue, in batches."""
    queue, batches = self.queue(num_items), []
    while self.ledger.taken < self.put:
      batch = queue.next(lambda: False)
      batches.append(tf.nest.map_structure(lambda x: x.numpy(), batch))
    self.assertEqual(queue.length(), 0)
    return batches

  def assert_item(self, unroll, expected):
    unroll = unroll._replace(target_step=(), unroll_id=())
    tf.nest.map_structure(np.testing.assert_array_equal, unroll, expected)

  @parameterized.parameters(
      (8, 20), (8, 8), (8, 3), (8, 1), (8, 0), (1, 0), (1, 2), (13, 5), (13, 30),
      (33, 7), (64, 10), (95, 40), (95, 0), (95, 200))
  @pytest.mark.medium
  def test_rows_come_out_as_they_went_in(self, unroll_length, memory_length):
    writer = self.start(unroll_length, memory_length)
    num_items = 3 + memory_length // unroll_length
    complete = self.write(writer, range(num_items * unroll_length + 1))
    self.assertEqual(
        complete, [(k + 1) * unroll_length for k in range(num_items)])
    # No item waits for more rows: the last one is available at once.
    self.assertTrue(writer.wait(_TIMEOUT_MS))
    unrolls = self.read()
    self.assertLen(unrolls, num_items)
    for k, unroll in enumerate(unrolls):
      self.assert_item(
          unroll, _expected(k * unroll_length, unroll_length, memory_length))
      self.assertEqual(unroll.memory_length, memory_length)
      np.testing.assert_array_equal(unroll.unroll_id, [[(1 << 32) + k]])

  @parameterized.parameters((6, 4), (6, 9), (6, 0), (1, 3), (35, 40))
  @pytest.mark.medium
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
        self.assertTrue(writer.wait(_TIMEOUT_MS))
        with self.assertRaisesRegex(ValueError, 'one call of `end_unroll`'):
          writer.end_unroll(last)
      self.assertTrue(writer.append(last))
      self.put += 1
      self.assertEqual(int(writer.history[-1].unroll_id), (1 << 32) + k)
    if unroll_length > 1:
      with self.assertRaisesRegex(ValueError, '^1 rows of the unroll are written'):
        writer.end_unroll(last)
    self.assertTrue(writer.wait(_TIMEOUT_MS))
    unrolls = self.read()
    self.assertEqual(list(map(_number, unrolls)), [0, 1, 2, 3])
    for k, unroll in enumerate(unrolls):
      self.assert_item(
          unroll, _expected(k * unroll_length, unroll_length, memory_length))

  def test_a_stream_that_is_lost_after_the_end_of_an_unroll_continues(self):
    writer = self.start(unroll_length=6, memory_length=4)
    self.write(writer, range(6))
    writer.end_unroll(_row(6))
    self.put += 1
    self.assertTrue(writer.wait(_TIMEOUT_MS))
    writer.open()
    self.assertEqual(self.write(writer, range(6, 13)), [12])
    self.assertTrue(writer.wait(_TIMEOUT_MS))
    unrolls = self.read()
    self.assertEqual(list(map(_number, unrolls)), [0, 1])
    for k, unroll in enumerate(unrolls):
      self.assert_item(unroll, _expected(6 * k, 6, 4))

  @pytest.mark.medium
  def test_a_batch_has_all_environments_of_each_item(self):
    writer = self.start(unroll_length=6, memory_length=4)
    self.write(writer, range(4 * 6 + 1))
    self.assertTrue(writer.wait(_TIMEOUT_MS))
    specs = unroll_lib.batch_spec(self.layout.signature, 2)
    first, second = self.read(num_items=2)
    for batch, items in ((first, (0, 1)), (second, (2, 3))):
      expected = [_expected(6 * k, 6, 4) for k in items]
      self.assert_item(batch, tf.nest.map_structure(
          lambda *x: np.concatenate(x), *expected))
      np.testing.assert_array_equal(
          batch.unroll_id[:, 0], [(1 << 32) + k for k in items])
      # A compiled learner needs every shape.
      tf.nest.map_structure(
          lambda spec, x: self.assertEqual(spec.shape, x.shape), specs, batch)

  def test_writers_do_not_mix(self):
    one = self.start(unroll_length=6, memory_length=4)
    two = self.writer(actor=1)
    for n in range(6 + 1):
      self.write(one, [n])
      self.write(two, [1000 + n])
    for writer in (one, two):
      self.assertTrue(writer.wait(_TIMEOUT_MS))
    unrolls = {x.unroll_id.item() // 2**32: x for x in self.read()}
    self.assert_item(unrolls[1], _expected(0, 6, 4))
    self.assert_item(unrolls[2], _expected(1000, 6, 4, born=1000))

  @parameterized.parameters((6, 4), (6, 9), (6, 0))
  @pytest.mark.medium
  def test_a_new_stream_keeps_memory_and_drops_unfinished_unrolls(
      self, unroll_length, memory_length):
    writer = self.start(unroll_length, memory_length)
    # Two unrolls, and four rows of a third.
    self.write(writer, range(2 * unroll_length + 5))
    self.assertTrue(writer.wait(_TIMEOUT_MS))
    writer.open()
    self.assertTrue(writer.starts_unroll)
    start = 2 * unroll_length + 5
    complete = self.write(writer, range(start, start + 2 * unroll_length + 1))
    self.assertEqual(complete, [start + unroll_length, start + 2 * unroll_length])
    self.assertTrue(writer.wait(_TIMEOUT_MS))
    unrolls = self.read()
    self.assertEqual(list(map(_number, unrolls)), [0, 1, 2, 3])
    for k, unroll in enumerate(unrolls[2:]):
      self.assert_item(unroll, _expected(
          start + k * unroll_length, unroll_length, memory_length))
    self.assertEqual(self.ledger.duplicate, 0)

  @pytest.mark.medium
  def test_a_full_queue_makes_its_writer_wait(self):
    writer = self.start(unroll_length=4, memory_length=2, queue_size=2, num_actors=1)
    self.write(writer, range(2 * 4 + 1))
    self.assertTrue(writer.wait(_TIMEOUT_MS))
    self.write(writer, range(2 * 4 + 1, 3 * 4 + 1))
    self.assertFalse(writer.wait(_SHORT_MS))
    self.assertFalse(writer.wait(_SHORT_MS))
    queue = self.queue()
    for k in range(3):
      batch = queue.next(lambda: False)
      self.assert_item(tf.nest.map_structure(lambda x: x.numpy(), batch),
                       _expected(4 * k, 4, 2))
      self.assertTrue(writer.wait(_TIMEOUT_MS))

  @parameterized.parameters((4, 2, 0), (4, 9, 0), (6, 3, 4), (3, 0, 2))
  @pytest.mark.medium
  def test_unrolls_come_out_of_a_small_queue_for_long(
      self, unroll_length, memory_length, overlap):
    """The rows of a memory wrap around many times."""
    writer = self.start(unroll_length, memory_length, queue_size=2, overlap=overlap,
                        num_actors=1)
    queue, row, unrolls = self.queue(), 0, []
    for k in range(20):
      self.assertTrue(writer.wait(_TIMEOUT_MS))
      while not self.write(writer, [row]):
        row += 1
      row += 1
      if k:  # There is one in the queue all the time.
        unrolls.append(tf.nest.map_structure(
            lambda x: x.numpy(), queue.next(lambda: False)))
    for k, unroll in enumerate(unrolls):
      self.assert_item(unroll, _expected(
          k * (unroll_length - overlap), unroll_length, memory_length))

  @parameterized.parameters((0, 6), (2, 11), (3, 21))
  @pytest.mark.medium
  def test_steps_that_unrolls_share_are_counted_once(self, overlap, num):
    writer = self.start(4, 3, overlap=overlap)
    self.ledger.max_age = math.inf
    rows = np.arange(5 + (num - 1) * (4 - overlap))
    for n in rows:
      kind = {0: dm_env.StepType.FIRST, 5: dm_env.StepType.LAST}.get(
          n % 6, dm_env.StepType.MID)
      self.write(writer, [n], step_type=np.full(_E, kind, np.int32),
                 episode_return=np.full(_E, n if n % 6 == 5 else np.nan, np.float32))
    self.assertTrue(writer.wait(_TIMEOUT_MS))
    self.assertLen(self.read(), num)
    counted = rows[1 + overlap:]
    self.assertEqual(self.ledger.environment_steps, _E * np.sum(counted % 6 != 0))
    self.assertEqual(list(self.ledger.returns),
                     np.repeat(counted[counted % 6 == 5], _E).tolist()[-100:])

  def test_refused_items_are_in_no_batch(self):
    writer = self.start(unroll_length=4, memory_length=2)
    self.write(writer, range(3 * 4 + 1))
    self.ledger.learner_step = 100
    self.write(writer, range(3 * 4 + 1, 6 * 4 + 1), target_step=np.int64(100))
    self.assertTrue(writer.wait(_TIMEOUT_MS))
    # The first row of the fourth unroll still came from old weights.
    self.assertEqual(list(map(_number, self.read())), [4, 5])
    self.assertEqual((self.ledger.unrolls, self.ledger.stale), (2, 4))

  def test_at_most_one_item_is_prefetched_and_none_admitted_early(self):
    writer = self.start(unroll_length=4, memory_length=2)
    self.write(writer, range(20 * 4 + 1))
    self.assertTrue(writer.wait(_TIMEOUT_MS))
    queue = self.queue(num_items=2)
    for k in range(1, 4):
      queue.next(lambda: False)
      time.sleep(0.1)
      self.assertEqual(self.ledger.unrolls, 2 * k)
      self.assertGreaterEqual(queue.length(), 20 - 2 * k - 1)

  @pytest.mark.medium
  def test_a_batch_outlasts_the_waits_between_its_items(self):
    writer = self.start(unroll_length=4, memory_length=2)
    def slow_writer():
      for k in range(3):
        time.sleep(1.2)
        self.write(writer, range(4 * k + (k > 0), 4 * k + 5))
    queue, asked = self.queue(num_items=3), []
    thread = threading.Thread(target=slow_writer)
    thread.start()
    batch = queue.next(lambda: bool(asked.append(1)))
    thread.join()
    self.assertNotEmpty(asked)
    self.assertEqual([x % 2**32 for x in batch.unroll_id[:, 0].numpy()], [0, 1, 2])

  @pytest.mark.medium
  def test_a_learner_that_waits_can_be_told_to_stop(self):
    self.start(unroll_length=4, memory_length=2)
    asked = itertools.count()
    self.assertIsNone(self.queue().next(lambda: next(asked) == 2))

  def make_variables(self, value=0.0):
    """Variables of several shapes and dtypes, as a network has; one is not trained."""
    return [tf.Variable(tf.cast(tf.fill(shape, value), dtype), trainable=trained)
            for shape, dtype, trained in (
                ([2, 3], tf.float32, True), ([], tf.float32, False), ([4], tf.int64, True),
                ([5], tf.float16, True))]

  @parameterized.parameters(False, True)
  def test_every_actor_receives_the_newest_weights_once(self, half):
    self.start(4, 2, variables=self.make_variables(), half=half)
    sent = self.make_variables()
    publisher = self.replay.weights(sent)
    ends = []
    for _ in range(2):
      arrived = self.make_variables()
      end = connection.connect(self.address, self.layout).weights(arrived)
      ends.append((end, arrived))
    for end, arrived in ends:
      self.assertIsNone(end.receive())
    for number in range(1, 6):
      for variable in sent:
        variable.assign(tf.cast(tf.fill(variable.shape, number + 1 / 3), variable.dtype))
      publisher.publish(10 * number, finished=number == 5)
      if number % 2:
        for end, arrived in ends:
          self.assertFalse(end.finished)
          self.assertEqual(end.receive(), 10 * number)
          self.assertEqual(end.finished, number == 5)
          self.assertIsNone(end.receive())
          for x, y in zip(arrived, sent):
            self.assertEqual(np.array_equal(x, y),
                             not (half and y.trainable and y.dtype == tf.float32))
            np.testing.assert_allclose(x, y, rtol=2**-8)


@replay_testing.needs_reverb
class ServerTest(_Suite, parameterized.TestCase):

  def serve(self):
    port = portpicker.pick_unused_port()
    started = server.serve(port, self.layout, '{}')
    self.addCleanup(started.stop)
    return f'localhost:{port}'

  def test_a_server_with_other_settings_is_refused(self):
    variables = self.make_variables()
    self.start(unroll_length=4, memory_length=2, variables=variables)
    self.replay.check(None)
    self.replay.check({})
    with self.assertRaisesRegex(config.ConfigError, 'has other settings: Numpad.size = '):
      self.replay.check({'Numpad.size': '3'})
    for other, message in (
        (dict(unroll_length=5), r'reward has shape \(6, 3\) and dtype float32: expected '
         r'shape \(5, 3\)'),
        (dict(weights=packed_weights.specs(variables[:2])), r'weights\[3\] is missing')):
      replay = connection.connect(self.address, self.layout._replace(**other))
      with self.assertRaisesRegex(config.ConfigError, f'does not fit .*{message}'):
        replay.check(None)

  @parameterized.parameters((1, 1), (13, 13), (24, 24), (64, 32), (95, 19), (37, 1))
  def test_chunks_divide_the_unroll(self, unroll_length, expected):
    self.assertEqual(reverb_replay.chunk_length(unroll_length), expected)


class SharedTest(_Suite, parameterized.TestCase):

  def serve(self):
    descriptor = shared_memory.create(self.layout)
    self.addCleanup(os.close, descriptor)
    return shared_memory.address(descriptor)

  def test_a_writer_that_takes_the_place_of_another_begins_anew(self):
    one = self.start(unroll_length=4, memory_length=6, queue_size=3, num_actors=1)
    self.write(one, range(2 * 4 + 3))
    two = self.writer(identity=7)  # As when the process of `one` was killed.
    unrolls = []
    for k in range(11):
      while not two.wait(10):
        unrolls.append(self.queue().next(lambda: False))
      if k < 10:
        self.write(two, range(100 + 4 * k + (k > 0), 100 + 4 * k + 5))
    unrolls += self.read()
    self.assertLen(unrolls, 12)
    for k, unroll in enumerate(unrolls):
      self.assert_item(
          tf.nest.map_structure(np.asarray, unroll),
          _expected(4 * k, 4, 6) if k < 2 else _expected(100 + 4 * (k - 2), 4, 6, born=100))


if __name__ == '__main__':
  absltest.main()
