"""Tests of policy.py."""

from absl.testing import absltest
from absl.testing import parameterized
from dm_env import specs
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import testing
from gtrxl_tf.agents import policy as policy_lib

_OBSERVATION_SPEC = specs.Array((4,), np.float32, name='observation')
_NUM = 5000


def _policy(**settings):
  return policy_lib.ActorCriticPolicy(
      testing.tiny_network(), _OBSERVATION_SPEC, specs.DiscreteArray(3), **settings)


def _time_step(num, step=0):
  """The same observation for each of `num` environments."""
  observation = np.random.RandomState(step).randn(4).astype(np.float32)
  observation = tf.tile(observation[np.newaxis], [num, 1])
  return testing.restart(observation, num) if step == 0 else testing.transition(
      observation, tf.ones([num]))


class ActorCriticPolicyTest(parameterized.TestCase):

  def assert_drawn_from(self, actions, logits):
    shares = np.bincount(actions, minlength=3) / len(actions)
    np.testing.assert_allclose(shares, tf.nn.softmax(logits), atol=0.03)

  @parameterized.parameters(False, True)
  @pytest.mark.medium
  def test_actions_are_samples_of_the_policy_in_info(self, jit_compile):
    policy = _policy()
    action = tf.function(policy.unmoved_action if jit_compile else policy.action,
                         autograph=False, jit_compile=jit_compile)
    state = policy.get_initial_state(_NUM)
    for step in range(3):
      done = action(_time_step(_NUM), state, seed=tf.constant([7, step]))
      self.assert_drawn_from(done.action, done.info.policy.logits[0])
      again = action(_time_step(_NUM), state, seed=tf.constant([7, step]))
      other = action(_time_step(_NUM), state, seed=tf.constant([8, step]))
      np.testing.assert_array_equal(done.action, again.action)
      self.assertGreater(np.sum(done.action != other.action), _NUM / 10)

  def test_without_a_seed_samples_differ(self):
    policy = _policy()
    state = policy.get_initial_state(_NUM)
    one = policy.action(_time_step(_NUM), state)
    two = policy.action(_time_step(_NUM), state)
    self.assert_drawn_from(one.action, one.info.policy.logits[0])
    self.assertGreater(np.sum(one.action != two.action), _NUM / 10)

  @parameterized.parameters(
      lambda: _policy(greedy=True), lambda: _policy().greedy())
  def test_a_greedy_policy_takes_the_most_likely_action(self, make):
    policy = make()
    done = policy.action(_time_step(3), policy.get_initial_state(3))
    np.testing.assert_array_equal(
        done.action, np.argmax(done.info.policy.logits, axis=-1))

  def test_an_action_is_remembered_for_the_next_step(self):
    policy = _policy()
    state = policy.get_initial_state(_NUM)
    done = policy.action(_time_step(_NUM), state, seed=tf.constant([0, 0]))
    np.testing.assert_array_equal(done.state.previous_action, done.action)
    # It is an input of the network: the next logits differ only through it.
    next_done = policy.action(_time_step(_NUM, 1), done.state, seed=tf.constant([0, 1]))
    self.assertLen(np.unique(next_done.info.policy.logits.numpy().round(5), axis=0),
                   len(np.unique(done.action)))

  def test_results_have_the_specs(self):
    for with_record in (False, True):
      policy = _policy(with_record=with_record)
      done = policy.action(_time_step(2), policy.get_initial_state(2))
      tf.nest.map_structure(
          lambda spec, x: self.assertTrue(spec.is_compatible_with(x[0])),
          policy_lib.PolicyStep(
              policy.action_spec, policy.policy_state_spec, policy.info_spec), done)
      self.assertEqual(bool(tf.nest.flatten(done.info.record)), with_record)

  def test_a_state_restored_from_records_gives_the_same_logits(self):
    policy = _policy(with_record=True)
    memory_length = 3
    state, records = policy.get_initial_state(2), []
    for step in range(5):
      done = policy.action(_time_step(2, step), state, seed=tf.constant([0, step]))
      state = done.state
      records.append(done.info.record)
    refreshed = policy.refreshed(
        state, tf.nest.map_structure(lambda *x: tf.stack(x, axis=1),
                                     *records[-memory_length:]),
        tf.zeros([2, memory_length], tf.bool))
    expected = policy.action(_time_step(2, 5), state).info.policy.logits
    actual = policy.action(_time_step(2, 5), refreshed).info.policy.logits
    np.testing.assert_allclose(actual, expected, atol=1e-5, rtol=1e-5)


if __name__ == '__main__':
  absltest.main()
