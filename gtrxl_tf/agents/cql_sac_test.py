"""Tests of sac.py."""

import pathlib
import subprocess
import sys
import textwrap

from absl.testing import absltest
from dm_env import specs
import gin
import numpy as np
import pytest
import tensorflow as tf
import tf_agents  # noqa: F401 (the classes need it)

from gtrxl_tf import devices_testing
from gtrxl_tf import testing
from gtrxl_tf.agents import cql
from gtrxl_tf.agents import cql_sac
from gtrxl_tf.networks import decision
from gtrxl_tf.serving import export
from gtrxl_tf.settings import config
from gtrxl_tf.training import devices
from gtrxl_tf.training import learner as learner_lib

devices_testing.split_cpu(2)

_OBSERVATION_SPEC = {
    'x': specs.Array((1,), np.float32), 'y': specs.Array((), np.int32)}
_ACTION_SPEC = testing.CONTINUOUS  # [-1, 1] and [0, 10].
_B, _T = 32, 3


def _agent(**settings):
  tf.keras.utils.set_random_seed(0)
  network = cql_sac.CQLSACActor(_ACTION_SPEC, (32,))
  network.create_variables(_OBSERVATION_SPEC)
  return cql_sac.CQLSACAgent(network, **{**dict(
      critic_units=(32, 32), num_samples=4, target_update_rate=0.05), **settings})


def _observation(random, *shape):
  return {'x': random.uniform(-1, 1, (*shape, 1)).astype(np.float32),
          'y': random.randint(2, size=shape).astype(np.int32)}


def _best(observation):
  """The best sample, in [-1, 1]."""
  return np.concatenate(
      [0.5 * observation['x'], observation['y'][..., np.newaxis] - 0.5], axis=-1)


def _batch(seed):
  """Episodes of one step with random actions; one row is padding."""
  random = np.random.RandomState(seed)
  observation = _observation(random, _B, _T)
  action = random.uniform(-1, 1, (_B, _T, 2)).astype(np.float32)
  reward = np.float32(2 - np.sum((action - _best(observation)) ** 2, axis=-1))
  valid = np.ones([_B, _T], bool)
  valid[0, 1:] = False
  return tf.nest.map_structure(tf.constant, decision.Segments(
      return_to_go=reward, observation=observation, action=action,
      reward=np.where(valid, reward, np.float32(np.nan)),
      discount=np.zeros_like(reward),
      is_first=np.ones([_B, _T], bool), valid=valid))


def _act(policy, observation):
  """The policy's action in [-1, 1] units."""
  num = len(observation['y'])
  time_step = testing.restart(tf.nest.map_structure(tf.constant, observation), num)
  action = policy.action(time_step, policy.get_initial_state(num)).action
  return (action - [0, 5]) / [1, 5]


def _values(variables):
  return np.concatenate([np.ravel(x) for x in variables])


