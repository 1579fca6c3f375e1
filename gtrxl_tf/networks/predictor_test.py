"""Compares the predictor's losses with their formulas, and tests them in agents."""

import pathlib

from absl.testing import absltest
from absl.testing import parameterized
from dm_env import specs
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf import testing
from gtrxl_tf.agents import policy as policy_lib
from gtrxl_tf.agents import ppo
from gtrxl_tf.agents import vmpo
from gtrxl_tf.cores import merlin
from gtrxl_tf.networks import action_space
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import predictor as predictor_lib
from gtrxl_tf.serving import export
from gtrxl_tf.training import learner as learner_lib
from tools import learner_hlo

_B, _T, _Z, _C = 2, 3, 4, 6
_SPEC = {
    'colour': specs.BoundedArray((2,), np.int32, [1, 0], [3, 1]),
    'image': specs.BoundedArray((8, 8, 3), np.uint8, 0, 255),
    'place': specs.BoundedArray((2,), np.float32, -4, 4),
}
_LOG_2PI = np.log(2 * np.pi)


def _dense(layer, x):
  return x @ layer.kernel.numpy() + layer.bias.numpy()


def _categorical(logits, index):
  return np.log(np.exp(logits).sum()) - logits[index]


def _gaussian(mean, x):
  return sum((np.subtract(mean, x) ** 2 + _LOG_2PI) / 2)


class ErrorsTest(tf.test.TestCase):

  def test_bytes_with_narrow_bounds_are_categorical(self):
    cells = specs.BoundedArray((2, 1, 3), np.uint8, 0, 10)
    self.assertEqual(predictor_lib._Observations(cells, 1.0).size, 6 * 11)

  def test_equal_the_formulas(self):
    random = np.random.RandomState(0)
    space = action_space.ActionSpace(testing.HYBRID)
    predictor = predictor_lib.Predictor(hidden_units=5, image_cost=7.0)
    core = cores.MERLIN(2, _Z, num_reads=1, num_layers=1, hidden_dim=_C)
    predictor.create_variables(core, _SPEC, space, num_values=2)
    for variable in predictor.variables:
      variable.assign_add(0.3 * random.randn(*variable.shape))

    def normal(*shape):
      return random.randn(_B, _T, *shape).astype(np.float32)
    # A deviation of nearly 0: the sample is the mean.
    beliefs = merlin.Beliefs(
        normal(core.context_dim), normal(_Z), np.full([_B, _T, _Z], -20., np.float32))
    observation = {
        'colour': random.randint([1, 0], [4, 2], [_B, _T, 2]).astype(np.int32),
        'image': random.randint(0, 256, [_B, _T, 8, 8, 3]).astype(np.uint8),
        'place': normal(2)}
    action = {'grip': random.randint(0, 2, [_B, _T]).astype(np.int32),
              'move': normal(2)}
    reward = normal()
    is_first = np.zeros([_B, _T], bool)
    is_first[0, 0] = is_first[1, 2] = True
    action['grip'][is_first], reward[is_first] = 99, np.nan
    errors = predictor(
        *tf.nest.map_structure(tf.constant, (beliefs, observation, action, reward,
                                             is_first)))
    for i in np.ndindex(_B, _T):
      first = is_first[i]
      grip = 0 if first else action['grip'][i]
      move = [0, 0] if first else action['move'][i]
      # The spec's bounds are [-1, 1] in the units of samples.
      hidden = np.concatenate([
          beliefs.context[i], np.eye(2)[grip], np.clip(move, -1, 1)])
      for layer in predictor._prior[:2]:
        hidden = np.tanh(_dense(layer, hidden))
      mean, log_scale = np.split(_dense(predictor._prior[2], hidden), 2)
      scale = np.exp(beliefs.log_scale[i])
      self.assertAllClose(errors.kl[i], sum(
          log_scale - beliefs.log_scale[i] - 0.5 + (
              scale ** 2 + (beliefs.mean[i] - mean) ** 2) / (2 * np.exp(2 * log_scale))
      ), rtol=1e-4)
      decoder = predictor._decoder
      x = _dense(decoder.output_layer,
                 np.maximum(_dense(decoder._hidden, beliefs.mean[i]), 0))
      (red, green, place, pixels, grips, moves, rewards, values) = np.split(
          x, np.cumsum([3, 2, 2, 192, 2, 2, 1]))
      labels = observation['image'][i].reshape(-1) / 255
      self.assertAllClose(
          errors.observation[i],
          _categorical(red, observation['colour'][i][0] - 1)
          + _categorical(green, observation['colour'][i][1])
          + _gaussian(place, observation['place'][i])
          + 7 * np.mean(np.log(1 + np.exp(pixels)) - labels * pixels), rtol=1e-4)
      self.assertAllClose(errors.action[i], 0 if first else (
          _categorical(grips, grip) + _gaussian(moves, move)), rtol=1e-4)
      self.assertAllClose(
          errors.reward[i], 0 if first else (rewards[0] - reward[i]) ** 2 / 2,
          rtol=1e-4)
      self.assertAllClose(errors.value[i], values, rtol=1e-4)


