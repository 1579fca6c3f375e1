"""Tests of devices.py, which split the CPU into logical devices."""

import json
import os
import socket
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from gtrxl_tf import devices_testing
from gtrxl_tf.settings import config
from gtrxl_tf.training import devices

devices_testing.split_cpu(4)


def _tf_config(cluster=None, **task):
  return json.dumps({'cluster': cluster or {'worker': ['a:1', 'b:1']}, 'task': task})


class DevicesTest(parameterized.TestCase):

  @parameterized.parameters(
      (175_436, 64 * 24, 1),      # The small twins.
      (656_012, 64 * 24, 0),      # The same with a model dimension of 128.
      (8_000_000, 128 * 95, 0))   # About the paper's.
  def test_threads_by_size(self, num_weights, num_rows, expected):
    self.assertEqual(devices.threads_of_step(num_weights, num_rows), expected)

  def test_functions_without_functions_inside_run_in_the_only_thread(self):
    def executor_of(function, threads=1):
      concrete = tf.function(function, autograph=False).get_concrete_function(
          tf.TensorSpec([], tf.float32))
      with mock.patch.object(tf.config.threading, 'get_inter_op_parallelism_threads',
                             lambda: threads):
        return devices.executor_for(concrete)

    self.assertEqual(executor_of(tf.square), 'SINGLE_THREADED_EXECUTOR')
    self.assertEqual(executor_of(tf.square, threads=0), '')
    for calls in (lambda x: tf.cond(x > 0, lambda: x, lambda: -x),
                  lambda x: tf.while_loop(lambda y: y < 9, lambda y: y + 1, [x]),
                  tf.function(tf.square)):
      self.assertEqual(executor_of(calls), '')

  @parameterized.parameters(
      ('gpu', None, '--strategy=gpu: expected one of default, mirrored, multiworker'),
      ('tpu', None, '--strategy=tpu without --tpu: expected --tpu=local'),
      ('tpu', '', '--strategy=tpu without --tpu: expected --tpu=local'),
      ('default', 'local', '--tpu=local with --strategy=default: expected --strategy='),
      ('multiworker', None, 'without TF_CONFIG in the environment: expected {"cluster'),
      ('tpu', 'local', 'has no TPU kernels.*tpu-vm-tf-2.15.1-pjrt'),
      ('tpu', 'here:there', '--tpu=here:there: nothing answers there'),
      ('tpu', '127.0.0.1:99999999999', '--tpu=127.0.0.1:9+: nothing answers there'))
  def test_unavailable_strategies_are_refused(self, name, tpu, expected):
    with self.assertRaisesRegex(config.ConfigError, expected) as raised:
      devices.make_strategy(name, tpu)
    self.assertNotIn('\n', str(raised.exception))

  @parameterized.parameters('', 'grpc://')
  def test_an_address_that_does_not_answer_is_named(self, scheme):
    with socket.socket() as free:
      free.bind(('127.0.0.1', 0))
      address = f'{scheme}127.0.0.1:{free.getsockname()[1]}'
      with self.assertRaisesRegex(
          config.ConfigError, f'--tpu={address}: nothing answers there .*refused'):
        devices.make_strategy('tpu', address)

  @parameterized.parameters(
      '{', '3', '{}', _tf_config(), _tf_config(type='worker', index=2),
      _tf_config(type='worker', index='0'), _tf_config(type='ps', index=0),
      _tf_config({'worker': ['a']}, type='worker', index=0),
      _tf_config({'worker': 3}, type='worker', index=0),
      _tf_config({'worker': ['a:1'], 'ps': ['b:1']}, type='worker', index=0))
  def test_a_tf_config_that_names_no_worker(self, text):
    with mock.patch.dict(os.environ, TF_CONFIG=text):
      with self.assertRaisesRegex(config.ConfigError, 'TF_CONFIG = '):
        devices.make_strategy('multiworker')

  def test_every_replica_gets_its_rows(self):
    self.assertEqual(devices.make_strategy('default').num_replicas_in_sync, 1)
    strategy = devices.make_strategy('mirrored')
    num_replicas = len(tf.config.list_logical_devices('CPU'))
    self.assertEqual(strategy.num_replicas_in_sync, num_replicas)
    self.assertTrue(devices.is_chief(strategy))
    self.assertEqual(devices.worker_number(strategy), 0)
    self.assertEqual(devices.texts_of_workers('né', strategy), ['né'])
    batch = {'x': tf.range(2 * num_replicas), 'y': ()}
    shares = strategy.experimental_local_results(
        devices.share_out(batch, strategy)['x'])
    np.testing.assert_array_equal(shares, tf.reshape(batch['x'], [-1, 2]))
    if num_replicas > 1:
      with self.assertRaisesRegex(config.ConfigError, 'batch_size = 5'):
        devices.share_out({'x': tf.range(5)}, strategy)

  def test_a_device_must_exist(self):
    devices.check('cpu:0')
    for wrong in 'GPU:7', 'gpu1':
      with self.assertRaisesRegex(
          config.ConfigError, f'^the device {wrong} does not exist: expected one of CPU:0'):
        devices.check(wrong)

  def test_a_device_that_acts_does_not_learn(self):
    num = len(tf.config.list_logical_devices('CPU'))
    if num > 1:
      strategy = devices.make_strategy('mirrored', acts='cpu:1')
      self.assertEqual(strategy.num_replicas_in_sync, num - 1)
      self.assertNotIn('CPU:1', str(strategy.extended.worker_devices))
    with self.assertRaisesRegex(config.ConfigError, '^--inference_device=GPU:9'):
      devices.make_strategy('mirrored', acts='GPU:9')
    with self.assertRaisesRegex(config.ConfigError, '--strategy=tpu'):
      devices.make_strategy('tpu', 'local', 'TPU:1')

  def test_the_compute_type_is_of_what_is_made_in_its_context(self):
    with self.assertRaises(ZeroDivisionError):
      with devices.compute_dtype('bfloat16'):
        layer = tf.keras.layers.Dense(2)
        raise ZeroDivisionError
    self.assertEqual(layer.compute_dtype, 'bfloat16')
    self.assertEqual(layer.variable_dtype, 'float32')
    self.assertEqual(tf.keras.layers.Dense(2).compute_dtype, 'float32')


if __name__ == '__main__':
  absltest.main()
