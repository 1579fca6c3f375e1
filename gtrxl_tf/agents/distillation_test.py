"""Tests of agent.py."""

from absl.testing import absltest
from absl.testing import parameterized
from dm_env import specs
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import testing
from gtrxl_tf.agents import distillation
from gtrxl_tf.cores import segment_transformer
from gtrxl_tf.networks import distillation as network_lib
from gtrxl_tf.training import learner as learner_lib

_B, _T, _S = 4, 6, 3
_OBSERVATION_SPEC = specs.Array((4,), np.float32)


_BYTES = specs.DiscreteArray(3, np.uint8)  # As in histories.


def _agent(action_spec=_BYTES, label_smoothing=0.1, **settings):
  core = segment_transformer.SegmentTransformer(**{**dict(
      num_layers=1, model_dim=8, num_heads=2, head_dim=4, mlp_dim=16, dropout=0.0,
      attention_dropout=0.0, segment_length=_S, recurrence='xl', memory_length=2),
      **settings})
  network = network_lib.DistillationNetwork(action_spec, core, num_positions=_T)
  network.create_variables(_OBSERVATION_SPEC)
  return distillation.DistillationAgent(network, label_smoothing)


def _batch(action_spec=_BYTES):
  unrolls = testing.random_unrolls(0, _B, _T, action_spec)
  action = unrolls.action
  if action_spec is _BYTES:
    action = tf.cast(action, tf.uint8)
  random = np.random.RandomState(1)
  is_first = np.zeros([_B, _T], bool)
  is_first[:, 0] = True
  return distillation.HistoryBatch(
      network_lib.Histories(
          unrolls.observation, action, unrolls.reward,
          tf.constant(random.rand(_B, _T + 1) < 0.3), tf.constant(is_first),
          tf.tile(tf.range(_T)[tf.newaxis], [_B, 1])),
      valid=tf.constant(np.arange(_T) < np.array([[6], [6], [4], [1]])))


class DistillationAgentTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.parameters(False, True)
  @pytest.mark.medium
  def test_padding_may_be_no_action(self, jit_compile):
    spec = specs.BoundedArray((), np.int32, 1, 3)
    agent, batch = _agent(spec), _batch(spec)

    @tf.function(autograph=False, jit_compile=jit_compile)
    def evaluate(action):
      with tf.GradientTape() as tape:
        loss, _ = agent.loss(batch._replace(
            histories=batch.histories._replace(action=action)))
      return loss, tape.gradient(loss, agent.learned_variables)

    action = tf.constant(np.random.RandomState(2).randint(1, 4, [_B, _T + 1]), tf.int32)
    known = tf.concat([tf.ones([_B, 1], bool), batch.valid], axis=1)
    self.assertAllClose(evaluate(tf.where(known, action, 0)), evaluate(action))

  @parameterized.parameters(
      (_BYTES, {'cross_entropy', 'accuracy'}),
      (testing.HYBRID, {'cross_entropy', 'squared_error'}))
  @pytest.mark.medium
  def test_it_learns_the_recorded_actions(self, action_spec, names):
    agent = _agent(action_spec, label_smoothing=0.0)
    learner = learner_lib.Learner(
        agent, tf.keras.optimizers.legacy.Adam(1e-2), tf.distribute.get_strategy())
    batch = _batch(action_spec)
    first = learner.step(batch)
    for _ in range(150):
      last = learner.step(batch)
    self.assertEqual(set(last), {'loss', 'gradient_norm', *names})
    self.assertLess(last['loss'], 0.15 * first['loss'])

  def test_labels_are_smoothed(self):
    batch = _batch()
    agent = _agent(label_smoothing=0.2)
    loss, _ = agent.loss(batch)
    policy, _ = agent.network(batch.histories, agent.network.initial_state(_B))
    of_steps = tf.keras.losses.categorical_crossentropy(
        tf.one_hot(batch.histories.action[:, 1:], 3), policy.logits, from_logits=True,
        label_smoothing=0.2)
    self.assertAllClose(loss, tf.reduce_mean(of_steps[batch.valid]), rtol=1e-5)

  def test_steps_that_are_not_valid_do_not_count(self):
    agent, batch = _agent(), _batch()
    valid = tf.pad(batch.valid, [[0, 0], [1, 0]], constant_values=True)
    action = batch.histories.action
    other = batch._replace(histories=batch.histories._replace(
        action=tf.where(valid, action, 2 - action),
        reward=tf.where(valid, batch.histories.reward, 77.)))
    self.assertAllEqual(agent.loss(batch)[0], agent.loss(other)[0])

  def test_states_are_carried_from_one_step_to_the_next(self):
    agent, batch = _agent(), _batch()
    total, _ = agent.loss(batch._replace(valid=tf.ones([_B, _T], tf.bool)))
    state, losses = agent.network.initial_state(_B), []
    for start in (0, _S):
      of = batch.histories
      part = network_lib.Histories(
          *(x[:, start:start + _S + 1] for x in of[:4]),
          *(x[:, start:start + _S] for x in of[4:]))
      loss, metrics = agent.loss(
          distillation.HistoryBatch(part, tf.ones([_B, _S], tf.bool), state))
      state = metrics['carried']
      losses.append(loss)
    self.assertAllClose(total, tf.reduce_mean(losses))
    self.assertEqual(state.memory.shape[1], 2)

  @parameterized.parameters('stopped', 'through_segments')
  def test_gradients_flow_through_segments_unless_stopped(self, memory_gradient):
    agent = _agent(recurrence='same_layer', memory_gradient=memory_gradient)
    batch = _batch()
    reward = batch.histories.reward
    late = batch.valid & (tf.range(_T) >= _S)
    with tf.GradientTape() as tape:
      tape.watch(reward)
      loss, _ = agent.loss(batch._replace(
          histories=batch.histories._replace(reward=reward), valid=late))
    found = tf.reduce_any(tape.gradient(loss, reward)[:, :_S] != 0)
    self.assertEqual(bool(found), memory_gradient == 'through_segments')

  def test_dropout_applies_in_training_only(self):
    agent, batch = _agent(dropout=0.5), _batch()
    network = agent.network
    state = network.initial_state(_B)

    def logits(training):
      return network(batch.histories, state, training=training)[0].logits

    self.assertAllEqual(logits(False), logits(None))
    self.assertNotAllClose(logits(True), logits(False))
    self.assertAllEqual(agent.loss(batch)[0], agent.loss(batch)[0])


if __name__ == '__main__':
  absltest.main()