class CQLSACAgentTest(tf.test.TestCase):

  @pytest.mark.medium
  def test_tf_agents_can_be_imported_after_settings_were_read(self):
    subprocess.run([sys.executable, '-c', textwrap.dedent("""
        import gin
        from gtrxl_tf import testing
        from gtrxl_tf.agents import cql_sac
        gin.finalize()
        network = cql_sac.CQLSACActor(testing.CONTINUOUS, (8,))
        network.create_variables(testing.CONTINUOUS)
        cql_sac.CQLSACAgent(network, critic_units=(8,))
        assert gin.config_is_locked()
        """)], check=True)

  @pytest.mark.long
  def test_it_learns_a_quadratic_task(self):
    agent = _agent(alpha=0.1)
    learner = learner_lib.Learner(
        agent, tf.keras.optimizers.legacy.Adam(5e-3), tf.distribute.get_strategy())
    for seed in range(200):
      metrics = learner.step(_batch(seed))
    self.assertEqual(set(metrics), {
        'loss', 'td_loss', 'conservative_loss', 'actor_loss', 'entropy', 'temperature',
        'gradient_norm'})
    self.assertLess(metrics['td_loss'], 0.05)
    observation = _observation(np.random.RandomState(0), 50)
    policy = cql.CQLPolicy(agent.network, _OBSERVATION_SPEC, _ACTION_SPEC)
    actions = _act(policy, observation)
    self.assertAllClose(actions, _best(observation), atol=0.25)
    path = pathlib.Path(self.create_tempdir().full_path) / 'policy'
    export.save_policy(policy, path)
    self.assertAllClose(_act(tf.saved_model.load(str(path)), observation), actions)

  def test_each_loss_has_a_gradient_to_its_own_variables(self):
    x, y = tf.Variable(3.0), tf.Variable(5.0)
    with tf.GradientTape() as tape:
      # pylint: disable-next=protected-access
      loss, other = cql_sac._for([x], lambda: (x * y, y))
      total = 2 * loss + other
    self.assertAllEqual([loss, other], [15, 5])
    self.assertAllEqual(tape.gradient(total, [x, y], unconnected_gradients='zero'),
                        [10, 0])

  def test_the_conservative_term_is_the_log_of_an_integral_over_actions(self):
    agent, batch = _agent(num_samples=500), _batch(0)
    _, metrics = agent.loss(batch)
    # Equation 4 of the paper at 20 x 20 actions, each for an area of 0.1 x 0.1.
    observation = np.concatenate([
        batch.observation['x'], batch.observation['y'][..., np.newaxis]], -1)[batch.valid]
    side = np.arange(-0.95, 1, 0.1)
    grid = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
    terms = []
    for critic in agent._critics:  # pylint: disable=protected-access
      values = critic((np.repeat(observation, 400, axis=0),
                       np.float32(np.tile(grid, [len(observation), 1]))))[0].numpy()
      integral = 0.01 * np.exp(values.reshape(-1, 400)).sum(axis=1)
      taken = critic((observation, batch.action[batch.valid]))[0]
      terms.append(np.mean(np.log(integral) - taken))
    self.assertAllClose(metrics['conservative_loss'], np.mean(terms), atol=0.03)

  @pytest.mark.medium
  def test_the_weight_of_the_conservative_term_moves_to_a_threshold(self):
    for threshold, sign in ((0.001, -1), (1000.0, 1), (2.5, 1)):
      agent = _agent(lagrange_threshold=threshold)
      *_, temperature, alpha = agent.learned_variables
      self.assertAllClose([tf.exp(temperature), tf.exp(alpha)], [1, 5])
      with tf.GradientTape() as tape:
        loss, _ = agent.loss(_batch(0))
      # A descent step raises alpha if the term exceeds the threshold.
      self.assertEqual(np.sign(tape.gradient(loss, alpha)), sign)

  def test_target_critics_follow_and_are_in_checkpoints(self):
    agent = _agent()
    # pylint: disable=protected-access
    critic, target = (x.variables for x in (
        agent._critics[1], agent._sac._target_critic_network_2))
    before = _values(critic)
    self.assertAllEqual(_values(target), before)
    for variable in critic:
      variable.assign_add(tf.ones_like(variable))
    agent.after_step({})
    self.assertAllClose(_values(target), before + 0.05)
    path = tf.train.Checkpoint(agent=agent).save(
        str(pathlib.Path(self.create_tempdir().full_path) / 'x'))
    other = _agent()
    tf.train.Checkpoint(agent=other).restore(path).assert_consumed()
    self.assertAllEqual(_values(other.variables), _values(agent.variables))

  @pytest.mark.long
  def test_every_step_has_the_same_weight_on_any_replica(self):
    batch = _batch(0)
    batch = batch._replace(
        valid=batch.valid & (tf.range(_B)[:, tf.newaxis] + tf.range(_T) < _B // 2 + _T))
    found = []
    for strategy in tf.distribute.get_strategy(), devices_testing.mirrored(self, 2):
      with strategy.scope():
        agent = _agent()
        optimizer = tf.keras.optimizers.legacy.SGD(0.1)
      metrics = learner_lib.Learner(agent, optimizer, strategy).step(
          devices.share_out(batch, strategy))
      # The other metrics depend on samples. No step follows these.
      found.append({name: metrics[name] for name in ('td_loss', 'temperature')})
    self.assertAllClose(*found, atol=1e-5)

  def test_a_replica_without_a_valid_step_has_no_share(self):
    agent, batch = _agent(), _batch(0)
    batch = batch._replace(valid=tf.zeros_like(batch.valid))
    with tf.GradientTape() as tape:
      loss, metrics = agent.loss(batch)
    self.assertAllEqual(tf.nest.flatten(metrics), np.zeros(len(metrics)))
    for gradient in tape.gradient(loss, agent.learned_variables):
      self.assertAllEqual(gradient, tf.zeros_like(gradient))

  def test_refuses_actions_without_bounds(self):
    for spec in (specs.Array((2,), np.float32), testing.DISCRETE, testing.HYBRID):
      with self.assertRaisesRegex(config.ConfigError, 'expected one BoundedArray'):
        cql_sac.CQLSACActor(spec)

  def test_refuses_bfloat16(self):
    with devices.compute_dtype('bfloat16'):
      with self.assertRaisesRegex(config.ConfigError, "= 'bfloat16'"):
        cql_sac.CQLSACActor(_ACTION_SPEC)


  def test_actor_and_critics_see_normalized_observations(self):
    self.addCleanup(gin.clear_config)
    gin.parse_config('CQLSACActor.normalize_observations = True')
    agent = _agent()
    observation = _observation(np.random.RandomState(0), 5)
    agent.network.observation_statistics.assign(
        {'x': np.array([0.5]), 'y': np.array(1)}, {'x': np.array([2.0]), 'y': np.array(1)})
    self.assertAllClose(
        agent.network.observe(tf.nest.map_structure(tf.constant, observation), 1),
        np.stack([(observation['x'][:, 0] - 0.5) / 2, observation['y'] - 1.0], axis=1))
    loss, _ = agent.loss(_batch(0))
    self.assertTrue(np.isfinite(loss))


if __name__ == '__main__':
  absltest.main()
