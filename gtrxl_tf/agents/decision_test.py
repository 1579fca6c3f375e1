"""Tests of agent.py and policy.py."""

from absl.testing import absltest
from absl.testing import parameterized
from dm_env import specs
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf import testing
from gtrxl_tf.agents import decision
from gtrxl_tf.networks import decision as network_lib
from gtrxl_tf.networks import torsos
from gtrxl_tf.settings import config
from gtrxl_tf.training import learner as learner_lib

_B, _T, _D = 4, 6, 8
_OBSERVATION_SPEC = specs.Array((4,), np.float32)


def _network(action_spec):
  network = network_lib.DecisionNetwork(
      action_spec, torsos.VectorTorso((_D,)),
      cores.TransformerXL(2, _D, 2, 4, memory_length=9))
  network.create_variables(_OBSERVATION_SPEC)
  return network


def _segments(action_spec):
  unrolls = testing.random_unrolls(0, _B, _T - 1, action_spec)
  random = np.random.RandomState(1)
  is_first = np.zeros([_B, _T], bool)
  is_first[:, 0] = True
  valid = np.arange(_T) < np.array([[6], [6], [4], [1]])
  return network_lib.Segments(
      return_to_go=tf.constant(random.rand(_B, _T), tf.float32),
      observation=unrolls.observation, action=unrolls.action,
      reward=tf.zeros([_B, _T]), discount=tf.ones([_B, _T]),
      is_first=tf.constant(is_first), valid=tf.constant(valid))


class DecisionAgentTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.parameters(
      (testing.DISCRETE, {'cross_entropy', 'accuracy'}),
      (testing.CONTINUOUS, {'squared_error'}),
      (testing.HYBRID, {'cross_entropy', 'squared_error'}))
  @pytest.mark.long
  def test_it_learns_the_recorded_actions(self, action_spec, names):
    agent = decision.DecisionAgent(_network(action_spec))
    learner = learner_lib.Learner(
        agent, tf.keras.optimizers.legacy.Adam(1e-2), tf.distribute.get_strategy())
    batch = _segments(action_spec)
    first = learner.step(batch)
    for _ in range(150):
      last = learner.step(batch)
    self.assertEqual(set(last), {'loss', 'gradient_norm', *names})
    self.assertLess(last['loss'], 0.1 * first['loss'])

  def test_steps_that_are_not_valid_do_not_count(self):
    agent = decision.DecisionAgent(_network(testing.DISCRETE))
    batch = _segments(testing.DISCRETE)
    other = batch._replace(
        action=tf.where(batch.valid, batch.action, 2 - batch.action),
        return_to_go=tf.where(batch.valid, batch.return_to_go, 77.))
    self.assertAllEqual(agent.loss(batch)[0], agent.loss(other)[0])


  @parameterized.parameters(
      (lambda: cores.RATE(1, _D, 2, 4, num_memory_tokens=2, segment_length=9), 2),
      (lambda: cores.DeepLSTM(1, _D), 1))
  def test_states_in_a_batch_are_carried(self, make_core, num_segments):
    network = network_lib.DecisionNetwork(
        testing.DISCRETE, torsos.VectorTorso((_D,)), make_core())
    network.create_variables(_OBSERVATION_SPEC)
    agent = decision.DecisionAgent(network)
    batch = _segments(testing.DISCRETE)
    loss, metrics = agent.loss(batch)
    self.assertNotIn('carried', metrics)
    same, metrics = agent.loss(batch._replace(state=network.initial_state(_B)))
    self.assertAllClose(same, loss)
    tf.nest.map_structure(
        lambda x, initial: self.assertEqual(
            x.shape, (_B, num_segments, *initial.shape[1:])),
        metrics['carried'], network.initial_state(_B))
    # The second half alone, from the state after the first.
    half = _T // 2
    if num_segments == 2:
      on = tf.nest.map_structure(lambda x: x[:, half:], batch)._replace(
          state=tf.nest.map_structure(lambda x: x[:, 0], metrics['carried']))
      self.assertAllClose(
          tf.nest.map_structure(lambda x: x[:, 0], agent.loss(on)[1]['carried']),
          tf.nest.map_structure(lambda x: x[:, 1], metrics['carried']))


