"""Tests of TAP's agent, network and policy."""

import pathlib

from absl.testing import parameterized
from dm_env import specs
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import testing
from gtrxl_tf.agents import tap
from gtrxl_tf.networks import decision
from gtrxl_tf.networks import tap as network_lib
from gtrxl_tf.serving import export
from gtrxl_tf.settings import config
from gtrxl_tf.training import learner as learner_lib

_OBSERVATION_SPEC = {
    'x': specs.Array((2,), np.float32), 'y': specs.Array((), np.int32)}
_ACTION_SPEC = testing.CONTINUOUS  # [-1, 1] and [0, 10].
_B, _T = 8, 6


def _network(**settings):
  tf.keras.utils.set_random_seed(0)
  network = network_lib.TAPNetwork(_ACTION_SPEC, **{**dict(
      num_steps=_T, steps_per_code=3, num_codes=8, code_dim=8, num_layers=1,
      model_dim=16, num_heads=2, dropout=0.0), **settings})
  network.create_variables(_OBSERVATION_SPEC)
  return network


def _batch(seed, batch_size=_B):
  """Steps whose reward is the first action's; the return adds the rest's."""
  random = np.random.RandomState(seed)
  valid = np.ones([batch_size, _T], bool)
  valid[0, 4:] = False
  action = random.uniform(-1, 1, (batch_size, 1, 2)).astype(np.float32)
  action = np.tile(action, [1, _T, 1])
  reward = np.where(valid, action[..., 0], np.float32(0))
  return tf.nest.map_structure(tf.constant, decision.Segments(
      return_to_go=np.cumsum(reward[:, ::-1], axis=1)[:, ::-1],
      observation={'x': random.randn(batch_size, _T, 2).astype(np.float32),
                   'y': random.randint(3, size=[batch_size, _T]).astype(np.int32)},
      action=action, reward=reward, discount=np.ones_like(reward),
      is_first=np.zeros_like(valid), valid=valid))


def _policy(network, **settings):
  return tap.TAPPolicy(network, _OBSERVATION_SPEC, _ACTION_SPEC, **{
      **dict(horizon=6, beam_width=4, expansions=8, return_discount=0.9), **settings})


def _act(policy, batch):
  observation = tf.nest.map_structure(lambda x: x[:, 0], batch.observation)
  num = len(batch.valid)
  return policy.action(
      testing.restart(observation, num), policy.get_initial_state(num)).action


class TAPAgentTest(tf.test.TestCase, parameterized.TestCase):

  @pytest.mark.long
  def test_it_learns_to_take_the_best_recorded_actions(self):
    network = _network(num_codes=16, model_dim=32)
    agent = tap.TAPAgent(network)
    learner = learner_lib.Learner(
        agent, tf.keras.optimizers.legacy.Adam(3e-3), tf.distribute.get_strategy())
    first = learner.step(_batch(0, 64)).numbers()
    for seed in range(1, 400):
      metrics = learner.step(_batch(seed, 64))
    last = metrics.numbers()
    self.assertEqual(set(last), {
        'loss', 'reconstruction', 'ended', 'commitment', 'prior', 'codes_used',
        'gradient_norm'})
    self.assertLess(last['reconstruction'], 0.6 * first['reconstruction'])
    self.assertGreater(last['codes_used'], 3)
    actions = _act(_policy(network, threshold=0.01), _batch(1000, 32))
    self.assertGreater(np.mean(actions[:, 0]), 0.5)  # The data's mean is 0.

  @pytest.mark.medium
  def test_a_step_moves_codes_and_the_weights_but_no_statistics(self):
    network = _network()
    agent = tap.TAPAgent(network)
    before = [x.numpy() for x in network.variables]
    learner_lib.Learner(
        agent, tf.keras.optimizers.legacy.Adam(1e-2), tf.distribute.get_strategy()
    ).step(_batch(0))
    same = {x.name.split(':')[0].split('/')[-1] for x, y in zip(network.variables, before)
            if np.array_equal(x, y)}
    self.assertContainsSubset(same, {'mean', 'deviation'})
    self.assertAllClose(
        network.codebook, network.code_sums / network.code_counts[:, np.newaxis])

  def test_padded_steps_have_no_influence(self):
    agent = tap.TAPAgent(_network())
    batch = _batch(0)
    loss, _ = agent.loss(batch)
    reward = tf.where(batch.valid, batch.reward, 7.)
    other, _ = agent.loss(batch._replace(reward=reward, return_to_go=tf.where(
        batch.valid, batch.return_to_go, -3.)))
    self.assertAllClose(loss, other)

  def test_a_batch_of_another_length_is_refused(self):
    with self.assertRaisesRegex(config.ConfigError, 'rows of 6 steps'):
      tap.TAPAgent(_network(num_steps=9)).loss(_batch(0))


