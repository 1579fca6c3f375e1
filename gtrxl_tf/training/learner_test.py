"""Tests of learner.py with V-MPO, which split the CPU into logical devices."""

import os
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import devices_testing
from gtrxl_tf import networks
from gtrxl_tf import testing
from gtrxl_tf.settings import config
from gtrxl_tf.training import devices
from gtrxl_tf.training import learner as learner_lib

devices_testing.split_cpu(2)


class _Training:
  """An agent, its optimizer, its learner and its checkpoint."""

  def __init__(self, strategy=None, clip_norm=None, kl_reference='acting_policy',
               **uses):
    self.strategy = strategy or tf.distribute.get_strategy()
    with self.strategy.scope():
      self.agent = testing.tiny_agent(lambda: testing.tiny_network(
          num_values=2, popart=networks.PopArt), kl_reference=kl_reference)
      # With 1e-8, a gradient that is 0 up to rounding would make a full step.
      self.optimizer = tf.keras.optimizers.legacy.Adam(1e-2, epsilon=1e-4)
    self.learner = learner_lib.Learner(
        self.agent, self.optimizer, self.strategy, clip_norm, **uses)
    self.checkpoint = tf.train.Checkpoint(agent=self.agent, optimizer=self.optimizer)

  def step(self, seed):
    """A step on a global batch, of which every replica gets its part."""
    batch = testing.random_unrolls(seed, num_tasks=2)
    # The ids are of items and not of unrolls; no loss reads them.
    batch = devices.share_out(
        batch._replace(target_step=(), unroll_id=()), self.strategy)
    return {name: value.numpy() for name, value in self.learner.step(batch).items()}

  def variables(self):
    return [v.numpy() for v in (*self.agent.online.variables,
                                *self.agent.target.variables, self.agent.temperature,
                                *self.agent.alphas.values(),
                                *self.optimizer.variables())]


class _Lookup(tf.Module):
  """Makes the rows of a table large. Its other variable is not in the loss."""

  def __init__(self):
    super().__init__()
    self.table = tf.Variable(tf.ones([3, 2]))
    self.apart = tf.Variable(1.)

  learned_variables = property(lambda self: (self.table, self.apart))

  def loss(self, batch):
    loss = -tf.reduce_sum(tf.gather(self.table, batch)) / 4
    return loss, {'loss': loss, 'carried': {
        'none': tf.zeros([batch.shape[0], 0]), 'bool': tf.equal(batch, 2)}}

  def after_step(self, metrics):
    return metrics

  def after_batch(self, batch):
    pass


class _Seen(tf.Module):
  """Notes the rows of every gradient step."""

  def __init__(self):
    super().__init__()
    self.weight = tf.Variable(0.)
    self.rows = []
    self.batches = []

  learned_variables = property(lambda self: (self.weight,))

  def loss(self, batch):
    return self.weight * 0., {'rows': tf.cast(batch, tf.float32)}

  def after_step(self, metrics):
    self.rows.append(metrics['rows'].numpy().tolist())
    return {}

  def after_batch(self, batch):
    self.batches.append(batch.numpy().tolist())


