"""Tests of prioritized.py."""

import errno
import os
import pathlib
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from gtrxl_tf.replay import prioritized
from gtrxl_tf.replay import unroll as unroll_lib
from gtrxl_tf.settings import config

_T, _M, _E = 4, 3, 2


def _signature(size=1):
  scalars, integers = (tf.TensorSpec([_E], x) for x in (tf.float32, tf.int32))
  number = tf.TensorSpec([], tf.int64)
  return unroll_lib.Layout(unroll_lib.Unroll(
      observation={'near': tf.TensorSpec([_E, size], tf.float32)}, step_type=integers,
      reward=scalars, discount=scalars, action=integers, policy=(),
      record=tf.TensorSpec([_E, 2], tf.float32), episode_return=scalars,
      episode_success=scalars, task=integers, target_step=number, unroll_id=number),
                              _T, _M).signature


def _batch(*numbers):
  """Items with a number in every column, and that of the environment in the tens."""
  def leaf(spec):
    x = np.zeros(spec.shape, spec.dtype.as_numpy_dtype)
    rows = x.reshape([len(numbers), -1, *spec.shape[1:]])
    for i, number in enumerate(numbers):
      for j in range(rows.shape[1]):
        rows[i, j] = number + 10 * j
    return x
  return tf.nest.map_structure(leaf, unroll_lib.batch_spec(_signature(), len(numbers)))


class TableTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.path = pathlib.Path(self.create_tempdir().full_path) / 'replay' / 'table'

  def open(self, size=1, **settings):
    return prioritized.Table(
        self.path, prioritized.Replay(**{'capacity': 5 * _E, 'min_unrolls': 1, **settings}),
        _signature(size), [0, 0])

  def numbers(self, table, draws=200):
    """The numbers of the items in the table, and how often each was sampled."""
    sample = table.sample(draws)
    return dict(zip(*np.unique(sample.unroll.unroll_id, return_counts=True)))

  def test_an_item_comes_out_as_it_went_in(self):
    table = self.open()
    table.add(_batch(1, 2))
    sample = table.sample(6).unroll
    for i, number in enumerate(sample.unroll_id.numpy().ravel()):
      tf.nest.map_structure(
          lambda x, y, i=i: np.testing.assert_array_equal(
              x[i * len(x) // 6:(i + 1) * len(x) // 6], y), sample, _batch(number))

  def test_the_oldest_items_leave_a_full_table(self):
    table = self.open(capacity=3 * _E)
    table.add(_batch(1, 2, 3))
    table.add(_batch(4, 5))
    self.assertEqual(set(self.numbers(table)), {3, 4, 5})
    self.assertEqual(table.size, 3 * _E)

  def test_items_are_sampled_by_their_priorities(self):
    table = self.open(importance_exponent=0.5, priority_exponent=1.0)
    table.add(_batch(1))
    table.sample(1)
    table.update(np.array([0.25, 0.75]))  # The mean is 0.5.
    table.add(_batch(2, 3))
    self.assertBetween(self.numbers(table, 1000)[1], 150, 250)
    sample = table.sample(40)
    rare = np.repeat(sample.unroll.unroll_id.numpy().ravel() == 1, _E)
    np.testing.assert_allclose(sample.weight, np.where(rare, 1, 2**-0.5), rtol=1e-6)
    self.assertEqual(sample.unroll.reward.shape, [80, _T + 1])

  def test_an_item_whose_errors_are_0_is_sampled_again(self):
    table = self.open()
    table.add(_batch(1))
    table.sample(1)
    table.update(np.zeros(_E))
    self.assertEqual(self.numbers(table), {1: 200})

  def test_a_table_that_holds_no_whole_number_of_items_can_be_filled(self):
    table = self.open(capacity=2 * _E + 1, min_unrolls=2 * _E + 1)
    table.add(_batch(1, 2))
    self.assertFalse(table.is_filled)
    table.add(_batch(3))
    self.assertTrue(table.is_filled)

  def test_a_table_that_is_opened_again_has_its_items_and_priorities(self):
    table = self.open(capacity=3 * _E)
    table.add(_batch(1, 2, 3, 4))
    np.testing.assert_array_equal(table.sample(1).unroll.unroll_id.numpy() > 1, True)
    table.update(np.array([50.0, 50.0]))
    table.sample(9)  # The generator begins again, too.
    for closes in False, True:
      if closes:
        table.close()
      again = self.open(capacity=3 * _E)
      self.assertGreater(max(self.numbers(again).values()), 150)
      self.assertEqual(again.size, 3 * _E)
    again.add(_batch(5))
    self.assertIn(5, self.numbers(again))
    self.assertNotIn(2, self.numbers(again))

  def test_a_process_that_is_killed_within_an_item_loses_it_alone(self):
    table = self.open()
    table.add(_batch(1, 2, 3, 4, 5))
    with mock.patch.object(table, '_set', side_effect=KeyboardInterrupt):
      with self.assertRaises(KeyboardInterrupt):
        table.add(_batch(6))
    again = self.open()
    self.assertEqual(set(self.numbers(again)), {2, 3, 4, 5})
    again.add(_batch(7))
    self.assertEqual(set(self.numbers(again)), {2, 3, 4, 5, 7})

  @parameterized.parameters('size', 'settings', 'bytes', 'power')
  def test_a_file_that_does_not_fit_is_replaced(self, fault):
    table = self.open()
    table.add(_batch(1))
    if fault == 'size':
      os.truncate(self.path, 1000)
    elif fault == 'bytes':
      with open(self.path, 'r+b') as file:
        file.write(100 * b'\0')
    elif fault == 'power':
      self.enter_context(mock.patch.object(prioritized, '_boot', lambda: b'another'))
    with self.assertLogs(level='WARNING'):
      again = self.open(size=2 if fault == 'settings' else 1)
    self.assertEqual(again.size, 0)
    self.assertLen(list(self.path.parent.iterdir()), 1)

  def test_a_table_that_was_closed_survives_a_power_failure(self):
    table = self.open()
    table.add(_batch(1))
    table.close()
    with mock.patch.object(prioritized, '_boot', lambda: b'another'):
      self.assertEqual(self.open().size, _E)

  def test_a_full_disk_is_told_in_a_line(self):
    full = OSError(errno.ENOSPC, 'No space left on device')
    with mock.patch.object(os, 'posix_fallocate', side_effect=full):
      with self.assertRaisesRegex(OSError, 'the replay table .* needs 0.0 GiB: No space') as e:
        self.open()
    self.assertEqual(e.exception.errno, errno.ENOSPC)
    self.assertEmpty(list(self.path.parent.iterdir()))

  def test_settings_that_do_not_fit_are_refused(self):
    with self.assertRaisesRegex(config.ConfigError, 'Replay.min_unrolls = 9'):
      prioritized.Replay(capacity=8, min_unrolls=9)


if __name__ == '__main__':
  absltest.main()
