"""The bound on the age of training data holds for any number of actors."""

import os
import threading
import time

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import portpicker
import pytest
import tensorflow as tf

from gtrxl_tf.replay import connection
from gtrxl_tf.replay import replay_testing
from gtrxl_tf.replay import server as server_lib
from gtrxl_tf.replay import shared
from gtrxl_tf.replay import staleness
from gtrxl_tf.replay import unroll

_T, _E, _ITEMS = 4, 2, 4
_TARGET_PERIOD, _MAX_AGE, _STEPS = 10, 20, 120


def _row_spec():
  scalars = tf.TensorSpec([_E], tf.float32)
  integers = tf.TensorSpec([_E], tf.int32)
  number = tf.TensorSpec([], tf.int64)
  return unroll.Unroll(
      observation=scalars, step_type=integers, reward=scalars, discount=scalars,
      action=integers, policy=scalars, record=(), episode_return=scalars,
      episode_success=scalars, task=integers, target_step=number, unroll_id=number)


class StalenessTest(parameterized.TestCase):

  def act(self, index):
    """Writes rows as an actor does, without a policy."""
    spec = _row_spec()
    row = tf.nest.map_structure(
        lambda x: np.zeros(x.shape, x.dtype.as_numpy_dtype), spec)._replace(
            step_type=np.ones(_E, np.int32))
    writer = connection.connect(self.address, self.layout).writer(index)
    writer.open()
    while not self.stop.is_set():
      target_step = np.int64(self.target_step)
      while not writer.append(row._replace(target_step=target_step)):
        pass
      while not writer.wait(100) and not self.stop.is_set():
        pass
    writer.close()

  @parameterized.product(num_actors=[1, 8, 64], shares=[False, True])
  @pytest.mark.medium
  def test_the_bound_holds_and_the_learner_is_fed(self, num_actors, shares):
    self.layout = unroll.Layout(_row_spec(), _T, 0, 0, _ITEMS, num_actors, [], False)
    if shares:
      descriptor = shared.create(self.layout)
      self.addCleanup(os.close, descriptor)
      self.address = shared.address(descriptor)
    else:
      replay_testing.require_reverb(self)
      port = portpicker.pick_unused_port()
      self.address = f'localhost:{port}'
      server = server_lib.serve(port, _row_spec(), _T, 0, _ITEMS, [])
      self.addCleanup(server.stop)
    self.stop = threading.Event()
    self.target_step = 0
    actors = [threading.Thread(target=self.act, args=(i,)) for i in range(num_actors)]
    for actor in actors:
      actor.start()
    ledger = staleness.Ledger(_MAX_AGE)
    deadline = time.time() + 60
    queue = connection.connect(self.address, self.layout).queue(
        _ITEMS, ledger, lambda: False, 60)
    queue.connect()
    ages = []
    while ledger.learner_step < _STEPS:
      batch = queue.next(lambda: time.time() > deadline)
      ages.extend(ledger.learner_step - batch.target_step.numpy().flatten())
      time.sleep(0.002)  # In place of a learner step.
      ledger.learner_step += 1
      if ledger.learner_step % _TARGET_PERIOD == 0:
        self.target_step = ledger.learner_step
    self.stop.set()
    for actor in actors:
      actor.join()
    queue.close()
    print(f'{num_actors} actors: oldest {max(ages)} learner steps, refused '
          f'{ledger.stale / (ledger.stale + ledger.unrolls):.2f}')
    self.assertLess(max(ages), _MAX_AGE)
    self.assertLessEqual(ledger.oldest, _MAX_AGE)
    self.assertEqual(ledger.duplicate, 0)


if __name__ == '__main__':
  absltest.main()