def _network(**costs):
  network = actor_critic.ActorCritic(
      testing.DISCRETE, core=cores.MERLIN(3, _Z, num_layers=1, hidden_dim=8),
      head_units=8, predictor=predictor_lib.Predictor(hidden_units=8, **costs))
  network.create_variables(specs.Array((4,), np.float32))
  return network


def _batch(network, seed=0):
  batch = testing.random_unrolls(seed)
  step_type = batch.step_type[:, 2:]  # Records of one step instead of three.
  records = tf.nest.map_structure(
      lambda x: tf.expand_dims(x, 1), network.initial_state(4))
  return batch._replace(step_type=step_type, record=records)


class AgentTest(tf.test.TestCase, parameterized.TestCase):

  def test_acting_equals_learning(self):
    network = _network()
    batch = _batch(network)
    inputs = actor_critic.NetworkInputs(
        batch.observation, batch.action, batch.reward, batch.is_first()[:, 1:])
    unrolled, _ = network(inputs, network.initial_state(4))
    cache = network.initial_cache(4)
    for t in range(6):
      stepped, cache = network.step(
          tf.nest.map_structure(lambda x, t=t: x[:, t], inputs), cache)
      self.assertAllClose(
          stepped.policy.logits, unrolled.policy.logits[:, t], atol=1e-5)
      self.assertEqual(stepped.predictions, ())

  @pytest.mark.medium
  def test_equal_weights_and_batches_have_equal_losses(self):
    # So that a run that resumes from a checkpoint goes on as if it had not stopped.
    network = _network()
    agent, batch = ppo.PPOAgent(network, _network()), _batch(network)
    self.assertEqual(*(float(agent.loss(batch)[0]) for _ in range(2)))

  @parameterized.parameters(vmpo.VMPOAgent, ppo.PPOAgent)
  @pytest.mark.medium
  def test_every_cost_counts_and_every_variable_has_a_gradient(self, make):
    agent = make(_network(), _network())
    batch = _batch(agent.online)
    with tf.GradientTape() as tape:
      loss, metrics = agent.loss(batch)
    for variable, gradient in zip(agent.learned_variables,
                                  tape.gradient(loss, agent.learned_variables)):
      self.assertIsNotNone(gradient, variable.name)
      self.assertTrue(np.isfinite(gradient).all(), variable.name)
    without = make(*(_network(
        kl_cost=0., observation_cost=0., action_cost=0., reward_cost=0., value_cost=0.)
                     for _ in range(2)))
    for one, other in zip(without.online.variables, agent.online.variables):
      one.assign(other)
    expected, _ = without.loss(batch)
    expected += sum(cost * metrics[f'predictor_{name}_loss']
                    for name, cost in agent.online.predictor.costs.items())
    self.assertAllClose(loss, expected, rtol=1e-5)

  @pytest.mark.medium
  def test_without_costs_nothing_trains_the_predictor(self):
    agent = ppo.PPOAgent(*(_network(
        kl_cost=0., observation_cost=0., action_cost=0., reward_cost=0., value_cost=0.)
                           for _ in range(2)))
    core = agent.online.core
    with tf.GradientTape() as tape:
      loss, _ = agent.loss(_batch(agent.online))
    policy, predictor = tape.gradient(loss, (
        core.policy.trainable_variables,
        [*core.predictor.trainable_variables, *core.evidence.trainable_variables]))
    self.assertTrue(all(tf.reduce_any(x != 0) for x in policy))
    self.assertFalse(any(tf.reduce_any(x != 0) for x in predictor))

  @pytest.mark.medium
  def test_learning_lowers_the_predictors_losses(self):
    agent = ppo.PPOAgent(_network(), _network())
    learner = learner_lib.Learner(
        agent, tf.keras.optimizers.legacy.Adam(0.01), tf.distribute.get_strategy())
    batch = _batch(agent.online)
    seen = [learner.step(batch).numbers() for _ in range(60)]
    for name in ('observation', 'action', 'reward'):  # The targets of values move.
      first, last = (
          np.mean([x[f'predictor_{name}_loss'] for x in part])
          for part in (seen[:5], seen[-5:]))
      self.assertLess(last, 0.95 * first, name)

  @pytest.mark.long
  def test_the_learner_step_is_one_for_xla(self):
    agent = vmpo.VMPOAgent(_network(), _network())
    learner = learner_lib.Learner(
        agent, tf.keras.optimizers.legacy.Adam(0.01), tf.distribute.get_strategy())
    batch = _batch(agent.online)._replace(target_step=(), unroll_id=())
    self.assertEmpty(learner_hlo.forbidden(learner_hlo.hlo(learner, batch)))

  @pytest.mark.long
  def test_an_exported_policy_acts_as_the_network(self):
    network = _network()
    batch = _batch(network)
    policy = policy_lib.ActorCriticPolicy(
        network, specs.Array((4,), np.float32), testing.DISCRETE, greedy=True)
    folder = pathlib.Path(self.create_tempdir().full_path)
    export.save_policy(policy, folder)
    time_step = testing.restart(batch.observation[:, 0], 4)
    logits = [
        x.action(time_step, x.get_initial_state(4)).info.policy.logits
        for x in (policy, tf.saved_model.load(str(folder)))]
    self.assertAllClose(*logits)


if __name__ == '__main__':
  absltest.main()
