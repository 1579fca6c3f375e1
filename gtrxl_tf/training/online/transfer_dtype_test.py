"""Tests that weights and records travel through Reverb in 16 bits, and what it costs."""

import contextlib
import itertools
import multiprocessing
import socket
import threading

from absl import logging
from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import portpicker
import pytest
import reverb
import tensorflow as tf

from gtrxl_tf import nests
from gtrxl_tf.replay import dataset
from gtrxl_tf.replay import reverb_writer
from gtrxl_tf.replay import server
from gtrxl_tf.replay import staleness
from gtrxl_tf.replay import unroll as unroll_lib
from gtrxl_tf.replay import weights
from gtrxl_tf.settings import config
from gtrxl_tf.training import tiny_agents_testing
from gtrxl_tf.training.online import acting_testing

_CORES, _E = acting_testing.CORES, acting_testing.E


class _Counter:
  """Forwards TCP connections to a port, and counts the bytes of both directions."""

  def __init__(self, to_port):
    self._to = to_port
    self._listener = socket.create_server(('localhost', 0))
    self.port = self._listener.getsockname()[1]
    self.count = 0
    threading.Thread(target=self._accept, daemon=True).start()

  def _accept(self):
    while True:
      one, _ = self._listener.accept()
      other = socket.create_connection(('localhost', self._to))
      for pair in ((one, other), (other, one)):
        threading.Thread(target=self._forward, args=pair, daemon=True).start()

  def _forward(self, source, sink):
    with contextlib.suppress(OSError):  # An end was closed.
      while data := source.recv(2**16):
        self.count += len(data)
        sink.sendall(data)

  def of(self, call):
    """The bytes that a call transfers, and its result."""
    before = self.count
    result = call()
    return self.count - before, result


class TransferDtypeTest(acting_testing.ActingTestCase):

  @parameterized.parameters('trxl', 'lstm')
  @pytest.mark.long
  def test_acting_equals_learning(self, core):
    self.start(acting_testing.experiment(_CORES[core], transfer_dtype='bfloat16'),
               reverb=True)
    for i, batch in enumerate(itertools.islice(self.batches(), 12)):
      self.assertEqual({x.dtype for x in tf.nest.flatten(batch.record)}, {tf.uint16})
      self.tolerance = 3e-2
      self.assert_learner_agrees(batch)
      # By the weights as they arrive, only the records differ from what acted.
      step, self.tolerance = batch.target_step.numpy().item(), 5e-3
      exact = self.weights[step]
      self.weights[step] = nests.from_half(nests.to_half(list(map(tf.constant, exact))))
      self.assert_learner_agrees(batch)
      self.weights[step] = exact
      if i % 4 == 3:
        self.publish(i)


class LossTest(parameterized.TestCase):

  @parameterized.parameters('vmpo', 'ppo', 'r2d2')
  @pytest.mark.medium
  def test_losses_take_records_of_16_bits(self, name):
    made = tiny_agents_testing.AGENTS[name]
    agent, batch = made.make(), made.batch(0)
    unrolls = batch.unroll if name == 'r2d2' else batch
    halved = unrolls._replace(record=nests.to_half(unrolls.record))
    expected = agent.loss(batch)[0]
    found = agent.loss(batch._replace(unroll=halved) if name == 'r2d2' else halved)[0]
    self.assertNotEqual(float(found), float(expected))
    np.testing.assert_allclose(found, expected, rtol=2e-3)


def _row(half, seed=0):
  """A row of one environment: 256 bytes of observation, and a record of 1024 numbers."""
  random = np.random.default_rng(seed)
  record = random.standard_normal((1, 1024), np.float32)
  scalar = np.zeros(1, np.float32)
  return unroll_lib.Unroll(
      observation=random.integers(0, 256, (1, 256), np.uint8),
      step_type=np.ones(1, np.int32), reward=scalar, discount=scalar,
      action=np.zeros(1, np.int32), policy=np.zeros([1, 4], np.float32),
      record=nests.to_half(tf.constant(record)).numpy() if half else record,
      episode_return=scalar, episode_success=scalar, task=np.zeros(1, np.int32),
      target_step=np.int64(0), unroll_id=np.int64(0))


def _variables(value):
  """A weight, and a statistic, which is not rounded."""
  return [tf.Variable(value), tf.Variable(1000.123 + value[0, 0], trainable=False)]


_SHAPE = (300, 400)


def _serve(port, half):
  server.serve(port, _row(half), 16, 32, 10, _variables(np.zeros(_SHAPE, np.float32)),
               half_weights=half).wait()


class BytesTest(absltest.TestCase):

  def start(self, half):
    """Starts a server's process; returns a counter of what it gets and sends."""
    port = portpicker.pick_unused_port()
    # In the same process, Reverb would read without a connection.
    process = multiprocessing.get_context('spawn').Process(
        target=_serve, args=(port, half), daemon=True)
    process.start()
    self.addCleanup(process.join)
    self.addCleanup(process.kill)
    reverb.Client(f'localhost:{port}').server_info(timeout=60)
    return _Counter(port)

  def measure(self, half):
    """The bytes of weights, and of an unroll of 16 steps with a memory of 32."""
    counter = self.start(half)
    address = f'localhost:{counter.port}'
    values = np.random.default_rng(1).standard_normal(_SHAPE, np.float32)
    sent, arrived = _variables(values), _variables(0 * values)
    publisher, receiver = (
        weights.WeightsChannel(address, x, half) for x in (sent, arrived))
    published, _ = counter.of(lambda: publisher.publish(7))
    received, step = counter.of(receiver.receive)
    self.assertEqual(step, 7)
    np.testing.assert_allclose(
        arrived[0], values, rtol=2**-8 if half else 0)  # To the nearest.
    self.assertEqual(arrived[1].numpy(), sent[1].numpy())

    rows = 97  # Six unrolls; the first two begin with rows that are blank.
    made = reverb_writer.ReverbWriter(reverb.Client(address), _row(half), 16, 32)
    made.open()
    def write():
      for i in range(rows):
        made.append(_row(half, seed=i))
      while not made.wait(1000):
        pass
    written, _ = counter.of(write)
    made.close()
    def read_all():
      batches = iter(dataset.unrolls(
          address, 1, staleness.Ledger(max_age=100), lambda: False))
      return [next(batches) for _ in range(6)][-1]
    read, batch = counter.of(read_all)  # All six, as some are fetched ahead.
    np.testing.assert_array_equal(
        batch.record[0, -1], _row(half, seed=79).record[0])
    return published, received, written / rows, read / 6

  @pytest.mark.long
  def test_weights_and_records_have_half_the_bytes(self):
    whole, half = self.measure(False), self.measure(True)
    logging.info('bytes of weights published and received, of a row written and an '
                 'unroll read: %s in 32 bits, %s in 16 bits', whole, half)
    for before, after in zip(whole[:2], half[:2]):
      self.assertBetween(after / before, 0.45, 0.55)
    # A record has 4,096 or 2,048 bytes, and the rest of a row 300.
    for before, after in zip(whole[2:], half[2:]):
      self.assertBetween(after / before, 0.45, 0.6)

  @pytest.mark.medium
  def test_parts_with_other_settings_say_so(self):
    address = f'localhost:{self.start(True).port}'
    variables = _variables(np.zeros(_SHAPE, np.float32))
    weights.WeightsChannel(address, variables, True).publish(0)
    with self.assertRaisesRegex(config.ConfigError, r'variable 0 is uint16\[300, 400\]'):
      weights.WeightsChannel(address, variables).receive()


if __name__ == '__main__':
  absltest.main()
