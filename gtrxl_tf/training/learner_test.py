"""Tests of learner.py with V-MPO: replicas, checkpoints, XLA. It splits the CPU."""

import os
import re

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from gtrxl_tf import networks
from gtrxl_tf import testing
from gtrxl_tf.training import learner as learner_lib

NUM_DEVICES = 4

testing.split_cpu(NUM_DEVICES)


class _Training:
  """An agent, and what trains it."""

  def __init__(self, strategy=None, clip_norm=None):
    self.strategy = strategy or tf.distribute.get_strategy()
    with self.strategy.scope():
      self.agent = testing.tiny_agent(lambda: testing.tiny_network(
          num_values=2, popart=networks.PopArt))
      # With 1e-8 a gradient of zero but for rounding would make a whole step.
      self.optimizer = tf.keras.optimizers.legacy.Adam(1e-2, epsilon=1e-4)
    self.learner = learner_lib.Learner(
        self.agent, self.optimizer, self.strategy, clip_norm)
    self.checkpoint = tf.train.Checkpoint(agent=self.agent, optimizer=self.optimizer)

  def step(self, seed):
    """A step on a global batch, of which every replica gets its part."""
    batch = testing.random_unrolls(seed, num_tasks=2)
    if self.strategy.num_replicas_in_sync > 1:
      whole = batch
      def part(context):
        parts = lambda x: tf.split(x, context.num_replicas_in_sync)
        # The ids are an item's, not an unroll's; no loss reads them.
        ids = dict(target_step=whole.target_step, unroll_id=whole.unroll_id)
        return tf.nest.map_structure(
            lambda x: parts(x)[context.replica_id_in_sync_group],
            whole._replace(**{name: () for name in ids}))._replace(**ids)
      batch = self.strategy.experimental_distribute_values_from_function(part)
    return {name: value.numpy() for name, value in self.learner.step(batch).items()}

  def variables(self):
    return [v.numpy() for v in (*self.agent.online.variables,
                                *self.agent.target.variables, self.agent.temperature,
                                *self.agent.alphas.values(),
                                *self.optimizer.variables())]


class LearnerTest(tf.test.TestCase, parameterized.TestCase):

  def test_steps_are_counted_and_change_all_that_is_learned(self):
    training = _Training()
    before = [v.numpy() for v in training.agent.learned_variables]
    target = [v.numpy() for v in training.agent.target.variables]
    for seed in range(3):
      training.step(seed)
    self.assertEqual(training.learner.steps.numpy(), 3)
    for variable, old in zip(training.agent.learned_variables, before):
      self.assertGreater(np.abs(variable - old).max(), 0, variable.name)
    for variable, old in zip(training.agent.target.variables, target):
      self.assertAllEqual(variable, old)

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

  @parameterized.parameters((2, None), (4, 0.1))
  def test_replicas_learn_what_one_learns(self, num_replicas, clip_norm):
    if len(tf.config.list_logical_devices('CPU')) < NUM_DEVICES:
      self.skipTest('TensorFlow had started before the CPU could be split.')
    one = _Training(clip_norm=clip_norm)
    # Not the collectives it would choose: in one process TensorFlow gives strategies
    # of unlike sizes one group key, and they abort each other.
    many = _Training(tf.distribute.MirroredStrategy(
        [f'CPU:{i}' for i in range(num_replicas)],
        cross_device_ops=tf.distribute.ReductionToOneDevice()), clip_norm)
    for seed in range(3):
      self.assertAllClose(many.step(seed), one.step(seed), atol=1e-5, rtol=1e-5)
      if seed == 1:
        one.agent.update_target()
        many.agent.update_target()
    self.assertAllClose(many.variables(), one.variables(), atol=1e-5)
    for variable in many.agent.online.variables:
      for copy in many.strategy.experimental_local_results(variable):
        self.assertAllEqual(copy, variable)

  def test_resumed_training_equals_uninterrupted_training(self):
    whole = _Training()
    uninterrupted = [whole.step(seed) for seed in range(5)]

    first = _Training()
    resumed = [first.step(seed) for seed in range(2)]
    path = first.checkpoint.save(os.path.join(self.get_temp_dir(), 'checkpoint'))
    second = _Training()
    second.step(17)  # Whatever it was before.
    second.checkpoint.restore(path).assert_consumed()
    self.assertEqual(second.learner.steps.numpy(), 2)
    resumed += [second.step(seed) for seed in range(2, 5)]

    self.assertAllEqual(resumed, uninterrupted)
    for x, y in zip(second.variables(), whole.variables()):
      self.assertAllEqual(x, y)

  def test_the_whole_step_compiles_with_xla(self):
    plain, compiled = _Training(), _Training()
    batch = testing.random_unrolls(0, num_tasks=2)
    step = tf.function(compiled.learner.step, jit_compile=True, autograph=False)
    hlo = step.experimental_get_compiler_ir(batch)(stage='hlo')
    self.assertIn('f32[', hlo)
    for absent in ('f64[', 'custom-call'):  # What a TPU has not.
      self.assertIsNone(re.search(re.escape(absent), hlo), absent)
    metrics = step(batch)
    self.assertAllClose(
        {name: value.numpy() for name, value in metrics.items()}, plain.step(0),
        atol=1e-5, rtol=1e-5)
    self.assertAllClose(compiled.variables(), plain.variables(), atol=1e-5)


if __name__ == '__main__':
  absltest.main()
