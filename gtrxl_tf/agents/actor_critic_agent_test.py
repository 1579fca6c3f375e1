"""Tests of actor_critic_agent.py: its loss, and the statistics of observations."""

import functools
import pathlib

from absl.testing import absltest
from absl.testing import parameterized
from dm_env import specs
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf import devices_testing
from gtrxl_tf import networks
from gtrxl_tf import testing
from gtrxl_tf.agents import policy as policy_lib
from gtrxl_tf.agents import ppo
from gtrxl_tf.agents import r2d2
from gtrxl_tf.agents import vmpo
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.replay import unroll
from gtrxl_tf.serving import export
from gtrxl_tf.settings import config
from gtrxl_tf.training import devices
from gtrxl_tf.training import learner as learner_lib

devices_testing.split_cpu(2)

_SPEC = specs.Array((4,), np.float32, name='observation')


def _agent(make=vmpo.VMPOAgent):
  return make(*(testing.tiny_network(normalize_observations=True) for _ in range(2)))


def _batch(seed):
  batch = testing.random_unrolls(seed)
  return batch._replace(observation=3 * batch.observation + 50)


def _on_policy(agent, batch):
  """The batch with the policies that the acting network has on it."""
  return batch._replace(policy=agent._target_policy(batch))  # pylint: disable=protected-access


def _trained(make=vmpo.VMPOAgent):
  """An agent after two learner steps; its target network is the older one."""
  agent = _agent(make)
  learner = learner_lib.Learner(agent, tf.keras.optimizers.legacy.Adam(0.01),
                                tf.distribute.get_strategy())
  metrics = [learner.step(_batch(seed)) for seed in range(2)]
  return agent, metrics


class LossTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.product(
      make=[vmpo.VMPOAgent, ppo.PPOAgent],
      spec=[testing.DISCRETE, testing.CONTINUOUS, testing.HYBRID, testing.INTEGERS])
  @pytest.mark.medium
  def test_it_is_finite_and_every_learned_variable_has_a_gradient(self, make, spec):
    agent = make(*testing.shared_networks(spec))
    loss, metrics, gradients = testing.loss_and_gradients(
        agent, testing.random_unrolls(0, action_spec=spec))
    self.assertEqual(loss.shape, ())
    for name, value in {'loss': loss, **metrics}.items():
      self.assertTrue(np.isfinite(value), name)
    for variable, gradient in zip(agent.learned_variables, gradients):
      self.assertIsNotNone(gradient, variable.name)
      self.assertTrue(np.isfinite(gradient).all(), variable.name)
      self.assertGreater(np.abs(gradient).max(), 0, variable.name)

  @parameterized.parameters(vmpo.VMPOAgent, ppo.PPOAgent)
  def test_the_action_at_an_episodes_last_step_has_no_influence(self, make):
    agent = make(*testing.shared_networks())
    batch = testing.random_unrolls(0)
    at_last = batch.is_last()[:, :-1]
    self.assertGreater(np.sum(at_last), 1)
    # The action there, and the reward after it, which is that of a first step.
    other = batch._replace(
        action=tf.where(tf.pad(at_last, [[0, 0], [1, 0]]), 2 - batch.action,
                        batch.action),
        policy=batch.policy._replace(logits=tf.where(
            at_last[..., tf.newaxis], 1e3 * batch.policy.logits, batch.policy.logits)),
        reward=tf.where(batch.is_first()[:, batch.memory_length:], 1e6, batch.reward))
    for x, y in zip(tf.nest.flatten(testing.loss_and_gradients(agent, batch)),
                    tf.nest.flatten(testing.loss_and_gradients(agent, other))):
      self.assertAllEqual(x, y)

  @parameterized.parameters(vmpo.VMPOAgent, ppo.PPOAgent)
  @pytest.mark.medium
  def test_popart_keeps_values_and_is_copied_to_the_acting_network(self, make):
    agent = make(*testing.shared_networks(num_values=2, popart=functools.partial(
        networks.PopArt, step_size=0.1)))
    learner = learner_lib.Learner(
        agent, tf.keras.optimizers.legacy.Adam(1e-12), tf.distribute.get_strategy())
    batch = testing.random_unrolls(0, num_tasks=2)
    batch = batch._replace(reward=5 + 10 * batch.reward)
    popart, tasks = agent.online.popart, batch.task[:, 0]

    def values():
      outputs = testing.outputs(agent.online, batch)
      chosen = tf.gather(outputs.value, tasks, axis=2, batch_dims=1)
      return popart.denormalize(chosen, tasks)

    before, scale = values(), popart.scale(tasks)
    metrics = learner.step(batch)
    self.assertTrue(all(value.shape == () for value in metrics.values()))
    self.assertNotAllClose(popart.scale(tasks), scale)
    self.assertAllClose(values(), before, rtol=1e-4, atol=1e-4)
    self.assertAllClose(agent.acting_network.popart.scale(tasks), scale)
    agent.refresh_acting_network()
    for ours, theirs in zip(agent.acting_network.variables, agent.online.variables):
      self.assertAllEqual(ours, theirs)

  @parameterized.parameters(vmpo.VMPOAgent, ppo.PPOAgent)
  @pytest.mark.medium
  def test_the_reward_of_a_first_step_may_be_nan(self, make):
    agent, batch = _agent(make), _batch(0)
    first = batch.is_first()[:, batch.memory_length:]
    self.assertTrue(tf.reduce_any(first[:, 1:]))
    batch = batch._replace(reward=tf.where(first, float('nan'), batch.reward))
    for gradient in testing.loss_and_gradients(agent, batch)[2]:
      self.assertAllInSet(np.isfinite(gradient), [True])

  @pytest.mark.medium
  def test_an_error_names_the_method_that_returned_something_else(self):
    for wrong, error in (
        (lambda x: (x, {}), r'a loss of shape \(.*, .*\) and type float32: expected a'),
        (lambda x: (tf.reduce_sum(tf.cast(x, tf.float64)), {}), '.* float64: expected'),
        (tf.reduce_sum, 'EagerTensor: expected a pair of a loss and a dict'),
        (lambda x: (None, {}), 'a loss of type NoneType: expected a tensor'),
        (lambda x: (tf.reduce_sum(x), {'cost': 1.}), "a metric 'cost' of type float: expec"),
        (lambda x: (tf.reduce_sum(x), {'entropy': tf.reduce_sum(x)}),
         "a metric 'entropy', which")):
      class Wrong(vmpo.VMPOAgent):

        def _policy_loss(self, steps):
          return wrong(steps.advantages)  # pylint: disable=cell-var-from-loop

      with self.assertRaisesRegex(
          config.ConfigError, f'^Wrong._policy_loss returns {error}'):
        _agent(Wrong).loss(_batch(0))


  @parameterized.parameters(vmpo.VMPOAgent, r2d2.R2D2Agent)
  def test_networks_that_share_a_core_are_refused(self, make):
    core = cores.DeepLSTM(1, 4)
    with self.assertRaisesRegex(config.ConfigError, 'share 3 variables, such as .*lstm'):
      pair = []
      for _ in range(2):
        pair.append(networks.ActorCritic(
            testing.DISCRETE, networks.VectorTorso([4]), core, head_units=4))
        pair[-1].create_variables(_SPEC)
      make(*pair)

  def test_networks_that_differ_or_have_no_variables_are_refused(self):
    with self.assertRaisesRegex(config.ConfigError, 'different variables, .* and '):
      vmpo.VMPOAgent(testing.tiny_network(), testing.tiny_network(num_values=2))
    pair = [networks.ActorCritic(testing.DISCRETE, networks.VectorTorso([4]),
                                 cores.DeepLSTM(1, 4)) for _ in range(2)]
    with self.assertRaisesRegex(config.ConfigError, 'no variables'):
      vmpo.VMPOAgent(*pair)

  @parameterized.parameters(
      (vmpo.VMPOAgent, lambda batch: unroll.Sample(batch, tf.ones([4])), 'Sample'),
      (r2d2.R2D2Agent, lambda batch: batch, 'Unroll'))
  def test_another_kind_of_batch_is_refused(self, make, batch, kind):
    with self.assertRaisesRegex(TypeError, f'the batch has type {kind}: expected'):
      make(testing.tiny_network(), testing.tiny_network()).loss(batch(_batch(0)))


class ObservationStatisticsTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.parameters(vmpo.VMPOAgent, ppo.PPOAgent)
  @pytest.mark.medium
  def test_a_step_updates_them_and_a_refresh_sends_them_to_the_actors(self, make):
    agent, metrics = _trained(make)
    seen = np.concatenate([_batch(seed).observation[:, :-1] for seed in range(2)])
    online, target = (network.observation_statistics
                      for network in (agent.online, agent.acting_network))
    self.assertAllClose(online.mean, seen.mean(axis=(0, 1)), rtol=1e-5)
    self.assertAllClose(online.variance, seen.var(axis=(0, 1)), rtol=1e-3)
    self.assertAllEqual(target.count, 0)
    agent.refresh_acting_network()
    for ours, theirs in zip(online.variables, target.variables):
      self.assertAllEqual(ours, theirs)
    for metric in metrics[-1].values():  # They are not metrics.
      self.assertEqual(metric.shape, ())

  @pytest.mark.medium
  def test_a_batch_counts_once_and_does_not_move_the_policy_within_it(self):
    agent = ppo.PPOAgent(*(testing.tiny_network(
        normalize_observations=True,
        popart=functools.partial(networks.PopArt, step_size=0.1)) for _ in range(2)))
    statistics = agent.online.observation_statistics
    learner = learner_lib.Learner(
        agent, tf.keras.optimizers.legacy.SGD(0.), tf.distribute.get_strategy(),
        num_epochs=10, num_minibatches=2)
    for seed in range(2):
      batch = _on_policy(agent, _batch(seed))
      scale = agent.online.popart.variance.numpy()
      metrics = learner.step(batch).numbers()
      self.assertEqual(metrics['clip_fraction'], 0)
      self.assertAllClose(metrics['kl_categorical'], 0, atol=1e-6)
      self.assertAllEqual(statistics.count, (seed + 1) * 4 * 5)
      # PopArt's value head moves with its statistics, in every gradient step.
      self.assertNotAllClose(agent.online.popart.variance, scale)
      agent.refresh_acting_network()
    seen = np.concatenate([_batch(seed).observation[:, :-1] for seed in range(2)])
    self.assertAllClose(statistics.mean, seen.mean(axis=(0, 1)), rtol=1e-5)
    self.assertAllClose(statistics.variance, seen.var(axis=(0, 1)), rtol=1e-3)

  @pytest.mark.medium
  def test_replicas_update_them_with_the_rows_of_all(self):
    found = []
    for strategy in devices_testing.mirrored(self, 2), tf.distribute.get_strategy():
      with strategy.scope():
        agent = _agent(ppo.PPOAgent)
        optimizer = tf.keras.optimizers.legacy.SGD(0.)
      learner = learner_lib.Learner(
          agent, optimizer, strategy, num_epochs=2, num_minibatches=2)
      for seed in range(2):
        learner.step(devices.share_out(
            _batch(seed)._replace(target_step=(), unroll_id=()), strategy))
      found.append([x.numpy() for x in agent.online.observation_statistics.variables])
    self.assertAllClose(*found, rtol=1e-5)
    self.assertEqual(found[0][0], 40)

  @pytest.mark.medium
  def test_a_network_computes_what_one_without_does_on_normalized_observations(self):
    agent, _ = _trained()
    network, plain = agent.online, testing.tiny_network()
    own = set(x.ref() for x in network.observation_statistics.variables)
    for theirs, ours in zip([x for x in network.variables if x.ref() not in own],
                            plain.variables):
      ours.assign(theirs)
    batch = _batch(5)
    inputs = actor_critic.NetworkInputs(
        batch.observation, batch.action, batch.reward,
        batch.is_first()[:, batch.memory_length:])
    normalized = network.observation_statistics.normalize(batch.observation)
    self.assertAllClose(
        network(inputs, network.initial_state(4))[0],
        plain(inputs._replace(observation=normalized), plain.initial_state(4))[0])
    self.assertAllInRange(normalized, -5, 5)

  @pytest.mark.long
  def test_checkpoints_and_exported_policies_have_them(self):
    agent, _ = _trained()
    agent.refresh_acting_network()
    folder = pathlib.Path(self.create_tempdir().full_path)
    restored = _agent()
    path = tf.train.Checkpoint(agent=agent).write(str(folder / 'checkpoint'))
    tf.train.Checkpoint(agent=restored).read(path).assert_consumed()
    for ours, theirs in zip(restored.target.variables, agent.target.variables):
      self.assertAllEqual(ours, theirs)

    policy = policy_lib.ActorCriticPolicy(
        restored.acting_network, _SPEC, testing.DISCRETE, greedy=True)
    export.save_policy(policy, folder / 'policy')
    time_step = testing.restart(_batch(3).observation[:, 0], 4)
    logits = [
        x.action(time_step, x.get_initial_state(4)).info.policy.logits
        for x in (policy, tf.saved_model.load(str(folder / 'policy')))]
    self.assertAllClose(*logits)


if __name__ == '__main__':
  absltest.main()