class LearnerTest(tf.test.TestCase, parameterized.TestCase):

  @pytest.mark.medium
  def test_a_step_is_that_of_its_optimizer_on_its_agents_loss(self):
    training, reference = _Training(), _Training()
    for seed in range(3):
      metrics = training.step(seed)
      variables = reference.agent.learned_variables
      with tf.GradientTape() as tape:
        loss, theirs = reference.agent.loss(
            testing.random_unrolls(seed, num_tasks=2))
      reference.optimizer.apply_gradients(
          zip(tape.gradient(loss, variables), variables))
      reference.agent.after_step(theirs)
      self.assertAllClose(metrics['loss'], loss, atol=1e-5, rtol=1e-5)
    self.assertAllClose(training.variables(), reference.variables(), atol=1e-5)

  @pytest.mark.medium
  def test_one_thread_takes_the_same_steps(self):
    one, other = _Training(), _Training()
    batch = testing.random_unrolls(0, num_tasks=2)
    with mock.patch.object(
        tf.config.threading, 'get_inter_op_parallelism_threads', lambda: 1):
      one.learner.prepare(tf.nest.map_structure(
          tf.TensorSpec.from_tensor,
          batch._replace(target_step=(), unroll_id=())))
    for seed in range(2):
      with mock.patch.object(
          tf.experimental, 'function_executor_type',
          wraps=tf.experimental.function_executor_type) as used:
        metrics = one.step(seed)
      used.assert_called_once_with('SINGLE_THREADED_EXECUTOR')
      self.assertAllClose(metrics, other.step(seed), atol=1e-5, rtol=1e-5)
    self.assertAllClose(one.variables(), other.variables(), atol=1e-5)

  @parameterized.parameters(
      tf.errors.UnavailableError(None, None, 'a worker is gone'), RuntimeError('a device'))
  def test_errors_of_a_step_are_not_those_of_the_server(self, error):
    with self.assertRaisesRegex(learner_lib.StepFailed, '^learner step 3: a'):
      with learner_lib.device_errors(3):
        raise error

  @pytest.mark.medium
  def test_epochs_are_steps_on_the_same_batch_and_count_as_one(self):
    twice, once = _Training(num_epochs=2), _Training()
    for seed in range(2):
      metrics = twice.step(seed)
      once.step(seed)
      self.assertAllClose(metrics, once.step(seed), atol=1e-5, rtol=1e-5)
    self.assertEqual(twice.learner.steps, 2)
    self.assertEqual(once.learner.steps, 4)
    self.assertAllClose(twice.variables(), once.variables(), atol=1e-5)

  @parameterized.parameters(
      {}, dict(num_epochs=2, num_minibatches=2, kl_reference='target_network'))
  @pytest.mark.medium
  def test_preparing_traces_the_step_and_changes_nothing(self, **uses):
    prepared, other = _Training(**uses), _Training(**uses)
    before = prepared.variables()
    prepared.learner.prepare(tf.nest.map_structure(
        lambda x: tf.TensorSpec(x.shape, x.dtype),
        testing.random_unrolls(0, num_tasks=2)._replace(target_step=(), unroll_id=())))
    count = prepared.learner._step.experimental_get_tracing_count
    traces = count()
    self.assertGreater(traces, 0)
    self.assertAllEqual(prepared.learner.steps, 0)
    self.assertAllClose(prepared.variables(), before, rtol=0, atol=0)
    self.assertEqual(prepared.step(0), other.step(0))
    self.assertEqual(count(), traces)

  def _rows(self, steps, seed=0):
    """The rows of the gradient steps on a batch of 0 to 5, in each learner step."""
    agent = _Seen()
    learner = learner_lib.Learner(
        agent, tf.keras.optimizers.legacy.SGD(1.), tf.distribute.get_strategy(),
        num_epochs=2, num_minibatches=3, seed=seed)
    found = []
    for _ in range(steps):
      learner.step(tf.range(6))
      found.append(agent.rows)
      agent.rows = []
    self.assertEqual(learner.steps, steps)
    self.assertEqual(agent.batches, [list(range(6))] * steps)
    return found

  def test_every_epoch_uses_every_row_once_in_random_minibatches(self):
    steps = self._rows(2)
    epochs = [rows[i:i + 3] for rows in steps for i in (0, 3)]
    for epoch in epochs:
      self.assertEqual([len(rows) for rows in epoch], [2, 2, 2])
      self.assertCountEqual(sum(epoch, []), range(6))
    self.assertLen({str(epoch) for epoch in epochs}, 4)
    self.assertEqual(self._rows(2), steps)
    self.assertNotEqual(self._rows(2, seed=1), steps)

  def test_minibatches_that_do_not_divide_the_rows_are_refused(self):
    learner = learner_lib.Learner(
        _Seen(), tf.keras.optimizers.legacy.SGD(1.), tf.distribute.get_strategy(),
        num_minibatches=3)
    with self.assertRaisesRegex(config.ConfigError, '^num_minibatches = 3'):
      learner.step(tf.range(4))

  def test_lookups_empty_states_and_what_has_no_gradient(self):
    strategy = devices_testing.mirrored(self, 2)
    with strategy.scope():
      agent = _Lookup()
      optimizer = tf.keras.optimizers.legacy.SGD(1.)
    metrics = learner_lib.Learner(agent, optimizer, strategy).step(
        devices.share_out(tf.constant([0, 0, 2, 0]), strategy))
    self.assertAllClose(agent.table, [[1.75, 1.75], [1, 1], [1.25, 1.25]])
    self.assertAllClose(metrics['gradient_norm'], np.sqrt(2 * (0.75**2 + 0.25**2)))
    self.assertEqual(agent.apart.numpy(), 1)
    self.assertAllEqual(metrics['carried']['bool'], [False, False, True, False])
    self.assertEqual(metrics['carried']['none'].shape, (4, 0))

  @pytest.mark.medium
  def test_resumed_training_equals_uninterrupted_training(self):
    whole = _Training()
    uninterrupted = [whole.step(seed) for seed in range(5)]

    first = _Training()
    resumed = [first.step(seed) for seed in range(2)]
    path = first.checkpoint.save(os.path.join(self.get_temp_dir(), 'checkpoint'))
    second = _Training()
    second.step(17)  # Its state before the restore does not matter.
    second.checkpoint.restore(path).assert_consumed()
    self.assertEqual(second.learner.steps, 2)
    resumed += [second.step(seed) for seed in range(2, 5)]

    self.assertAllEqual(resumed, uninterrupted)
    for x, y in zip(second.variables(), whole.variables()):
      self.assertAllEqual(x, y)


if __name__ == '__main__':
  absltest.main()