class DecisionPolicyTest(tf.test.TestCase, parameterized.TestCase):

  def _play(self, policy, num_steps=7, new_episode=4):
    """The target returns of the policy's state, and its actions; rewards are 0.5."""
    state, returns, actions = policy.get_initial_state(2), [], []
    random = np.random.RandomState(0)
    for t in range(num_steps):
      observation = tf.constant(random.randn(2, 4), tf.float32)
      time_step = (testing.restart(observation, 2) if t in (0, new_episode)
                   else testing.transition(observation, tf.fill([2], 0.5)))
      done = policy.action(time_step, state, seed=tf.constant([0, t]))
      state = done.state
      returns.append(float(state.return_to_go[0]))
      actions.append(done.action)
    return returns, actions

  @pytest.mark.medium
  def test_rewards_are_subtracted_from_the_return(self):
    policy = decision.DecisionPolicy(
        _network(testing.DISCRETE), _OBSERVATION_SPEC, testing.DISCRETE,
        target_return=10.0, return_scale=5.0)
    returns, _ = self._play(policy)
    self.assertAllClose(returns, [2, 1.9, 1.8, 1.7, 2, 1.9, 1.8])

  @pytest.mark.medium
  def test_the_return_may_be_reset_at_every_segment(self):
    policy = decision.DecisionPolicy(
        _network(testing.DISCRETE), _OBSERVATION_SPEC, testing.DISCRETE,
        target_return=3.0, return_reset_period=3)
    returns, _ = self._play(policy)
    self.assertAllClose(returns, [3, 2.5, 2, 3, 3, 2.5, 2])

  def test_an_oracle_needs_a_window(self):
    network = network_lib.DecisionNetwork(
        testing.DISCRETE, torsos.VectorTorso((_D,)),
        cores.RATE(1, _D, 2, 4, num_memory_tokens=1, segment_length=9),
        oracle=lambda observation: observation[:, 0])
    with self.assertRaisesRegex(config.ConfigError, 'DecisionPolicy.window = None'):
      decision.DecisionPolicy(
          network, _OBSERVATION_SPEC, testing.DISCRETE, target_return=1.0)

  @parameterized.parameters((True, False), (True, True), (False, False))
  @pytest.mark.medium
  def test_it_acts_on_the_networks_policy(self, greedy, made_of_another):
    network = _network(testing.CONTINUOUS)
    policy = decision.DecisionPolicy(
        network, _OBSERVATION_SPEC, testing.CONTINUOUS, target_return=1.0,
        greedy=greedy and not made_of_another)
    if made_of_another:
      policy = policy.greedy()
    returns, actions = self._play(policy, num_steps=5, new_episode=None)
    random = np.random.RandomState(0)
    observation = tf.constant(
        np.stack([random.randn(2, 4) for _ in range(5)], axis=1), tf.float32)
    samples = network.action_space.from_environment(tf.stack(actions, axis=1))
    is_first = tf.constant([[True] + [False] * 4] * 2)
    unrolled, _ = network(network_lib.Segments(
        tf.constant([returns] * 2), observation, samples, is_first),
                          network.initial_state(2))
    # Sampled or not, as imitation trains no deviation.
    expected = network.action_space.to_environment(unrolled.mean)
    self.assertAllClose(tf.stack(actions, axis=1), expected, atol=1e-4)

  @pytest.mark.medium
  def test_it_samples_discrete_actions_unless_it_is_greedy(self):
    network = _network(testing.DISCRETE)
    taken = {}
    for greedy in True, False:
      policy = decision.DecisionPolicy(
          network, _OBSERVATION_SPEC, testing.DISCRETE, target_return=1.0, greedy=greedy)
      time_step = testing.restart(tf.ones([100, 4]), 100)
      taken[greedy] = policy.action(
          time_step, policy.get_initial_state(100), tf.constant([0, 1])).action
    self.assertLen(set(taken[True].numpy()), 1)
    self.assertGreater(len(set(taken[False].numpy())), 1)


if __name__ == '__main__':
  absltest.main()
