"""Tests of agent.py, network.py and policy.py."""

import pathlib

from absl.testing import absltest
from absl.testing import parameterized
from dm_env import specs
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf import testing
from gtrxl_tf.agents import cql
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import cql as network_lib
from gtrxl_tf.networks import decision
from gtrxl_tf.networks import torsos
from gtrxl_tf.serving import export
from gtrxl_tf.settings import config
from gtrxl_tf.training import learner as learner_lib

_OBSERVATION_SPEC = specs.Array((1,), np.float32)
_CORES = {
    'Memoryless': lambda: cores.Memoryless(1, 16),
    'DeepLSTM': lambda: cores.DeepLSTM(1, 16),
}


def _network(core='Memoryless', **settings):
  tf.keras.utils.set_random_seed(0)
  network = network_lib.CQLNetwork(
      testing.DISCRETE, torsos.VectorTorso((16,)), _CORES[core](), **settings)
  network.create_variables(_OBSERVATION_SPEC)
  return network


def _episodes(observation, action, reward):
  """A batch of complete episodes, `[B, T]` each, that end by termination."""
  observation, reward = (np.asarray(x, np.float32) for x in (observation, reward))
  is_first, discount = np.zeros(reward.shape, bool), np.ones_like(reward)
  is_first[:, 0] = True
  discount[:, -1] = 0
  return tf.nest.map_structure(tf.constant, decision.Segments(
      return_to_go=np.zeros_like(reward), observation=observation[..., np.newaxis],
      action=np.asarray(action, np.int32), reward=reward, discount=discount,
      is_first=is_first, valid=np.ones(reward.shape, bool)))


def _recall(num_episodes=64):
  """Episodes of two steps: a clue, then a reward for the action that matches it."""
  random = np.random.RandomState(0)
  clue = random.randint(2, size=num_episodes)
  action = random.randint(2, size=(num_episodes, 2))  # Only two of the three actions.
  return _episodes(np.stack([2 * clue - 1, 0 * clue], axis=1), action,
                   np.stack([0 * clue, action[:, 1] == clue], axis=1))


def _train(agent, batch, num_steps, learning_rate=1e-2):
  learner = learner_lib.Learner(
      agent, tf.keras.optimizers.legacy.Adam(learning_rate),
      tf.distribute.get_strategy())
  return [learner.step(batch) for _ in range(num_steps)]


def _play(policy, observations, rewards=None, restart=0):
  """Acts on observations `[B, T, 1]`; episodes begin at 0 and at `restart`."""
  state, actions = policy.get_initial_state(len(observations)), []
  for t in range(observations.shape[1]):
    observation = tf.constant(observations[:, t])
    if t in (0, restart):
      time_step = testing.restart(observation, len(observations))
    else:
      time_step = testing.transition(observation, tf.constant(rewards[:, t]))
    step = policy.action(time_step, state)
    state = step.state
    actions.append(step.action)
  return np.stack(actions, axis=1)


def _q_values(network, observation):
  """The Q values of an episode's first step."""
  num = len(observation)
  return network.step(actor_critic.NetworkInputs(
      observation, tf.zeros([num], tf.int32), tf.zeros([num]),
      tf.ones([num], tf.bool)), network.initial_cache(num))[0]


def _policy(network):
  return cql.CQLPolicy(network, _OBSERVATION_SPEC, testing.DISCRETE)


