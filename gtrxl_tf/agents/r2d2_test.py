"""Tests of the R2D2 agent and of its exploration."""

from absl.testing import absltest
from absl.testing import parameterized
from dm_env import specs
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf import networks
from gtrxl_tf import testing
from gtrxl_tf.agents import r2d2 as agent_lib
from gtrxl_tf.losses import r2d2
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import heads
from gtrxl_tf.networks import torsos
from gtrxl_tf.replay import unroll as unroll_lib
from gtrxl_tf.settings import config
from gtrxl_tf.training import learner as learner_lib

_OBSERVATION_SPEC = specs.Array((4,), np.float32)


def _agent(num_values=1, **settings):
  return agent_lib.R2D2Agent(
      *testing.shared_networks(num_values=num_values), **{'burn_in': 2, **settings})


def _sample(seed=0, num_tasks=1, **settings):
  unrolls = testing.random_unrolls(seed, num_tasks=num_tasks, **settings)
  weight = np.random.RandomState(seed).rand(unrolls.reward.shape[0])
  return unroll_lib.Sample(unrolls, tf.constant(weight, tf.float32))


class R2D2AgentTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.parameters(0, 2, 4)
  @pytest.mark.medium
  def test_the_loss_after_the_burn_in(self, burn_in):
    agent = _agent(num_values=2, burn_in=burn_in, discount=0.9, n_step=2,
                   priority_eta=0.7, rescaling=0.01)
    for variable in agent.target.trainable_variables:
      variable.assign(0.8 * variable)
    batch = _sample(num_tasks=2)
    unrolls, values = batch.unroll, []
    for network in agent.online, agent.target:
      outputs = testing.outputs(network, unrolls)
      advantages = outputs.policy.logits
      value = tf.gather(outputs.value, unrolls.task[:, 0], axis=2, batch_dims=1)
      values.append((value[..., tf.newaxis] + advantages - tf.reduce_mean(
          advantages, axis=-1, keepdims=True))[:, burn_in:])
    expected = r2d2.r2d2_loss(
        *values, unrolls.action[:, burn_in + 1:], unrolls.reward[:, burn_in:],
        unrolls.discount[:, burn_in:], unrolls.is_last()[:, burn_in:], batch.weight,
        0.9, 2, 0.7, 0.01)
    loss, metrics = agent.loss(batch)
    self.assertAllClose(loss, expected.total_loss, rtol=1e-5)
    self.assertAllClose(metrics['carried'], expected.priorities, rtol=1e-5)
    self.assertCountEqual(metrics, ['loss', 'td_error', 'q_value', 'carried'])

  def test_last_steps_may_have_no_action(self):
    agent, batch = _agent(), _sample()
    unrolls = batch.unroll
    after_last = tf.pad(unrolls.is_last()[:, :-1], [[0, 0], [1, 0]])
    found = agent.loss(batch._replace(unroll=unrolls._replace(
        action=tf.where(after_last, -1, unrolls.action))))
    self.assertAllClose(found, agent.loss(batch))

  def test_every_variable_learns_and_no_gradient_enters_the_burn_in(self):
    agent, batch = _agent(), _sample()
    observation = batch.unroll.observation
    with tf.GradientTape() as tape:
      tape.watch(observation)
      loss, _ = agent.loss(batch)
    gradients = tape.gradient(loss, [*agent.learned_variables, observation])
    *gradients, of_observation = map(tf.convert_to_tensor, gradients)
    for variable, gradient in zip(agent.learned_variables, gradients):
      self.assertTrue(np.isfinite(gradient).all(), variable.name)
      self.assertGreater(np.abs(gradient).max(), 0, variable.name)
    self.assertAllEqual(of_observation[:, :2], tf.zeros([4, 2, 4]))
    self.assertGreater(np.abs(of_observation[:, 2:]).max(), 0)

  @pytest.mark.medium
  def test_the_target_network_is_copied_once_per_period(self):
    agent = _agent(target_update_period=2)
    learner = learner_lib.Learner(agent, tf.keras.optimizers.legacy.Adam(0.01),
                                  tf.distribute.get_strategy())
    first = [v.numpy() for v in agent.target.variables]
    for step in range(1, 4):
      learner.step(_sample(step))
      if step == 2:
        copied = [v.numpy() for v in agent.online.variables]
      expected = first if step < 2 else copied
      for variable, value in zip(agent.target.variables, expected):
        self.assertAllEqual(variable, value)
    self.assertIs(agent.acting_network, agent.online)

  @pytest.mark.medium
  def test_it_learns_which_action_is_rewarded(self):
    agent = _agent(burn_in=1, n_step=1, discount=0.0, target_update_period=1)
    learner = learner_lib.Learner(agent, tf.keras.optimizers.legacy.Adam(0.02),
                                  tf.distribute.get_strategy())
    for seed in range(60):
      batch = _sample(seed, batch_size=8)
      learner.step(batch._replace(weight=tf.ones([8]), unroll=batch.unroll._replace(
          reward=tf.cast(batch.unroll.action == 1, tf.float32))))
    q_values = agent.q_values(agent.online, _sample(99).unroll)
    self.assertAllEqual(tf.argmax(q_values, axis=-1), tf.ones([4, 5]))
    self.assertAllClose(
        tf.reduce_mean(r2d2.inverse_rescale(q_values[..., 1])), 1, atol=0.1)

  @parameterized.named_parameters(
      ('gtrxl', lambda: cores.TransformerXL(
          1, 4, num_heads=2, head_dim=2, memory_length=3)),
      ('lstm', lambda: cores.DeepLSTM(2, 4)), ('gru', lambda: cores.DeepGRU(1, 4)),
      ('mamba', lambda: cores.Mamba(1, 4)), ('memoryless', cores.Memoryless))
  @pytest.mark.medium
  def test_values_in_acting_equal_those_in_learning(self, make_core):
    def network():
      made = actor_critic.ActorCritic(
          testing.DISCRETE, torsos.VectorTorso((4,)), make_core(), head_units=4)
      made.create_variables(_OBSERVATION_SPEC)
      return made

    agent = agent_lib.R2D2Agent(network(), network(), burn_in=2)
    m = agent.online.core.memory_length
    policy = agent_lib.EpsilonGreedyPolicy(
        np.array([0.5, 0.9]), agent.online, _OBSERVATION_SPEC,
        testing.DISCRETE, with_record=True)
    random = np.random.RandomState(0)
    state, rows = policy.get_initial_state(2), []
    for t in range(m + 6):  # The memory's length, and T + 1.
      observation = tf.constant(random.randn(2, 4), tf.float32)
      time_step = (testing.restart(observation, 2) if t in (0, m + 3) else
                   testing.transition(observation, tf.constant([1., -t])))
      done = policy.action(time_step, state, seed=[0, t])
      rows.append((time_step, state.previous_action, done.info))
      state = done.state
    time_steps, previous, info = tf.nest.map_structure(
        lambda *x: tf.stack(x, axis=1), *rows)
    q_values = agent.q_values(agent.online, unroll_lib.Unroll(
        time_steps.observation[:, m:], time_steps.step_type, time_steps.reward[:, m:],
        time_steps.discount[:, m:], previous[:, m:], (),
        tf.nest.map_structure(lambda x: x[:, :m], info.record), (), (),
        tf.zeros([2, 1], tf.int32), (), ()))
    logits = info.policy.logits[:, m + 2:]

    def centred(x):
      return x - tf.reduce_mean(x, axis=-1, keepdims=True)

    self.assertAllClose(centred(q_values), centred(logits), rtol=1e-5, atol=1e-5)

  @pytest.mark.medium
  def test_what_does_not_fit_is_refused(self):
    head = heads.PixelControlHead(3, (1, 1, 2))
    for settings, message in (
        (dict(action_spec=testing.CONTINUOUS), 'expected one DiscreteArray'),
        (dict(action_spec={'x': testing.DISCRETE}), 'expected one DiscreteArray'),
        (dict(popart=networks.PopArt), 'ActorCritic.popart is set: expected None'),
        (dict(pixel_control_head=head), 'pixel_control_head is set: expected None')):
      network = testing.tiny_network(**settings)
      with self.assertRaisesRegex(config.ConfigError, message):
        agent_lib.R2D2Agent(network, network)
    network = actor_critic.ActorCritic(
        testing.DISCRETE, torsos.VectorTorso((4,)),
        cores.MERLIN(num_rows=2, latent_dim=3, num_layers=1, hidden_dim=4),
        head_units=4, predictor=networks.Predictor())
    with self.assertRaisesRegex(config.ConfigError, 'predictor is set'):
      agent_lib.R2D2Agent(network, network)
    with self.assertRaisesRegex(config.ConfigError, 'R2D2Agent.burn_in = 5'):
      _agent(burn_in=5).loss(_sample())


