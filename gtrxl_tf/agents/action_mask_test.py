"""Tests of action masks: in losses, in acting, and in exported policies."""

import functools
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
from gtrxl_tf.agents import cql_sac
from gtrxl_tf.agents import decision
from gtrxl_tf.agents import policy as policy_lib
from gtrxl_tf.agents import ppo
from gtrxl_tf.agents import r2d2
from gtrxl_tf.agents import vmpo
from gtrxl_tf.losses import pixel_control
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import cql as cql_network
from gtrxl_tf.networks import decision as decision_network
from gtrxl_tf.networks import distillation
from gtrxl_tf.networks import heads
from gtrxl_tf.networks import torsos
from gtrxl_tf.replay import unroll
from gtrxl_tf.serving import export
from gtrxl_tf.settings import config

_FEW, _MANY = specs.DiscreteArray(3), specs.DiscreteArray(5)
_ALLOWED = np.array([1, 2, 4])  # The few actions, among the many.
_PLAIN = specs.Array((4,), np.float32)
_MASKED = {'x': _PLAIN, 'action_mask': specs.BoundedArray((5,), np.int8, 0, 1)}
_AGENTS = {'vmpo': vmpo.VMPOAgent, 'ppo': ppo.PPOAgent,
           'r2d2': functools.partial(r2d2.R2D2Agent, burn_in=2)}


def _create(network, observation_spec):
  """Gives a network random variables."""
  network.create_variables(observation_spec)
  random = np.random.RandomState(0)
  for variable in network.trainable_variables:
    variable.assign(0.5 * random.randn(*variable.shape))
  return network


def _actor_critic(action_spec=_MANY, observation_spec=None, **settings):
  return _create(actor_critic.ActorCritic(
      action_spec, torsos.VectorTorso((4,)),
      cores.TransformerXL(1, 4, num_heads=2, head_dim=2, memory_length=3),
      previous_action_and_reward=False, head_units=4, **settings),
                 observation_spec or _MASKED)


def _decision(action_spec=_MANY, observation_spec=None):
  return _create(decision_network.DecisionNetwork(
      action_spec, torsos.VectorTorso((4,)),
      cores.RATE(1, 4, 2, 2, mlp_dim=4, num_memory_tokens=0, segment_length=12)),
                 observation_spec or _MASKED)


def _cql(action_spec=_MANY, observation_spec=None):
  return _create(cql_network.CQLNetwork(
      action_spec, torsos.VectorTorso((4,)), cores.DeepLSTM(1, 4)),
                 observation_spec or _MASKED)


def _with_many(x, other):
  """Expands values `[..., 3]` of the few actions to `[..., 5]`, filled with `other`."""
  many = np.full((*x.shape[:-1], 5), other, np.float32)
  many[..., _ALLOWED] = x
  return many


def _widen(few, many):
  """Copies the weights of the network of few actions to the network of many."""
  for theirs, ours in zip(few.variables, many.variables):
    ours.assign(theirs if theirs.shape == ours.shape else _with_many(theirs, 7.))


def _masked_observation(x, mask=None):
  if mask is None:
    mask = np.zeros(5)
    mask[_ALLOWED] = 1
  return {'x': x, 'action_mask': tf.cast(
      tf.broadcast_to(mask, [*x.shape[:-1], 5]), tf.int8)}


def _random_mask(seed, *leading):
  """Random masks, some of which allow nothing."""
  return np.random.RandomState(seed).rand(*leading, 5) < 0.3


def _loss_and_gradients(agent, network, batch):
  if isinstance(agent, r2d2.R2D2Agent):
    batch = unroll.Sample(batch, tf.ones(batch.reward.shape[:1]))
  with tf.GradientTape() as tape:
    loss, metrics = agent.loss(batch)
  return {'loss': loss, **metrics}, tape.gradient(loss, network.trainable_variables)


