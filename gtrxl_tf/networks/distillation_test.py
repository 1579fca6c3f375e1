"""Tests of network.py, window.py and policy.py: acting equals unrolling."""

from absl.testing import absltest
from absl.testing import parameterized
import dm_env
from dm_env import specs
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import testing
from gtrxl_tf.agents import distillation as policy_lib
from gtrxl_tf.agents import windows
from gtrxl_tf.cores import segment_transformer
from gtrxl_tf.networks import distillation
from gtrxl_tf.networks import torsos
from gtrxl_tf.settings import config

_B, _T, _S = 3, 9, 3
_OBSERVATION_SPEC = specs.BoundedArray((2,), np.uint8, 0, 4)
_ACTION_SPEC = specs.DiscreteArray(3, np.uint8)
_MODELS = {
    'ADF': dict(),
    'ADF_rope': dict(positions='rope'),
    'MEM': dict(num_prefix=3),
    'XL': dict(recurrence='xl', memory_length=5),
    'ED': dict(recurrence='same_layer', memory_length=5),
    'ED_pre_norm': dict(recurrence='same_layer', memory_length=2, norm='pre',
                        positions='bias'),
}


def _network(tokens=1, core=None, **settings):
  core = segment_transformer.SegmentTransformer(**{**dict(
      num_layers=2, model_dim=8, num_heads=2, head_dim=4, mlp_dim=16,
      segment_length=_S * tokens), **(core or {})})
  network = distillation.DistillationNetwork(
      _ACTION_SPEC, core, tokens_per_transition=tokens, num_positions=20, **settings)
  network.create_variables(_OBSERVATION_SPEC)
  random = np.random.RandomState(0)
  for variable in network.trainable_variables:
    variable.assign_add(0.3 * random.randn(*variable.shape))
  return network


def _histories(num_steps=_T, start=0):
  random = np.random.RandomState(1)
  shape = (_B, num_steps + 1)
  is_first = np.zeros((_B, num_steps), bool)
  is_first[:, 0] = start == 0
  return tf.nest.map_structure(tf.constant, distillation.Histories(
      observation=random.randint(5, size=(*shape, 2)).astype(np.uint8),
      action=random.randint(3, size=shape).astype(np.uint8),
      reward=random.randn(*shape).astype(np.float32),
      done=random.rand(*shape) < 0.3, is_first=is_first,
      position=np.tile(start + np.arange(num_steps, dtype=np.int32), (_B, 1))))


def _cut(inputs, start, stop):
  """Steps `start` to `stop`."""
  return tf.nest.map_structure(
      lambda x: x[:, start:stop + x.shape[1] - inputs.position.shape[1]], inputs)


def _act(network, inputs):
  """The logits of acting step by step, given the actions of `inputs`."""
  cache, logits = network.initial_cache(_B), []
  for t in range(inputs.position.shape[1]):
    previous = distillation.Transition(
        *tf.nest.map_structure(lambda x, t=t: x[:, t], tuple(inputs[:4])),
        position=inputs.position[:, max(t - 1, 0)])
    policy, cache = network.step(
        previous, inputs.observation[:, t + 1], inputs.position[:, t],
        inputs.is_first[:, t], cache)
    logits.append(policy.logits)
  return tf.stack(logits, axis=1)


class ActingTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.parameters(
      ('ADF', 1), ('ADF_rope', 1), ('MEM', 1), ('XL', 1), ('ED', 1), ('ED_pre_norm', 1),
      ('ADF', 4), ('ED', 4))
  @pytest.mark.medium
  def test_steps_equal_the_unroll(self, model, tokens):
    network = _network(tokens, _MODELS[model], previous_observation=tokens == 1)
    inputs = _histories()
    policy, _ = network(inputs, network.initial_state(_B))
    self.assertAllClose(_act(network, inputs), policy.logits, atol=1e-5, rtol=1e-5)
    # An unroll from the empty state gives the same result.
    policy_2, _ = network(inputs, network.core.empty_state(_B))
    self.assertAllClose(policy_2.logits, policy.logits, atol=1e-5, rtol=1e-5)

  @parameterized.parameters(
      ('ADF', 1, 'global_learnable'), ('ADF_rope', 1, 'local_sinusoidal'),
      ('MEM', 4, 'local_learnable'))
  @pytest.mark.medium
  def test_a_window_equals_an_unroll_over_its_steps(self, model, tokens, positions):
    network = _network(tokens, _MODELS[model], positions=positions)
    inputs = _histories()
    acted = _act(windows.DistillationWindow(network, _S), inputs)
    first, _ = network(_cut(inputs, 0, _S), network.initial_state(_B))
    self.assertAllClose(acted[:, :_S], first.logits, atol=1e-5, rtol=1e-5)
    for end in range(_S, _T, 2):
      policy, _ = network(
          _cut(inputs, end + 1 - _S, end + 1), network.initial_state(_B))
      self.assertAllClose(
          acted[:, end], policy.logits[:, -1], atol=1e-5, rtol=1e-5)

  @parameterized.parameters('ADF', 'ED')
  @pytest.mark.medium
  def test_a_row_that_begins_a_history_has_no_past(self, model):
    network = _network(core=_MODELS[model])
    inputs = _histories()
    begins = np.array(inputs.is_first)
    begins[1, 5] = True  # Where no segment begins.
    acted = _act(network, inputs._replace(is_first=tf.constant(begins)))
    self.assertAllClose(acted[0], _act(network, inputs)[0], atol=1e-5)
    own = _cut(inputs, 5, _T)._replace(
        is_first=tf.constant(np.arange(_T - 5) == np.zeros((_B, 1))))
    self.assertAllClose(acted[1, 5:], _act(network, own)[1], atol=1e-5)

  @pytest.mark.medium
  def test_what_a_step_depends_on(self):
    network = _network(core=_MODELS['ED'])
    inputs = _histories()
    def logits(**changed):
      return network(
          inputs._replace(**changed), network.initial_state(_B))[0].logits
    base = logits()
    # Index 0 is before the history, 3 and T are those of steps 2 and T - 1.
    for index, first in ((0, _T), (3, 3), (_T, _T)):
      place = tf.equal(tf.range(_T + 1), index)[tf.newaxis]
      changed = logits(
          reward=inputs.reward + tf.cast(place, tf.float32),
          done=inputs.done ^ place,
          action=tf.where(place, (inputs.action + 1) % 3, inputs.action))
      differs = tf.reduce_any(tf.abs(changed - base) > 1e-6, axis=[0, 2])
      self.assertAllEqual(differs, np.arange(_T) >= first)

  def test_rewards_may_be_integers(self):
    network, inputs = _network(), _histories()
    bits = tf.cast(inputs.reward > 0, tf.int8)
    state = network.initial_state(_B)
    policies = [network(inputs._replace(reward=tf.cast(bits, dtype)), state)[0]
                for dtype in (tf.int8, tf.float32)]
    self.assertAllEqual(*(policy.logits for policy in policies))

  def test_refuses_settings_that_do_not_match(self):
    with self.assertRaisesRegex(config.ConfigError, 'expected a multiple of 4'):
      distillation.DistillationNetwork(
          _ACTION_SPEC, segment_transformer.SegmentTransformer(segment_length=6),
          tokens_per_transition=4)
    with self.assertRaisesRegex(config.ConfigError, 'a window of 4 steps'):
      windows.DistillationWindow(_network(), 4)

  def test_a_policy_with_a_window_has_a_greedy_form(self):
    policy = policy_lib.DistillationPolicy(
        _network(), _OBSERVATION_SPEC, _ACTION_SPEC, window=_S)
    greedy = policy.greedy()
    self.assertEqual(greedy.policy_state_spec, policy.policy_state_spec)

  def test_a_torso_embeds_observations(self):
    network = distillation.DistillationNetwork(
        _ACTION_SPEC, segment_transformer.SegmentTransformer(
            1, 8, 2, 4, 8, segment_length=_S), torsos.VectorTorso((5,)))
    network.create_variables(_OBSERVATION_SPEC)
    policy, _ = network(_histories(), network.initial_state(_B))
    self.assertEqual(policy.logits.shape, (_B, _T, 3))


class PolicyTest(tf.test.TestCase, parameterized.TestCase):

  def _policy(self, **settings):
    network = _network(core=_MODELS['ED'])
    return network, policy_lib.DistillationPolicy(
        network, _OBSERVATION_SPEC, _ACTION_SPEC, **settings)

  @parameterized.parameters(True, False)
  @pytest.mark.medium
  def test_a_history_continues_over_the_ends_of_episodes(self, shows_last):
    network, policy = self._policy(temperature=0.0)
    random = np.random.RandomState(2)
    inputs = _histories()
    reward, done = np.array(inputs.reward), np.zeros((_B, _T + 1), bool)
    done[:, 4] = True  # With the action of step 3.
    state, actions = policy.get_initial_state(_B), []
    for t in range(_T):
      before, first = tf.constant(reward[:, t]), t == 0 or done[0, t]
      if t and first and shows_last:
        shown = testing.termination(inputs.observation[:, 0], before)
        state = policy.action(shown, state).state
        before = tf.zeros_like(before)
      kind = int(dm_env.StepType.FIRST if first else dm_env.StepType.MID)
      shown = dm_env.TimeStep(tf.fill([_B], kind), before if t else tf.zeros([_B]),
                          tf.ones([_B]), inputs.observation[:, t + 1])
      done_now = policy.action(shown, state, seed=random.randint(9))
      state = done_now.state
      actions.append(done_now.action)
    actions = tf.stack(actions, axis=1)
    expected, _ = network(
        inputs._replace(action=tf.concat([actions[:, :1], actions], axis=1),
                        done=tf.constant(done)), network.initial_state(_B))
    self.assertAllEqual(actions, tf.argmax(expected.logits, axis=-1))

  @parameterized.parameters((2.0, 0, [0, 2, 4, 6]), (0.5, 7, [7, 7, 8, 9]))
  def test_the_position_can_be_scaled_and_shifted(self, scale, shift, expected):
    _, policy = self._policy(position_scale=scale, position_shift=shift)
    self.assertAllEqual(policy.position(tf.range(4)), expected)

  @pytest.mark.medium
  def test_temperature(self):
    network, _ = self._policy()
    state = policy_lib.DistillationPolicy(
        network, _OBSERVATION_SPEC, _ACTION_SPEC).get_initial_state(400)
    step = testing.restart(tf.zeros([400, 2], tf.uint8), 400)
    share = {}
    for temperature in (0.0, 1.0, 100.0):
      policy = policy_lib.DistillationPolicy(
          network, _OBSERVATION_SPEC, _ACTION_SPEC, temperature=temperature)
      drawn = np.array(policy.action(step, state, seed=1).action)
      share[temperature] = np.bincount(drawn, minlength=3).max() / 400
    self.assertEqual(share[0.0], 1.0)
    self.assertAllClose(share[100.0], 1 / 3, atol=0.08)
    self.assertBetween(share[1.0], share[100.0], 1.0)


if __name__ == '__main__':
  absltest.main()