class TAPNetworkTest(tf.test.TestCase, parameterized.TestCase):

  def test_all_three_transformers_are_causal(self):
    network, batch = _network(), _batch(0)
    steps = network.steps(
        batch.observation, batch.action, batch.reward, batch.return_to_go)
    state = network.states(tf.nest.map_structure(lambda x: x[:, 0], batch.observation), 1)
    features = network.encode(steps, batch.valid)
    changed = network.encode(
        tf.concat([steps[:, :3], steps[:, 3:] + 1], axis=1), batch.valid)
    self.assertAllClose(features[:, 0], changed[:, 0])
    self.assertNotAllClose(features[:, 1], changed[:, 1])
    whole, ended = network.decode(features, state)
    first, first_ended = network.decode(features[:, :1], state)
    self.assertAllClose(whole[:, :3], first, atol=1e-5)
    self.assertAllClose(ended[:, :3], first_ended, atol=1e-5)
    indices, _ = network.quantize(features)
    logits = network.prior(indices[:, :1], state)
    self.assertAllClose(logits[:, :1], network.prior(indices[:, :0], state), atol=1e-5)
    self.assertEqual(logits.shape, (_B, 2, 8))

  def test_steps_are_normalized_by_the_statistics_of_the_dataset(self):
    network, batch = _network(), _batch(0)
    network.assign_statistics(
        ({'x': np.ones(2), 'y': 2.0}, {'x': np.full(2, 3.), 'y': 0.0}),
        (np.array([0.5, 6.0]), np.array([0.5, 10.0])), (1.0, 2.0), (3.0, 4.0))
    steps = network.steps(
        batch.observation, batch.action, batch.reward, batch.return_to_go).numpy()
    x, y = batch.observation['x'], batch.observation['y']
    self.assertAllClose(steps[..., :2], (x - 1) / 3)
    self.assertAllClose(steps[..., 2], y - 2)  # Constant: not scaled.
    # Samples are in [-1, 1]: 6 in [0, 10] is 0.2, and 10 is 2 units.
    self.assertAllClose(steps[..., 3:5], (batch.action - [0.5, 0.2]) / [0.5, 2])
    self.assertAllClose(steps[..., 5], (batch.reward - 1) / 2)
    action, reward, returns = network.denormalized(tf.constant(steps))
    self.assertAllClose(action, batch.action, atol=1e-5)
    self.assertAllClose(reward, batch.reward, atol=1e-5)
    self.assertAllClose(returns, batch.return_to_go, atol=1e-5)

  @parameterized.parameters(
      (dict(num_steps=7), 'TAPNetwork.num_steps = 7: expected a multiple of .* = 3'),
      (dict(model_dim=9), 'TAPNetwork.model_dim = 9: expected a multiple of .* = 2'))
  def test_refuses_sizes_that_do_not_divide_each_other(self, settings, message):
    with self.assertRaisesRegex(config.ConfigError, message):
      _network(**settings)

  def test_refuses_discrete_actions(self):
    with self.assertRaisesRegex(config.ConfigError, 'TAPNetwork.action_spec = Discrete'):
      network_lib.TAPNetwork(testing.DISCRETE)


class TAPPolicyTest(tf.test.TestCase, parameterized.TestCase):

  def test_the_value_of_a_plan(self):
    random = np.random.RandomState(0)
    rewards, returns = random.randn(2, 3, 5).astype(np.float32)
    expected = [sum(0.9 ** t * row[t] for t in range(4)) + 0.9 ** 4 * last[4]
                for row, last in zip(rewards, returns)]
    self.assertAllClose(tap.plan_values(rewards, returns, 0.9), expected)

  @pytest.mark.long
  def test_the_action_is_the_first_of_the_best_plan(self):
    network, batch = _network(num_codes=3), _batch(0)
    # With many draws the best of nine plans is found, whatever the seed.
    policy = _policy(network, beam_width=200, expansions=1, penalty=0.0)
    actions = _act(policy, batch)
    state = network.states(tf.nest.map_structure(lambda x: x[:, 0], batch.observation), 1)
    best = []
    for row in state:
      plans = []
      for plan in np.ndindex(3, 3):
        steps, _ = network.decode(network.codes([plan]), row[tf.newaxis])
        action, rewards, returns = network.denormalized(steps)
        plans.append((float(tap.plan_values(rewards, returns, 0.9)[0]), action[0, 0]))
      best.append(max(plans, key=lambda x: x[0])[1])
    expected = network.action_space.to_environment(tf.stack(best))
    self.assertAllClose(actions, expected, atol=1e-5)
    path = pathlib.Path(self.create_tempdir().full_path) / 'policy'
    export.save_policy(policy, path)
    self.assertAllClose(_act(tf.saved_model.load(str(path)), batch), actions, atol=1e-5)
    compiled = tf.function(
        lambda step, state: policy.action(step, state, tf.constant([1, 2])).action,
        jit_compile=True, autograph=False)
    observation = tf.nest.map_structure(lambda x: x[:, 0], batch.observation)
    self.assertAllClose(compiled(
        testing.restart(observation, _B), policy.get_initial_state(_B)), actions,
        atol=1e-5)

  @parameterized.parameters(
      (dict(horizon=4), 'TAPPolicy.horizon = 4: expected a multiple of .* 3, up to .* 6'),
      (dict(horizon=9), 'TAPPolicy.horizon = 9: expected a multiple of .* 3, up to .* 6'),
      (dict(return_scale=2.0), 'return_scale = 2.0 with TAPPolicy: expected 1'))
  def test_refuses_settings(self, settings, message):
    with self.assertRaisesRegex(config.ConfigError, message):
      _policy(_network(), **settings)


if __name__ == '__main__':
  tf.test.main()
