"""Tests of agent.py."""

from absl.testing import absltest
import numpy as np
import tensorflow as tf

from gtrxl_tf import testing
from gtrxl_tf.losses import distributions
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.training import learner as learner_lib


def _loss_and_gradients(agent, batch):
  with tf.GradientTape() as tape:
    loss, metrics = agent.loss(batch)
  return loss, metrics, tape.gradient(loss, agent.learned_variables)


class VMPOAgentTest(tf.test.TestCase):

  def test_loss_is_finite_and_every_learned_variable_has_a_gradient(self):
    agent = testing.tiny_agent()
    loss, metrics, gradients = _loss_and_gradients(agent, testing.random_unrolls(0))
    self.assertEqual(loss.shape, ())
    for name, value in {'loss': loss, **metrics}.items():
      self.assertTrue(np.isfinite(value), name)
    for variable, gradient in zip(agent.learned_variables, gradients):
      self.assertIsNotNone(gradient, variable.name)
      self.assertTrue(np.isfinite(gradient).all(), variable.name)
      self.assertGreater(np.abs(gradient).max(), 0, variable.name)

  def test_the_target_network_is_not_learned(self):
    agent = testing.tiny_agent()
    learned = {v.ref() for v in agent.learned_variables}
    self.assertTrue(learned.issuperset(v.ref() for v in agent.online.variables))
    self.assertTrue(learned.isdisjoint(v.ref() for v in agent.target.variables))

  def test_what_is_done_at_an_episodes_last_step_has_no_influence(self):
    agent = testing.tiny_agent()
    batch = testing.random_unrolls(0)
    is_last = batch.is_last()
    at_last = is_last[:, :-1]
    self.assertGreater(np.sum(at_last), 1)
    # Whatever was done there, and the reward that answers it: that of a first step.
    other = batch._replace(
        action=tf.where(tf.pad(at_last, [[0, 0], [1, 0]]), 2 - batch.action,
                        batch.action),
        policy=tf.where(at_last[..., tf.newaxis], 1e3 * batch.policy, batch.policy),
        reward=tf.where(batch.is_first()[:, batch.memory_length:], 1e6, batch.reward))
    for x, y in zip(tf.nest.flatten(_loss_and_gradients(agent, batch)),
                    tf.nest.flatten(_loss_and_gradients(agent, other))):
      self.assertAllEqual(x, y)

  def test_an_ended_episode_has_no_influence_on_the_next(self):
    agent = testing.tiny_agent()
    batch = testing.random_unrolls(0, batch_size=2)
    # The second row's episode ends at row 0: nothing of its memory is left to see.
    record = tf.concat([batch.record[:1], 1e3 * batch.record[1:]], axis=0)
    values = lambda batch: agent.online(
        actor_critic.NetworkInputs(
            batch.observation, batch.action, batch.reward,
            batch.is_first()[:, batch.memory_length:]),
        agent.online.core.restore(
            batch.record, batch.is_first()[:, :batch.memory_length]))[0].value
    self.assertAllEqual(
        values(batch)[:, 1:], values(batch._replace(record=record))[:, 1:])

  def test_kl_is_that_to_the_policy_that_acted(self):
    agent = testing.tiny_agent()
    batch = testing.random_unrolls(0)
    outputs, _ = agent.online(
        actor_critic.NetworkInputs(
            batch.observation, batch.action, batch.reward,
            batch.is_first()[:, batch.memory_length:]),
        agent.online.core.restore(
            batch.record, batch.is_first()[:, :batch.memory_length]))
    logits = outputs.logits[:, :-1]
    _, metrics = agent.loss(batch._replace(policy=logits))
    self.assertAllClose(metrics['kl'], 0, atol=1e-6)
    _, metrics = agent.loss(batch)
    expected = tf.boolean_mask(
        distributions.categorical_kl(batch.policy, logits), ~batch.is_last()[:, :-1])
    self.assertAllClose(metrics['kl'], tf.reduce_mean(expected))

  def test_duals_stay_positive_whatever_the_learning_rate(self):
    # With bounds so wide both sink as fast as they can.
    agent = testing.tiny_agent(epsilon_temperature=1e6, epsilon_alpha=1e6)
    learner = learner_lib.Learner(
        agent, tf.keras.optimizers.legacy.Adam(1e3), tf.distribute.get_strategy())
    for seed in range(3):
      metrics = learner.step(testing.random_unrolls(seed))
      duals = [agent.temperature.numpy(), agent.alpha.numpy()]
      if seed == 0:
        self.assertAllEqual(duals, np.float32([1e-8, 1e-8]))
      self.assertAllGreaterEqual(duals, np.float32(1e-8))
      self.assertTrue(np.isfinite(metrics['loss']))

  def test_update_target_copies_the_online_network(self):
    agent = testing.tiny_agent()
    for variable in agent.online.variables:
      variable.assign_add(tf.ones_like(variable))
    before = [v.numpy() for v in agent.target.variables]
    agent.update_target()
    for target, online, old in zip(
        agent.target.variables, agent.online.variables, before):
      self.assertAllEqual(target, online)
      self.assertAllClose(target, old + 1)

  def test_the_target_network_starts_as_a_copy(self):
    online, target = testing.tiny_network(), testing.tiny_network()
    for variable in target.variables:
      variable.assign(tf.zeros_like(variable))
    agent = type(testing.tiny_agent())(online, target)
    for ours, theirs in zip(agent.target.variables, agent.online.variables):
      self.assertAllEqual(ours, theirs)

  def test_gauges(self):
    agent = testing.tiny_agent(
        initial_temperature=0.5, initial_alpha=2.0, epsilon_alpha=0.25)
    self.assertEqual(
        agent.gauges(), {'kl_bound': 0.25, 'temperature': 0.5, 'alpha': 2.0})


if __name__ == '__main__':
  absltest.main()
