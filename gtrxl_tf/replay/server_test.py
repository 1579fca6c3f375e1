"""Tests of server.py: tables, their settings, and refusals."""


from absl.testing import absltest
import numpy as np
import portpicker
import reverb
import tensorflow as tf

from gtrxl_tf.replay import reverb_writer
from gtrxl_tf.replay import server as server_lib
from gtrxl_tf.replay import settings_table
from gtrxl_tf.replay import unroll
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


class ServerTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.port = portpicker.pick_unused_port()
    self.address = f'localhost:{self.port}'
    self.variables = [tf.Variable([1.0, 2.0])]

  def serve(self, row=_row_spec(), settings=None):
    server = server_lib.serve(
        self.port, row, _T, _M, 10, self.variables, settings)
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

  def test_a_server_has_the_settings_it_was_started_with(self):
    for settings in None, 'ä = 1', 'ä = 2 and longer':
      server = self.serve(settings=settings)
      self.assertEqual(settings_table.read(self.address), settings)
      self.write(2)
      self.assertEqual(
          {name.partition('_')[0] for name in server_lib.sizes(self.port)},
          {'unrolls', 'weights'})
      self.assertEqual(server_lib.sizes(self.port)['unrolls_items'], 2)
      server.stop()

  def test_an_actor_names_how_the_tables_of_a_server_differ(self):
    self.serve(row=_row_spec(size=5))
    writer = reverb_writer.ReverbWriter(
        reverb.Client(self.address), _row_spec(), _T, _M)
    with self.assertRaisesRegex(
        config.ConfigError, r"do not fit the server's: observation has .*: expected shape \(4, 2, 5\)"):
      writer.open()

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