class EpsilonGreedyTest(tf.test.TestCase, parameterized.TestCase):

  def test_rates_are_those_of_ape_x(self):
    rates = agent_lib.EpsilonGreedy().rates(0, 5, 5)
    self.assertAllClose(rates, [0.4 ** (1 + 7 * i / 4) for i in range(5)])
    self.assertAllClose(agent_lib.EpsilonGreedy().rates(2, 3, 5), rates[2:])
    self.assertAllClose(agent_lib.EpsilonGreedy(0.1).rates(0, 1, 1), [0.1])

  def test_each_task_has_all_rates(self):
    # Environments 0 to 5 play the tasks 0, 1, 0, 1, 0, 1.
    rates = agent_lib.EpsilonGreedy().rates(0, 6, 6, num_tasks=2)
    self.assertAllClose(rates[::2], agent_lib.EpsilonGreedy().rates(0, 3, 3))
    self.assertAllEqual(rates[::2], rates[1::2])
    self.assertAllClose(
        agent_lib.EpsilonGreedy().rates(0, 8, 8, num_tasks=8), np.full(8, 0.4))

  @parameterized.parameters(False, True)
  @pytest.mark.medium
  def test_rows_take_random_allowed_actions_at_their_rates(self, jit_compile):
    num = 4000
    rates = np.where(np.arange(num) < num // 2, 0.9, 0.3).astype(np.float32)
    spec = {'x': _OBSERVATION_SPEC,
            'action_mask': specs.BoundedArray((3,), np.int8, 0, 1)}
    network = actor_critic.ActorCritic(
        testing.DISCRETE, core=cores.Memoryless(1, 4))
    network.create_variables(spec)
    policy = agent_lib.EpsilonGreedyPolicy(rates, network, spec, testing.DISCRETE)
    observation = {'x': tf.ones([num, 4]),
                   'action_mask': tf.constant([[1, 0, 1]] * num, tf.int8)}
    time_step, state = testing.restart(observation, num), policy.get_initial_state(num)
    best = policy.greedy().action(time_step, state).action
    action = tf.function(
        lambda seed: policy.action(time_step, state, seed).action, autograph=False,
        jit_compile=jit_compile)(tf.constant([1, 2]))
    self.assertNoCommonElements(action.numpy().tolist(), [1])
    differ = np.mean(np.reshape(action != best, [2, -1]), axis=1)
    self.assertAllClose(differ, [0.45, 0.15], atol=0.03)  # Half of them are the best.


if __name__ == '__main__':
  absltest.main()
