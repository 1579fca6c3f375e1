"""Tests of agent.py."""

import functools
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import pytest
import tensorflow as tf

from gtrxl_tf import testing
from gtrxl_tf.agents import ppo as agent_lib
from gtrxl_tf.losses import ppo
from gtrxl_tf.losses import returns
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import popart as popart_lib
from gtrxl_tf.training import learner as learner_lib


def _agent(action_spec=testing.DISCRETE, num_tasks=1, popart=None, **settings):
  return agent_lib.PPOAgent(
      *testing.shared_networks(action_spec, num_values=num_tasks, popart=popart),
      **settings)


def _outputs(agent, batch):
  """The online network's policy of each action, and all values."""
  outputs = testing.outputs(agent.online, batch)
  return tf.nest.map_structure(lambda x: x[:, :-1], outputs.policy), outputs.value


def _actions(batch):
  return tf.nest.map_structure(lambda x: x[:, 1:], batch.action)


def _learner(agent, learning_rate=0.01):
  return learner_lib.Learner(agent, tf.keras.optimizers.legacy.Adam(learning_rate),
                             tf.distribute.get_strategy())


class PPOAgentTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.named_parameters(
      ('discrete', testing.DISCRETE), ('continuous', testing.CONTINUOUS),
      ('hybrid', testing.HYBRID), ('integers', testing.INTEGERS))
  @pytest.mark.medium
  def test_a_step_makes_good_actions_likelier_and_bad_ones_less_likely(self, spec):
    agent = _agent(spec, discount=0.0, entropy_cost=0.0, value_cost=0.0)
    batch = testing.random_unrolls(0, action_spec=spec)
    policy, values = _outputs(agent, batch)
    batch = batch._replace(policy=policy)
    space, valid = agent.online.action_space, ~batch.is_last()[:, :-1]
    advantages = batch.reward[:, 1:] - values[:, :-1, 0]
    advantages -= tf.reduce_mean(advantages[valid])
    before = space.log_prob(policy, _actions(batch))
    metrics = _learner(agent).step(batch)
    self.assertAllClose(metrics['clip_fraction'], 0)
    self.assertCountEqual(metrics.keys() - {'gradient_norm'}, [
        'loss', 'policy_loss', 'value_loss', 'entropy', 'value', 'clip_fraction',
        *(f'kl_{part}' for part in space.constraints)])
    for part in space.constraints:
      self.assertAllClose(metrics[f'kl_{part}'], 0, atol=1e-6)
    after = space.log_prob(_outputs(agent, batch)[0], _actions(batch))
    gain = tf.where(valid, (after - before) * advantages, 0)
    self.assertGreater(tf.reduce_sum(gain), 0.1)

  @pytest.mark.medium
  def test_it_learns_which_action_is_rewarded(self):
    agent = agent_lib.PPOAgent(
        *testing.shared_networks(previous_action_and_reward=False), discount=0.0)
    learner = _learner(agent, 0.02)
    space = agent.online.action_space
    for seed in range(40):
      batch = testing.random_unrolls(seed, batch_size=8)
      policy, _ = _outputs(agent, batch)
      action = tf.concat(
          [batch.action[:, :1], space.sample(policy, [seed, 0])], axis=1)
      learner.step(batch._replace(
          policy=policy, action=action, reward=tf.cast(action == 1, tf.float32)))
    batch = testing.random_unrolls(99, batch_size=8)
    ones = tf.ones_like(_actions(batch))
    probability = tf.exp(space.log_prob(_outputs(agent, batch)[0], ones))
    self.assertGreater(tf.reduce_mean(probability), 0.8)

  @parameterized.parameters(False, True)
  def test_the_loss_of_each_step(self, with_popart):
    agent = _agent(num_tasks=2, popart=popart_lib.PopArt if with_popart else None,
                   discount=0.9, td_lambda=0.7, clip_ratio=0.3, entropy_cost=0.02,
                   value_cost=0.25)
    mean, scale = tf.zeros([2]), tf.ones([2])
    if with_popart:
      mean, scale = tf.constant([1.0, -2.0]), tf.constant([2.0, 0.5])
      agent.online.popart.mean.assign(mean)
      agent.online.popart.variance.assign(scale ** 2)
    batch = testing.random_unrolls(0, num_tasks=2)
    tasks, valid = batch.task[:, 0], ~batch.is_last()[:, :-1]
    mean, scale = (tf.gather(x, tasks)[:, tf.newaxis] for x in (mean, scale))
    policy, outputs = _outputs(agent, batch)
    normalized = tf.gather(outputs, tasks, axis=2, batch_dims=1)
    values = scale * normalized + mean
    targets = returns.n_step_returns(
        batch.reward, batch.discount, values, batch.is_last(), 0.9, 0.7)
    space = agent.online.action_space
    expected = ppo.ppo_loss(
        space.log_prob(policy, _actions(batch)),
        space.log_prob(batch.policy, _actions(batch)),
        (targets - values[:, :-1]) / scale, space.entropy(policy), valid, 0.3, 0.02,
        True)
    squares = tf.square((targets - mean) / scale - normalized[:, :-1])
    value_loss = 0.5 * tf.reduce_mean(squares[valid])
    loss, metrics = agent.loss(batch)
    self.assertAllClose(metrics['policy_loss'], expected.policy_loss)
    self.assertAllClose(metrics['clip_fraction'], expected.clip_fraction)
    self.assertAllClose(metrics['value_loss'], value_loss, rtol=1e-5)
    self.assertAllClose(loss, expected.total_loss + 0.25 * value_loss, rtol=1e-5)

  def test_popart_makes_tasks_of_any_scale_equal(self):
    # Rewards and statistics of task 1 are a thousand times as large in one agent.
    losses = []
    for factor in (1.0, 1e3):
      agent = _agent(num_tasks=2, popart=functools.partial(
          popart_lib.PopArt, step_size=0.1))
      agent.online.popart.variance.assign([1.0, factor ** 2])
      batch = testing.random_unrolls(0, num_tasks=2)
      huge = tf.where(batch.task == 1, factor, 1.0)
      batch = batch._replace(reward=batch.reward * huge)
      # The reward is an input of the network too.
      with mock.patch.object(
          actor_critic, 'previous_action_and_reward',
          lambda inputs, space, dtype: tf.zeros([*inputs.reward.shape, 4], dtype)):
        losses.append(agent.loss(batch)[0])
    self.assertAllClose(*losses, rtol=1e-4)

  @pytest.mark.medium
  def test_the_acting_network_is_a_copy_that_is_not_learned(self):
    agent = _agent(publish_period=3)
    self.assertEqual((agent.publish_period, agent.default_max_age), (3, 14))
    self.assertEqual(agent.gauges(), {})
    before = [v.numpy() for v in agent.acting_network.variables]
    _learner(agent).step(testing.random_unrolls(0))
    for variable, old, online in zip(
        agent.acting_network.variables, before, agent.online.variables):
      self.assertAllEqual(variable, old)
      self.assertNotAllEqual(online, old)


if __name__ == '__main__':
  absltest.main()
