"""Tests of network.py."""

from absl.testing import absltest
from absl.testing import parameterized
from dm_env import specs
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf import testing
from gtrxl_tf.networks import decision
from gtrxl_tf.networks import torsos
from gtrxl_tf.settings import config

B, T, D = 2, 6, 8
CORES = {
    'TransformerXL': lambda: cores.TransformerXL(2, D, 2, 4, memory_length=9),
    'DeepLSTM': lambda: cores.DeepLSTM(2, D),
    'Memoryless': lambda: cores.Memoryless(1, D),
}


def _network(core, action_spec=testing.DISCRETE, **settings):
  network = decision.DecisionNetwork(
      action_spec, torsos.VectorTorso((D,)), CORES[core](), **settings)
  network.create_variables(specs.Array((4,), np.float32))
  random = np.random.RandomState(0)
  for variable in network.trainable_variables:
    variable.assign(0.5 * random.randn(*variable.shape))
  return network


def _inputs(action_spec=testing.DISCRETE):
  unrolls = testing.random_unrolls(0, B, T - 1, action_spec)
  random = np.random.RandomState(1)
  is_first = np.zeros([B, T], bool)
  is_first[0, 0] = is_first[1, 3] = True
  return decision.Segments(
      return_to_go=tf.constant(random.randn(B, T), tf.float32),
      observation=unrolls.observation, action=unrolls.action,
      is_first=tf.constant(is_first))


def _unroll(network, inputs):
  return network(inputs, network.initial_state(B))[0]


class DecisionNetworkTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.product(core=list(CORES), jit_compile=[False, True])
  @pytest.mark.medium
  def test_steps_equal_the_unroll(self, core, jit_compile):
    network = _network(core, testing.HYBRID, normalize_observations=True)
    network.observation_statistics.assign(np.full(4, 0.3), np.full(4, 2.))
    inputs = _inputs(testing.HYBRID)
    step = tf.function(network.step, autograph=False, jit_compile=jit_compile)
    remember = tf.function(
        network.remember_action, autograph=False, jit_compile=jit_compile)
    cache, policies = network.initial_cache(B), []
    for t in range(T):
      at_t = tf.nest.map_structure(lambda x: x[:, t], inputs)
      policy, cache = step(
          at_t.return_to_go, at_t.observation, at_t.is_first, cache)
      cache = remember(at_t.action, cache)
      policies.append(policy)
    stepped = tf.nest.map_structure(lambda *x: tf.stack(x, axis=1), *policies)
    tf.nest.map_structure(
        lambda x, y: self.assertAllClose(x, y, atol=1e-5),
        stepped, _unroll(network, inputs))

  @parameterized.parameters(
      # An action affects the steps after it, the rest also its own step.
      ('return_to_go', 2), ('observation', 2), ('action', 3))
  @pytest.mark.medium
  def test_a_policy_depends_on_what_precedes_its_action(self, field, first_seen):
    network, inputs = _network('TransformerXL'), _inputs()
    x = getattr(inputs, field).numpy()
    x[:, 2] = 2 - x[:, 2]
    other = inputs._replace(**{field: tf.constant(x)})
    differs = np.any(
        _unroll(network, inputs).logits != _unroll(network, other).logits, axis=-1)
    self.assertAllEqual(differs[0], np.arange(T) >= first_seen)
    # In the second row an episode begins at step 3.
    self.assertAllEqual(differs[1], [False] * first_seen + [True] * (3 - first_seen)
                        + [False] * 3)

  @pytest.mark.medium
  def test_it_need_not_see_actions(self):
    network, inputs = _network('TransformerXL', see_actions=False), _inputs()
    other = inputs._replace(action=(inputs.action + 1) % testing.DISCRETE.num_values)
    self.assertAllEqual(_unroll(network, inputs).logits, _unroll(network, other).logits)
    self.assertAllEqual(network.embed(inputs)[:, :, 2], tf.zeros([B, T, D]))
    self.assertLen(network.variables, len(_network('TransformerXL').variables) - 2)

  @pytest.mark.medium
  def test_its_core_uses_dropout_in_training(self):
    network = decision.DecisionNetwork(
        testing.DISCRETE, torsos.VectorTorso((D,)),
        cores.TransformerXL(1, D, 2, 4, memory_length=9, dropout=0.3))
    network.create_variables(specs.Array((4,), np.float32))
    inputs = _inputs()
    run = tf.function(
        lambda **settings: network(inputs, network.initial_state(B), **settings)[0],
        autograph=False)
    self.assertNotAllClose(run(training=True).logits, run().logits, atol=1e-2)
    self.assertAllEqual(run(training=False).logits, run().logits)

  def test_tokens_can_be_squashed(self):
    network = _network('Memoryless', squash=True)
    inputs = _inputs()
    huge = inputs._replace(return_to_go=1e6 * tf.abs(inputs.return_to_go))
    more = inputs._replace(return_to_go=1e7 * tf.abs(inputs.return_to_go))
    self.assertAllEqual(_unroll(network, huge).logits, _unroll(network, more).logits)

  def test_tokens_have_an_embedding_of_their_timestep(self):
    network = _network('DeepLSTM', num_timesteps=4)
    with self.assertRaisesRegex(ValueError, 'timestep is left out: .*num_timesteps = 4'):
      network.embed(_inputs()._replace(timestep=()))
    timestep = tf.constant([[0, 1, 2, 3, 4, 5], [7, 8, 9, 0, 1, 2]])
    inputs = _inputs()._replace(timestep=timestep)
    tokens = network.embed(inputs)
    plain = network.embed(inputs._replace(timestep=tf.zeros_like(timestep)))
    table = network.timestep_table.numpy()
    expected = (table[np.minimum(timestep, 3)] - table[0])[:, :, np.newaxis]
    self.assertAllClose(tokens - plain, np.repeat(expected, 3, axis=2), atol=1e-5)
    # Steps compute the same.
    cache, logits = network.initial_cache(B), []
    for t in range(T):
      at_t = tf.nest.map_structure(lambda x: x[:, t], inputs)
      policy, cache = network.step(
          at_t.return_to_go, at_t.observation, at_t.is_first, cache, at_t.timestep)
      cache = network.remember_action(at_t.action, cache, at_t.timestep)
      logits.append(policy.logits)
    self.assertAllClose(
        _unroll(network, inputs).logits, tf.stack(logits, axis=1), atol=1e-5)

  def test_observations_can_be_squashed(self):
    network = _network('Memoryless', squash_observations=True)
    tokens = network.embed_observation(_inputs().observation, 2)
    plain = _network('Memoryless').embed_observation(_inputs().observation, 2)
    self.assertAllClose(tokens, tf.tanh(plain))

  @pytest.mark.medium
  def test_an_oracles_vector_encloses_the_context(self):
    def make(core, **settings):
      network = decision.DecisionNetwork(
          testing.DISCRETE, torsos.VectorTorso((D,)), core, **settings)
      network.create_variables(specs.Array((4,), np.float32))
      return network

    def rate(num_memory_tokens=1, segment_length=3 * T):
      return cores.RATE(
          2, D, 2, 4, mlp_dim=D, num_memory_tokens=num_memory_tokens,
          retention='none', segment_length=segment_length, variant='trxl_i')

    def oracle(observation):
      return tf.cast(observation[:, 1] > 0, tf.float32)

    network, plain = make(rate(), oracle=oracle), make(rate())
    plain.set_weights(network.get_weights())
    inputs = _inputs()
    inputs = inputs._replace(is_first=tf.constant([[True] + [False] * (T - 1)] * B))
    observation = inputs.observation.numpy()
    observation[:, 0, 1] = [1.0, -1.0]
    inputs = inputs._replace(observation=tf.constant(observation))
    logits = _unroll(network, inputs).logits
    # A core whose own memory token is the vector computes the same.
    for row, bit in enumerate((1.0, 0.0)):
      plain.core.initial_memory.assign(bit * network.core.initial_memory)
      self.assertAllClose(_unroll(plain, inputs).logits[row], logits[row], atol=1e-5)
      self.assertNotAllClose(
          _unroll(plain, inputs).logits[1 - row], logits[1 - row], atol=1e-3)
    # Only the first observation is asked.
    observation[:, 1:, 1] *= -1
    asked = []
    network.oracle = lambda x: asked.append(x.numpy()) or oracle(x)
    _unroll(network, inputs._replace(observation=tf.constant(observation)))
    self.assertAllEqual(asked, [observation[:, 0]])
    for core in rate(num_memory_tokens=0), CORES['TransformerXL']():
      with self.assertRaisesRegex(config.ConfigError, 'RATE with memory tokens'):
        make(core, oracle=oracle)
    with self.assertRaisesRegex(config.ConfigError, 'with 6 steps'):
      _unroll(make(rate(segment_length=3 * T // 2), oracle=oracle), inputs)

  def test_refuses_a_core_whose_segments_cut_a_step(self):
    core = cores.SegmentTransformer(1, D, 2, 4, 8, segment_length=4)
    with self.assertRaisesRegex(config.ConfigError, 'segments of 4 tokens'):
      decision.DecisionNetwork(testing.DISCRETE, torsos.VectorTorso((D,)), core)


if __name__ == '__main__':
  absltest.main()