class LossTest(tf.test.TestCase, parameterized.TestCase):

  def assert_like_fewer_actions(self, few, many):
    """Compares the results of `_loss_and_gradients`."""
    (metrics, gradients), (of_many, gradients_of_many) = few, many
    self.assertAllClose(metrics, of_many, rtol=1e-5, atol=1e-5)
    for theirs, ours in zip(gradients, gradients_of_many):
      if theirs.shape != ours.shape:
        self.assertAllEqual(np.delete(ours, _ALLOWED, axis=-1),
                            tf.zeros([*ours.shape[:-1], 2]))
        ours = tf.gather(ours, _ALLOWED, axis=-1)
      self.assertAllClose(theirs, ours, rtol=1e-4, atol=1e-5)

  @parameterized.parameters(*_AGENTS)
  @pytest.mark.medium
  def test_it_equals_that_of_an_agent_with_fewer_actions(self, name):
    few, many = (
        _AGENTS[name](_actor_critic(*of), _actor_critic(*of))
        for of in ((_FEW, _PLAIN), (_MANY, _MASKED)))
    _widen(few.online, many.online)
    many.update_target()
    batch = testing.random_unrolls(0, action_spec=_FEW)
    self.assert_like_fewer_actions(
        _loss_and_gradients(few, few.online, batch),
        _loss_and_gradients(many, many.online, batch._replace(
            observation=_masked_observation(batch.observation),
            action=tf.gather(_ALLOWED.astype(np.int32), batch.action),
            policy=batch.policy._replace(
                logits=tf.constant(_with_many(batch.policy.logits, -1e9))))))

  @parameterized.named_parameters(
      ('decision', _decision, decision.DecisionAgent),
      ('cql', _cql, cql.CQLAgent))
  @pytest.mark.medium
  def test_it_equals_that_of_an_offline_agent_with_fewer_actions(self, network, agent):
    few, many = network(_FEW, _PLAIN), network(_MANY, _MASKED)
    for theirs, ours in zip(few.variables, many.variables):
      if theirs.shape == ours.shape:
        ours.assign(theirs)
      elif theirs.shape[0] == ours.shape[0]:
        ours.assign(_with_many(theirs, 7.))
      else:  # The embedding of actions.
        ours.assign(_with_many(theirs.numpy().T, 7.).T)
    unrolls = testing.random_unrolls(0, 2, 3, _FEW)
    shape = unrolls.reward.shape
    batch = decision_network.Segments(
        return_to_go=unrolls.reward, observation=unrolls.observation,
        action=unrolls.action, reward=unrolls.reward, discount=tf.ones(shape),
        is_first=tf.constant([[True, False, False, False]] * 2),
        valid=tf.constant([[True] * 4, [True, True, True, False]]))
    (metrics, _), (of_many, gradients) = (
        _loss_and_gradients(agent(made), made, rows) for made, rows in (
            (few, batch), (many, batch._replace(
                observation=_masked_observation(batch.observation),
                action=tf.gather(_ALLOWED.astype(np.int32), batch.action)))))
    self.assertAllClose(metrics, of_many, rtol=1e-5, atol=1e-5)
    for gradient in gradients:
      self.assertTrue(np.isfinite(tf.convert_to_tensor(gradient)).all())

  @pytest.mark.medium
  def test_pixel_control_expects_the_best_of_the_allowed_actions(self):
    spec = {**_MASKED, 'x': specs.Array((8, 8, 1), np.float32)}
    head = heads.PixelControlHead(5, (1, 1, 2))
    agent = ppo.PPOAgent(
        _actor_critic(_MANY, spec, pixel_control_head=head), _actor_critic(
            _MANY, spec, pixel_control_head=heads.PixelControlHead(5, (1, 1, 2))))
    for variable in head.trainable_variables:
      if variable.shape == [5]:  # The bias of the advantages: two are not allowed.
        variable.assign([9., 0., 1., 8., 2.])
    batch = testing.random_unrolls(0, action_spec=_FEW)
    frames = tf.constant(np.random.RandomState(0).rand(
        *batch.reward.shape, 8, 8, 1).astype(np.float32))
    mask = np.zeros([*batch.reward.shape, 5], np.int8)
    mask[..., _ALLOWED] = 1
    masked, free = (batch._replace(
        observation={'x': frames, 'action_mask': tf.constant(x)},
        action=tf.gather(_ALLOWED.astype(np.int32), batch.action),
        policy=batch.policy._replace(
            logits=tf.constant(_with_many(batch.policy.logits, 0.))))
                    for x in (mask, np.ones_like(mask)))
    q_values = agent._outputs(agent.online, free).pixel_control  # pylint: disable=protected-access

    def expected(q_values, actions):
      return tf.reduce_mean(pixel_control.pixel_control_loss(
          q_values, actions[:, 1:], pixel_control.pixel_control_rewards(frames),
          batch.is_last()))

    of_allowed = expected(tf.gather(q_values, _ALLOWED, axis=-1), batch.action)
    self.assertNotAllClose(expected(q_values, free.action), of_allowed)
    for rows, loss in (masked, of_allowed), (free, expected(q_values, free.action)):
      metrics, gradients = _loss_and_gradients(agent, agent.online, rows)
      self.assertAllClose(metrics['pixel_control_loss'], loss)
      for gradient in gradients:
        self.assertTrue(np.isfinite(gradient).all())

  @parameterized.product(name=list(_AGENTS), precision=['float32', 'mixed_bfloat16'])
  @pytest.mark.medium
  def test_it_is_finite_for_any_masks(self, name, precision):
    acting = _actor_critic()
    batch = testing.random_unrolls(1, action_spec=_MANY)
    batch = batch._replace(observation=_masked_observation(
        batch.observation, _random_mask(1, *batch.reward.shape)))
    outputs = testing.outputs(acting, batch)
    sample = acting.action_space.sample(outputs.policy, [0, 1])
    batch = batch._replace(
        policy=tf.nest.map_structure(lambda x: x[:, :-1], outputs.policy),
        action=tf.concat([batch.action[:, :1], sample[:, :-1]], axis=1))
    tf.keras.mixed_precision.set_global_policy(precision)
    self.addCleanup(tf.keras.mixed_precision.set_global_policy, 'float32')
    online = _actor_critic()
    metrics, gradients = _loss_and_gradients(
        _AGENTS[name](online, acting), online, batch)
    for name, value in metrics.items():
      self.assertTrue(np.isfinite(value).all(), name)
      self.assertLess(np.abs(value).max(), 1e4, name)
    for variable, gradient in zip(online.trainable_variables, gradients):
      self.assertTrue(np.isfinite(gradient).all(), variable.name)
      self.assertGreater(np.abs(gradient).max(), 0, variable.name)