class CQLAgentTest(tf.test.TestCase, parameterized.TestCase):

  @pytest.mark.medium
  def test_it_learns_the_better_of_the_actions_in_the_data(self):
    # Three of four episodes have the worse action.
    batch = _episodes([[0]] * 4, [[0], [0], [0], [1]], [[1], [1], [1], [5]])
    network = _network()
    batch = batch._replace(action=tf.cast(batch.action, tf.uint8))  # As datasets may.
    metrics = _train(cql.CQLAgent(network, alpha=0.2), batch, 200)
    self.assertEqual(set(metrics[-1]), {'loss', 'td_loss', 'conservative_loss',
                                        'q_value', 'accuracy', 'gradient_norm'})
    self.assertAllEqual(_play(_policy(network), np.zeros([1, 1, 1], np.float32)), [[1]])

  @pytest.mark.medium
  def test_the_conservative_term_lowers_actions_that_are_not_in_the_data(self):
    batch, unseen, gap = _recall(), {}, {}
    for alpha in (0.0, 1.0):
      agent = cql.CQLAgent(_network(), alpha=alpha)
      gap[alpha] = float(_train(agent, batch, 100)[-1]['conservative_loss'])
      q_values = _q_values(agent.network, batch.observation[:, 0])
      unseen[alpha] = np.mean(q_values[:, 2] - np.max(q_values[:, :2], axis=1))
    self.assertLess(unseen[1.0], unseen[0.0] - 1)
    self.assertLess(gap[1.0], gap[0.0])

  @parameterized.parameters(('Memoryless', False), ('DeepLSTM', True))
  @pytest.mark.medium
  def test_with_memory_it_learns_what_must_be_remembered(
      self, core, learns):
    batch = _recall()
    network = _network(core)
    agent = cql.CQLAgent(network, alpha=0.1, target_update_period=20)
    _train(agent, batch, 150)
    answer = _play(_policy(network), batch.observation.numpy(),
                   batch.reward.numpy())[:, 1]
    right = np.mean(answer == (batch.observation[:, 0, 0] > 0))
    self.assertEqual(right == 1, learns)

  @pytest.mark.medium
  def test_rewards_reach_the_steps_before_them_by_the_target_network(self):
    # After the action 0 any other earns 1, after the action 1 it earns 3.
    action = [[first, second] for first in range(2) for second in range(3)]
    first = np.array(action)[:, 0]
    batch = _episodes(np.stack([0 * first, 2 * first - 1], axis=1), action,
                      np.stack([0 * first, 1 + 2 * first], axis=1))
    agent = cql.CQLAgent(
        _network(), alpha=0.0, discount=0.5, target_update_period=100)
    _train(agent, batch, 300)
    q_values = _q_values(agent.network, tf.zeros([1, 1]))[0, :2]
    self.assertAllClose(q_values, [0.5, 1.5], atol=0.05)

  def test_the_target_network_is_copied_once_per_period(self):
    agent = cql.CQLAgent(_network(), target_update_period=3)

    def values(network):
      return np.concatenate([np.ravel(x) for x in network.variables])

    initial = values(agent.target)
    self.assertAllEqual(initial, values(agent.network))
    learner = learner_lib.Learner(
        agent, tf.keras.optimizers.legacy.Adam(1e-2), tf.distribute.get_strategy())
    batch = _recall()
    for step in range(1, 8):
      learner.step(batch)
      if step == 6:
        self.assertAllEqual(values(agent.target), values(agent.network))
      elif step < 3:
        self.assertAllEqual(values(agent.target), initial)
      elif step == 7:
        self.assertNotAllClose(values(agent.target), values(agent.network))

  def test_a_checkpoint_has_the_target_network_and_the_step(self):
    agent = cql.CQLAgent(_network(), target_update_period=4)
    _train(agent, _recall(), 3)
    path = tf.train.Checkpoint(agent=agent).save(
        str(pathlib.Path(self.create_tempdir().full_path) / 'x'))
    other = cql.CQLAgent(_network(), target_update_period=4)
    tf.train.Checkpoint(agent=other).restore(path).assert_consumed()
    for x, y in zip(other.target.variables, agent.target.variables):
      self.assertAllEqual(x, y)
    other.after_step({})
    for x, y in zip(other.target.variables, agent.network.variables):
      self.assertAllEqual(x, y)

  def test_steps_that_are_not_valid_do_not_count(self):
    agent = cql.CQLAgent(_network('DeepLSTM'))
    batch = _recall()
    valid = np.ones([64, 2], bool)
    valid[:32, 1] = False
    batch = batch._replace(valid=tf.constant(valid))
    other = batch._replace(
        observation=tf.where(valid[..., np.newaxis], batch.observation, 7.0),
        action=tf.where(valid, batch.action, 2),
        reward=tf.where(valid, batch.reward, 9.0))
    self.assertAllEqual(agent.loss(batch)[0], agent.loss(other)[0])


class CQLPolicyTest(tf.test.TestCase):

  def test_it_takes_the_networks_best_actions(self):
    network = _network('DeepLSTM', previous_action_and_reward=True)
    random = np.random.RandomState(0)
    for variable in network.trainable_variables:
      variable.assign(random.randn(*variable.shape))
    observations, rewards = random.randn(2, 16, 5, 1), random.randn(16, 5)
    observations = observations[0].astype(np.float32)
    rewards = rewards.astype(np.float32)
    actions = _play(_policy(network), observations, rewards, restart=3)
    is_first = np.zeros([16, 5], bool)
    is_first[:, [0, 3]] = True
    previous_actions = np.pad(actions[:, :-1], [[0, 0], [1, 0]])
    q_values, _ = network(actor_critic.NetworkInputs(
        tf.constant(observations), tf.constant(previous_actions), tf.constant(rewards),
        tf.constant(is_first)), network.initial_state(16))
    self.assertAllEqual(actions, np.argmax(q_values, axis=-1))
    self.assertGreater(len(np.unique(actions)), 1)

  def test_its_export_takes_the_same_actions(self):
    policy = _policy(_network('DeepLSTM', previous_action_and_reward=True))
    path = pathlib.Path(self.create_tempdir().full_path) / 'policy'
    export.save_policy(policy, path)
    random = np.random.RandomState(0)
    observations = random.randn(8, 4, 1).astype(np.float32)
    rewards = random.randn(8, 4).astype(np.float32)
    self.assertAllEqual(
        _play(tf.saved_model.load(str(path)), observations, rewards),
        _play(policy, observations, rewards))

  def test_refuses_actions_that_are_not_discrete(self):
    with self.assertRaisesRegex(config.ConfigError, 'expected one DiscreteArray'):
      network_lib.CQLNetwork(testing.CONTINUOUS, torsos.VectorTorso())

  def test_refuses_a_core_with_dropout(self):
    network = network_lib.CQLNetwork(
        testing.DISCRETE, torsos.VectorTorso(), cores.SegmentTransformer(dropout=0.1))
    with self.assertRaisesRegex(config.ConfigError, 'core = SegmentTransformer with dropout'):
      cql.CQLAgent(network)


if __name__ == '__main__':
  absltest.main()
