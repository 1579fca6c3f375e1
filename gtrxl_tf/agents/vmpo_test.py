"""Tests of agent.py."""

from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import testing
from gtrxl_tf.agents import vmpo as agent_lib
from gtrxl_tf.losses import distributions
from gtrxl_tf.losses import vmpo
from gtrxl_tf.networks import popart as popart_lib
from gtrxl_tf.settings import config
from gtrxl_tf.training import learner as learner_lib

_ACTION_SPECS = dict(
    discrete=(testing.DISCRETE,), continuous=(testing.CONTINUOUS,),
    hybrid=(testing.HYBRID,), integers=(testing.INTEGERS,))


def _agent(action_spec=testing.DISCRETE, num_tasks=1, popart=None, **settings):
  return agent_lib.VMPOAgent(
      *testing.shared_networks(action_spec, num_values=num_tasks, popart=popart),
      **settings)


def _weight_of_task(agent, batch, task):
  """The fraction of the E-step's weights on the steps of a task."""
  weights = []
  original = vmpo.vmpo_loss

  def spy(**kwargs):
    result = original(**kwargs)
    weights.append(result.weights)
    return result

  with mock.patch.object(vmpo, 'vmpo_loss', spy):
    agent.loss(batch)
  return tf.reduce_sum(tf.boolean_mask(weights[0], batch.task[:, 0] == task))


class VMPOAgentTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.named_parameters(
      ('discrete', testing.DISCRETE, ['categorical']),
      ('continuous', testing.CONTINUOUS, ['mean', 'scale']),
      ('hybrid', testing.HYBRID, ['categorical', 'mean', 'scale']))
  @pytest.mark.medium
  def test_a_trust_region_for_each_part_of_the_policy(self, action_spec, names):
    agent = _agent(action_spec, initial_alpha=2.0, initial_alpha_mean=3.0,
                   initial_alpha_scale=4.0, epsilon_alpha=0.1, epsilon_alpha_mean=0.2,
                   epsilon_alpha_scale=0.3)
    alphas = {'categorical': 2.0, 'mean': 3.0, 'scale': 4.0}
    epsilons = {'categorical': 0.1, 'mean': 0.2, 'scale': 0.3}
    self.assertEqual(agent.gauges(), {
        'temperature': 1.0, **{f'alpha_{name}': alphas[name] for name in names}})
    _, metrics, gradients = testing.loss_and_gradients(
        agent, testing.random_unrolls(0, action_spec=action_spec))
    for name, gradient in zip(names, gradients[-len(names):]):
      kl = metrics[f'kl_{name}']
      self.assertAllClose(gradient, epsilons[name] - kl)
      self.assertAllClose(metrics[f'kl_{name}_over_bound'], kl / epsilons[name])

  def test_the_entropy_bonus_is_part_of_the_loss(self):
    batch = testing.random_unrolls(0)
    loss, metrics = _agent().loss(batch)
    with_bonus, _ = _agent(entropy_cost=0.3).loss(batch)
    self.assertGreater(metrics['entropy'], 0.1)
    self.assertAllClose(with_bonus, loss - 0.3 * metrics['entropy'], atol=1e-6)

  def test_each_task_has_its_own_value_function(self):
    agent = _agent(num_tasks=2)
    batch = testing.random_unrolls(0, num_tasks=2)
    _, _, gradients = testing.loss_and_gradients(agent, batch)
    _, _, of_one_task = testing.loss_and_gradients(
        agent, batch._replace(task=tf.zeros_like(batch.task)))
    bias = [v is agent.online.value_head.output_layer.bias
            for v in agent.learned_variables].index(True)
    self.assertNotEqual(gradients[bias][0], 0)
    self.assertNotEqual(gradients[bias][1], 0)
    self.assertEqual(of_one_task[bias][1], 0)

  def test_advantages_of_tasks_are_ranked_on_one_scale(self):
    # Without normalization the steps of the task with huge rewards fill the top. At
    # this temperature all steps in the top have the same weight.
    batch = testing.random_unrolls(0, batch_size=8, num_tasks=2)
    huge = tf.where(batch.task == 1, 1e4, 1.0)
    batch = batch._replace(reward=batch.reward * huge)
    shares = {}
    for normalize in (False, True):
      agent = _agent(num_tasks=2, popart=popart_lib.PopArt,
                     normalize_advantages=normalize, top_fraction=0.25,
                     initial_temperature=1e6)
      agent.online.popart.variance.assign([1.0, 1e8])
      shares[normalize] = _weight_of_task(agent, batch, 1)
    self.assertGreater(shares[False], 0.99)
    self.assertBetween(shares[True], 0.2, 0.8)

  def test_normalized_advantages_need_popart(self):
    with self.assertRaisesRegex(config.ConfigError, 'normalize_advantages = True'):
      _agent(normalize_advantages=True)

  def test_the_target_network_is_not_learned(self):
    agent = _agent()
    learned = {v.ref() for v in agent.learned_variables}
    self.assertTrue(learned.issuperset(v.ref() for v in agent.online.variables))
    self.assertTrue(learned.isdisjoint(v.ref() for v in agent.target.variables))

  def test_an_ended_episode_has_no_influence_on_the_next(self):
    agent = _agent()
    batch = testing.random_unrolls(0, batch_size=2)
    # The second row's episode ends at step 0, so none of its memory is visible.
    record = tf.concat([batch.record[:1], 1e3 * batch.record[1:]], axis=0)
    one, other = (testing.outputs(agent.online, x).value[:, 1:]
                  for x in (batch, batch._replace(record=record)))
    self.assertAllEqual(one, other)

  def test_kl_is_to_the_policy_that_acted(self):
    agent = _agent()
    batch = testing.random_unrolls(0)
    outputs = testing.outputs(agent.online, batch)
    policy = tf.nest.map_structure(lambda x: x[:, :-1], outputs.policy)
    _, metrics = agent.loss(batch._replace(policy=policy))
    self.assertAllClose(metrics['kl_categorical'], 0, atol=1e-6)
    _, metrics = agent.loss(batch)
    expected = tf.boolean_mask(
        distributions.categorical_kl(batch.policy.logits, policy.logits),
        ~batch.is_last()[:, :-1])
    self.assertAllClose(metrics['kl_categorical'], tf.reduce_mean(expected))

  @parameterized.named_parameters(
      (name, *spec) for name, spec in _ACTION_SPECS.items())
  @pytest.mark.medium
  def test_kl_can_be_to_the_present_target_network(self, action_spec):
    # Two agents on the same networks.
    acting = _agent(action_spec)
    target = _agent(action_spec, kl_reference='target_network')
    for variable in target.online.trainable_variables:
      variable.assign(0.5 * variable)
    # The policy that acted is another one: the target network has moved on.
    batch = testing.random_unrolls(0, action_spec=action_spec)
    policies = [
        tf.nest.map_structure(lambda x: x[:, :-1], testing.outputs(network, batch).policy)
        for network in (target.target, target.online)]
    kls = target.online.action_space.kl(*policies)
    _, metrics, gradients = testing.loss_and_gradients(target, batch)
    _, other_metrics, other_gradients = testing.loss_and_gradients(acting, batch)
    for name, kl in kls.items():
      expected = tf.reduce_mean(tf.boolean_mask(kl, ~batch.is_last()[:, :-1]))
      self.assertGreater(expected, 1e-3)
      self.assertAllClose(metrics[f'kl_{name}'], expected, msg=name)
      self.assertNotAllClose(other_metrics[f'kl_{name}'], expected, msg=name)
    # In the loss the KL's two terms cancel, but not in the gradient of the policy.
    self.assertNotAllClose(gradients[0], other_gradients[0])
    self.assertEqual(metrics['policy_loss'], other_metrics['policy_loss'])
    # Where it has not moved on, both readings are equal.
    batch = batch._replace(policy=policies[0])
    for x, y in zip(tf.nest.flatten(testing.loss_and_gradients(target, batch)),
                    tf.nest.flatten(testing.loss_and_gradients(acting, batch))):
      self.assertAllClose(x, y, atol=1e-6)

  def test_no_gradient_flows_into_the_target_network(self):
    agent = _agent(kl_reference='target_network')
    with tf.GradientTape() as tape:
      loss, _ = agent.loss(testing.random_unrolls(0))
    self.assertAllEqual(
        tape.gradient(loss, agent.target.trainable_variables),
        [None] * len(agent.target.trainable_variables))

  def test_the_kls_reference_leaves_checkpoints_as_they_are(self):
    path = tf.train.Checkpoint(agent=_agent()).write(
        self.create_tempdir().full_path + '/checkpoint')
    other = _agent(kl_reference='target_network')
    tf.train.Checkpoint(agent=other).read(path).assert_consumed()

  @pytest.mark.medium
  def test_duals_stay_positive_at_any_learning_rate(self):
    # With such wide bounds both decrease as fast as possible.
    agent = _agent(epsilon_temperature=1e6, epsilon_alpha=1e6)
    learner = learner_lib.Learner(
        agent, tf.keras.optimizers.legacy.Adam(1e3), tf.distribute.get_strategy())
    for seed in range(3):
      metrics = learner.step(testing.random_unrolls(seed))
      duals = [agent.temperature.numpy(), agent.alphas['categorical'].numpy()]
      if seed == 0:
        self.assertAllEqual(duals, np.float32([1e-8, 1e-8]))
      self.assertAllGreaterEqual(duals, np.float32(1e-8))
      self.assertTrue(np.isfinite(metrics['loss']))

  def test_the_target_network_starts_as_a_copy(self):
    online, target = testing.tiny_network(), testing.tiny_network()
    for variable in target.variables:
      variable.assign(tf.zeros_like(variable))
    agent = agent_lib.VMPOAgent(online, target)
    for ours, theirs in zip(agent.target.variables, agent.online.variables):
      self.assertAllEqual(ours, theirs)


if __name__ == '__main__':
  absltest.main()