_ARGUMENTS = _MASKED, _MANY
_POLICIES = {
    'sampling': lambda: policy_lib.ActorCriticPolicy(_actor_critic(), *_ARGUMENTS),
    'greedy': lambda: policy_lib.ActorCriticPolicy(
        _actor_critic(), *_ARGUMENTS, greedy=True),
    'decision': lambda: decision.DecisionPolicy(
        _decision(), *_ARGUMENTS, target_return=1.0, greedy=False),
    'window': lambda: decision.DecisionPolicy(
        _decision(), *_ARGUMENTS, target_return=1.0, window=4),
    'cql': lambda: cql.CQLPolicy(_cql(), *_ARGUMENTS),
}


class ActingTest(tf.test.TestCase, parameterized.TestCase):

  def play(self, policy, num=32, num_steps=4, action=None):
    """Plays, and checks that all actions are allowed; returns them, `[T, B]`."""
    action = action or policy.action
    actions, state = [], policy.get_initial_state(num)
    for t in range(num_steps):
      mask = _random_mask(t, num)
      observation = _masked_observation(
          tf.constant(np.random.RandomState(t).randn(num, 4), tf.float32), mask)
      done = action(
          testing.transition(observation, tf.ones([num])) if t
          else testing.restart(observation, num), state)
      allowed = mask | ~mask.any(axis=-1, keepdims=True)
      self.assertTrue(allowed[np.arange(num), done.action].all())
      state = done.state
      actions.append(done.action.numpy())
    return np.stack(actions)

  @parameterized.parameters(*_POLICIES)
  @pytest.mark.medium
  def test_only_allowed_actions_are_taken(self, name):
    actions = self.play(_POLICIES[name]())
    self.assertLen(np.unique(actions), 5)

  @pytest.mark.medium
  def test_compiled_steps_take_only_allowed_actions(self):
    policy = _POLICIES['sampling']()
    step = tf.function(policy.unmoved_action, autograph=False, jit_compile=True)
    seeds = iter(range(4))

    def action(time_step, state):
      done = step(time_step, state, seed=tf.constant([0, next(seeds)]))
      return done._replace(state=policy.move(done.state))

    self.assertLen(np.unique(self.play(policy, action=action)), 5)

  @pytest.mark.long
  def test_an_exported_policy_takes_the_same_actions(self):
    policy = _POLICIES['greedy']()
    path = pathlib.Path(self.create_tempdir().full_path) / 'policy'
    export.save_policy(policy, path)
    self.assertAllEqual(self.play(tf.saved_model.load(str(path))), self.play(policy))

  def test_an_agent_without_masks_refuses_them(self):
    core = cores.SegmentTransformer(1, 4, 2, 2, 4, segment_length=4)
    with self.assertRaisesRegex(config.ConfigError, "observation_spec has 'action_mask'"):
      distillation.DistillationNetwork(_MANY, core).create_variables(_MASKED)
    with self.assertRaisesRegex(config.ConfigError, 'no action is discrete'):
      cql_sac.CQLSACActor(testing.CONTINUOUS).create_variables(_MASKED)


if __name__ == '__main__':
  absltest.main()
