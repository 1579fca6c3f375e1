"""Tests of server.py: checkpoints of tables, and refusals."""

import pathlib
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import portpicker
import reverb
import tensorflow as tf

from gtrxl_tf.replay import dataset
from gtrxl_tf.replay import reverb_writer
from gtrxl_tf.replay import server as server_lib
from gtrxl_tf.replay import settings_table
from gtrxl_tf.replay import staleness
from gtrxl_tf.replay import unroll
from gtrxl_tf.replay import weights
from gtrxl_tf.settings import config

_T, _M, _E = 3, 2, 2


def _row_spec(size=4):
  scalars = tf.TensorSpec([_E], tf.float32)
  integers = tf.TensorSpec([_E], tf.int32)
  number = tf.TensorSpec([], tf.int64)
  return unroll.Unroll(
      observation=tf.TensorSpec([_E, size], tf.float32), step_type=integers,
      reward=scalars, discount=scalars, action=integers, policy=scalars, record=scalars,
      episode_return=scalars, episode_success=scalars, task=integers,
      target_step=number, unroll_id=number)


class ServerTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = pathlib.Path(self.create_tempdir().full_path) / 'replay'
    self.port = portpicker.pick_unused_port()
    self.address = f'localhost:{self.port}'
    self.variables = [tf.Variable([1.0, 2.0])]

  def serve(self, row=_row_spec(), settings=None):
    server = server_lib.serve(
        self.port, row, _T, _M, 10, self.variables, self.folder, settings)
    self.addCleanup(server.stop)
    return server

  def write(self, num_items):
    writer = reverb_writer.ReverbWriter(
        reverb.Client(self.address), _row_spec(), _T, _M, 0)
    writer.open()
    items = 0
    while items < num_items:
      items += writer.append(tf.nest.map_structure(
          lambda spec: np.zeros(spec.shape, spec.dtype.as_numpy_dtype), _row_spec()))
    self.assertTrue(writer.wait(5000))
    writer.close()

  def sampled(self, num_items, ledger):
    while True:
      batches = iter(dataset.unrolls(
          self.address, num_items, ledger, should_stop=lambda: False, timeout_ms=500))
      try:
        batch = next(batches)
        break
      except tf.errors.UnavailableError:
        pass  # The error of a connection to the server that was stopped.
    return sorted(set(batch.unroll_id.numpy().flat))

  def test_a_restarted_server_has_the_contents_of_the_checkpoint(self):
    server = self.serve()
    self.write(4)
    weights.WeightsChannel(self.address, self.variables).publish(step=70)
    server_lib.checkpoint(self.port)
    server_lib.checkpoint(self.port)
    self.assertLen(list((self.folder / 'tables').iterdir()), 1)
    server.stop()
    self.serve()
    actors = [tf.Variable([0.0, 0.0])]
    self.assertEqual(weights.WeightsChannel(self.address, actors).receive(), 70)
    np.testing.assert_array_equal(actors[0], [1, 2])
    self.assertEqual(server_lib.sizes(self.port)['unrolls_items'], 4)

  def test_a_server_has_the_settings_it_was_started_with_last(self):
    for settings in None, 'ä = 1', 'ä = 2 and longer', 'ä = 3':
      server = self.serve(settings=settings)
      self.assertEqual(settings_table.read(self.address), settings)
      if settings is None:
        self.write(2)
      self.assertEqual(
          {name.partition('_')[0] for name in server_lib.sizes(self.port)},
          {'unrolls', 'weights'})
      self.assertEqual(server_lib.sizes(self.port)['unrolls_items'], 2)
      server_lib.checkpoint(self.port)
      server.stop()

  def test_a_restored_queue_does_not_repeat_training(self):
    server = self.serve()
    self.write(4)
    server_lib.checkpoint(self.port)
    ledger = staleness.Ledger(max_age=10)
    ledger.learner_step = 1
    self.assertEqual(self.sampled(2, ledger), [0, 1])
    server.stop()
    self.serve()
    self.assertEqual(self.sampled(2, ledger), [2, 3])
    self.assertEqual((ledger.unrolls, ledger.duplicate), (4, 2))

  def test_an_actor_names_how_the_tables_of_a_checkpoint_differ(self):
    server = self.serve()
    self.write(2)
    server_lib.checkpoint(self.port)
    server.stop()
    self.serve(row=_row_spec(size=5))
    writer = reverb_writer.ReverbWriter(
        reverb.Client(self.address), _row_spec(size=5), _T, _M)
    with self.assertRaisesRegex(
        config.ConfigError, r"do not fit the server's: observation has shape \(4, 2, 5\)"):
      writer.open()

  @parameterized.product(
      name=['chunks.tfrecord', 'items.tfrecord', 'tables.tfrecord'],
      damage=['truncated', 'flipped', 'garbage'])
  def test_a_server_starts_empty_if_its_checkpoint_is_damaged(self, name, damage):
    server = self.serve()
    self.write(2)
    server_lib.checkpoint(self.port)
    server.stop()
    file, = self.folder.rglob(name)
    whole = file.read_bytes()
    # More than ten bytes can be a whole record, and Reverb takes what then remains for the
    # whole file.
    damaged = {'truncated': whole[:-10],
               'flipped': whole[:20] + bytes([whole[20] ^ 0x80]) + whole[21:],
               'garbage': bytes(range(256))}[damage]
    file.write_bytes(damaged)
    for number in ('', '2'):
      with self.assertLogs('absl', 'WARNING') as logs:
        server = self.serve()
      self.assertLen(logs.output, 1)
      self.assertNotIn('\n', logs.output[0])
      self.assertRegex(logs.output[0], '/replay/tables cannot be read .*: starting with '
                       rf'empty tables; the earlier ones are now tables.damaged{number}$')
      aside = self.folder / f'tables.damaged{number}'
      self.assertEqual([x.read_bytes() for x in aside.rglob(name)], [damaged])
      self.assertEqual(server_lib.sizes(self.port)['unrolls_items'], 0)
      self.write(1)
      server_lib.checkpoint(self.port)
      server.stop()
      file, = (self.folder / 'tables').rglob(name)
      damaged = b'damaged again'
      file.write_bytes(damaged)

  def test_a_full_disk_is_reported_in_one_line(self):
    # The error that Reverb raises for tables of more than a few kilobytes.
    error = IndexError('chunks.tfrecord; No space left on device')
    with mock.patch.object(reverb.Client, 'checkpoint', side_effect=error):
      with self.assertLogs('absl', 'ERROR') as logs:
        server_lib.checkpoint(self.port)
    self.assertEqual(
        [line.partition('server: ')[2] for line in logs.output],
        ['no checkpoint of the tables; the queued items are lost if it ends: '
         'chunks.tfrecord; No space left on device'])

  def test_a_port_that_is_taken_is_refused(self):
    self.serve()
    with self.assertRaisesRegex(
        config.ConfigError,
        f'^0.0.0.0:{self.port} cannot be listened on: Address already'):
      self.serve()

  def test_a_host_that_is_another_machine_is_refused(self):
    server_lib.check_port(self.port, 'localhost')
    with self.assertRaisesRegex(
        config.ConfigError, f'^192.0.2.7:{self.port} cannot be listened on: Cannot'):
      server_lib.check_port(self.port, '192.0.2.7')


if __name__ == '__main__':
  absltest.main()
