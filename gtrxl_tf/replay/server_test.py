"""Tests of server.py: the sizes of tables, and ports that are refused."""

from absl.testing import absltest
import numpy as np
import portpicker
import tensorflow as tf

from gtrxl_tf.replay import connection
from gtrxl_tf.replay import replay_testing
from gtrxl_tf.replay import server as server_lib
from gtrxl_tf.replay import unroll
from gtrxl_tf.settings import config

_T, _M, _E = 3, 2, 2


def _row_spec():
  scalars = tf.TensorSpec([_E], tf.float32)
  integers = tf.TensorSpec([_E], tf.int32)
  number = tf.TensorSpec([], tf.int64)
  return unroll.Unroll(
      observation=scalars, step_type=integers, reward=scalars, discount=scalars,
      action=integers, policy=scalars, record=scalars, episode_return=scalars,
      episode_success=scalars, task=integers, target_step=number, unroll_id=number)


@replay_testing.needs_reverb
class ServerTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.port = portpicker.pick_unused_port()
    self.layout = unroll.Layout(_row_spec(), _T, _M, queue_size=10)

  def serve(self, settings=None):
    self.addCleanup(server_lib.serve(self.port, self.layout, settings).stop)

  def test_the_sizes_of_tables_are_counted(self):
    self.serve('{}')
    writer = connection.connect(f'localhost:{self.port}', self.layout).writer()
    writer.open()
    row = tf.nest.map_structure(
        lambda spec: np.zeros(spec.shape, spec.dtype.as_numpy_dtype), _row_spec())
    self.assertEqual(sum(writer.append(row) for _ in range(2 * _T + 1)), 2)
    self.assertTrue(writer.wait(5000))
    writer.close()
    sizes = server_lib.sizes(self.port)
    self.assertEqual({name.partition('_')[0] for name in sizes}, {'unrolls', 'weights'})
    self.assertEqual((sizes['unrolls_items'], sizes['unrolls_sampled']), (2, 0))

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
