import functools

from absl.testing import absltest
from absl.testing import parameterized
from dm_env import specs
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import heads
from gtrxl_tf.networks import language
from gtrxl_tf.networks import predictor
from gtrxl_tf.networks import spec_torso
from gtrxl_tf.networks import torsos
from gtrxl_tf.settings import config

B, T, A = 2, 7, 4

ACTION_SPEC = specs.DiscreteArray(A)
OBSERVATION_SPEC = {'instruction': specs.Array([3], np.int32),
                    'rgb': specs.Array([8, 8, 3], np.uint8)}

CORES = {
    'TransformerXL': lambda: cores.TransformerXL(
        num_layers=2, model_dim=8, num_heads=2, head_dim=4, memory_length=3),
    'DeepLSTM': lambda: cores.DeepLSTM(num_layers=2, hidden_dim=8),
    'MERLIN': lambda: cores.MERLIN(
        num_rows=3, latent_dim=4, num_layers=1, hidden_dim=8),
    'Memoryless': lambda: cores.Memoryless(num_layers=1, hidden_dim=8),
}


def make_network(core='TransformerXL', **settings):
  """A network on images and instructions; its variables exist."""
  network = actor_critic.ActorCritic(
      ACTION_SPEC, torsos.PixelTorso(channels=(2, 2), units=8), CORES[core](),
      instruction_encoder=language.InstructionEncoder(10, 2, 4), **settings)
  network.create_variables(OBSERVATION_SPEC)
  return network


# For tests that change no variable: building takes longer than running.
shared_network = functools.cache(make_network)


def make_inputs():
  """An unroll that contains the end of an episode."""
  random = np.random.RandomState(0)
  is_first = np.zeros([B, T], bool)
  is_first[0, 4] = is_first[1, 0] = True
  inputs = actor_critic.NetworkInputs(
      observation={
          'instruction': random.randint(0, 11, [B, T, 3]).astype(np.int32),
          'rgb': random.randint(0, 256, [B, T, 8, 8, 3]).astype(np.uint8)},
      previous_action=random.randint(0, A, [B, T]).astype(np.int32),
      reward=random.normal(size=[B, T]).astype(np.float32),
      is_first=is_first)
  return tf.nest.map_structure(tf.constant, inputs)


def unroll(network, inputs):
  outputs, _ = network(inputs, network.initial_state(B))
  return outputs


def steps(network, inputs):
  """The outputs of T steps in the form of an unroll's."""
  cache = network.initial_cache(B)
  outputs = []
  for t in range(T):
    output, cache = network.step(
        tf.nest.map_structure(lambda x: x[:, t], inputs), cache)
    outputs.append(output)
  return tf.nest.map_structure(lambda *x: tf.stack(x, axis=1), *outputs)


class ActorCriticTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.parameters(*CORES)
  @pytest.mark.medium
  def test_unroll_equals_steps(self, core):
    network = shared_network(core, num_values=3)
    unrolled = unroll(network, make_inputs())
    stepped = steps(network, make_inputs())
    self.assertEqual(unrolled.value.shape, [B, T, 3])
    self.assertAllClose(unrolled.policy.logits, stepped.policy.logits, atol=1e-5)
    self.assertAllClose(unrolled.value, stepped.value, atol=1e-5)

  @parameterized.parameters(*CORES)
  @pytest.mark.medium
  def test_unroll_equals_two_of_half_the_length(self, core):
    network = shared_network(core, num_values=3)
    inputs = make_inputs()
    first, state = network(
        tf.nest.map_structure(lambda x: x[:, :3], inputs), network.initial_state(B))
    second, _ = network(tf.nest.map_structure(lambda x: x[:, 3:], inputs), state)
    self.assertAllClose(tf.concat([first.value, second.value], axis=1),
                        unroll(network, inputs).value, atol=1e-5)

  def test_shapes(self):
    outputs = unroll(shared_network('TransformerXL'), make_inputs())
    self.assertEqual(outputs.policy.logits.shape, [B, T, A])
    self.assertEqual(outputs.value.shape, [B, T, 1])
    self.assertEqual(outputs.pixel_control, ())

  @pytest.mark.medium
  def test_pixel_control_in_unrolls_only(self):
    network = make_network(
        pixel_control_head=heads.PixelControlHead(A, hidden_shape=(2, 3, 4)))
    self.assertEqual(
        unroll(network, make_inputs()).pixel_control.shape, [B, T, 4, 6, A])
    self.assertEqual(steps(network, make_inputs()).pixel_control, ())

  def test_sees_the_previous_action_and_reward(self):
    network = shared_network('Memoryless')
    inputs = make_inputs()
    outputs = unroll(network, inputs)
    for changed in (
        inputs._replace(previous_action=(inputs.previous_action + 1) % A),
        inputs._replace(reward=inputs.reward + 1)):
      differs = np.any(
          unroll(network, changed).policy.logits != outputs.policy.logits, axis=-1)
      self.assertAllEqual(differs, ~inputs.is_first)

  @parameterized.parameters(unroll, steps)
  @pytest.mark.medium
  def test_first_steps_ignore_any_value_of_them(self, run):
    network = shared_network('TransformerXL')
    inputs = make_inputs()
    changed = inputs._replace(
        previous_action=tf.where(inputs.is_first, 99, inputs.previous_action),
        reward=tf.where(inputs.is_first, np.nan, inputs.reward))
    self.assertAllEqual(
        run(network, inputs).policy.logits, run(network, changed).policy.logits)

  @parameterized.parameters('observation', 'previous_action', 'reward')
  def test_refuses_inputs_of_another_batch_size(self, name):
    inputs = make_inputs()
    inputs = inputs._replace(**{
        name: tf.nest.map_structure(lambda x: x[1:], getattr(inputs, name))})
    with self.assertRaisesRegex(
        ValueError, rf'{name} of shape .*: expected \({B}, {T}\) as its first axes'):
      unroll(shared_network('Memoryless'), inputs)

  def test_does_not_see_them_if_switched_off(self):
    network = make_network(previous_action_and_reward=False)
    inputs = make_inputs()
    changed = inputs._replace(
        previous_action=(inputs.previous_action + 1) % A, reward=inputs.reward + 1)
    self.assertAllEqual(
        unroll(network, inputs).policy.logits, unroll(network, changed).policy.logits)

  def test_sees_the_instruction(self):
    network = shared_network('Memoryless')
    inputs = make_inputs()
    observation = {**inputs.observation, 'instruction': tf.ones([B, T, 3], tf.int32)}
    changed = inputs._replace(observation=observation)
    self.assertNotAllClose(
        unroll(network, inputs).policy.logits, unroll(network, changed).policy.logits)

  def test_observation_may_be_a_single_array(self):
    network = actor_critic.ActorCritic(
        ACTION_SPEC, torsos.VectorTorso(), CORES['DeepLSTM']())
    network.create_variables(specs.Array([5], np.float64))
    inputs = make_inputs()._replace(observation=tf.zeros([B, T, 5], tf.float64))
    self.assertAllClose(
        unroll(network, inputs).policy.logits, steps(network, inputs).policy.logits)

  @parameterized.product(normalizes=[False, True], by_spec=[False, True])
  def test_numbers_are_scaled_once(self, normalizes, by_spec):
    spec = {'energy': specs.BoundedArray((2,), np.float32, 0, 2e6),
            'time': specs.BoundedArray((), np.int64, 0, 10 ** 6)}
    features = functools.partial(torsos.VectorTorso, ())
    network = actor_critic.ActorCritic(
        specs.DiscreteArray(3),
        spec_torso.SpecTorso(spec, features) if by_spec else features(),
        cores.Memoryless(1, 4), previous_action_and_reward=False, head_units=4,
        normalize_observations=normalizes)
    network.create_variables(spec)
    random = np.random.RandomState(0)
    observation = {'energy': tf.constant(random.uniform(0, 2e6, [40, 5, 2]), tf.float32),
                   'time': tf.constant(random.randint(0, 10 ** 6, [40, 5]))}
    if normalizes:
      statistics = network.observation_statistics
      statistics.update(statistics.sums(observation))
    x = network._embed(actor_critic.NetworkInputs(
        observation, tf.zeros([40, 5], tf.int32), tf.zeros([40, 5]),
        tf.zeros([40, 5], tf.bool)), batch_dims=2)
    if normalizes:
      self.assertAllClose(np.std(x, axis=(0, 1)), [1, 1, 1], atol=1e-3)
    else:
      self.assertAllClose(x[..., :2], observation['energy'] / 2e6)
      self.assertAllClose(x[..., 2], observation['time'] / 10 ** 6)

  def test_create_variables_must_come_first(self):
    network = actor_critic.ActorCritic(
        ACTION_SPEC, torsos.VectorTorso(), CORES['DeepLSTM'](), name='mine',
        normalize_observations=True)
    inputs = make_inputs()._replace(observation=tf.zeros([B, T, 5]))
    with self.assertRaisesRegex(ValueError, '^mine has no variables yet'):
      unroll(network, inputs)

  @parameterized.parameters(*CORES)
  @pytest.mark.medium
  def test_create_variables_creates_all(self, core):
    network = make_network(
        core, pixel_control_head=heads.PixelControlHead(A, hidden_shape=(2, 3, 4)))
    names = [v.name for v in network.variables]
    inputs = make_inputs()
    with tf.GradientTape() as tape:
      outputs = unroll(network, inputs)
      loss = sum(tf.reduce_sum(x ** 2) for x in tf.nest.flatten(outputs))
    network.create_variables(OBSERVATION_SPEC)  # A second call does nothing.
    self.assertEqual([v.name for v in network.variables], names)
    for variable, gradient in zip(network.trainable_variables,
                                  tape.gradient(loss, network.trainable_variables)):
      self.assertIsNotNone(gradient, variable.name)

  @pytest.mark.long
  def test_creates_variables_on_every_replica(self):
    devices = [device.name for device in tf.config.list_logical_devices('CPU')]
    strategy = tf.distribute.MirroredStrategy(devices)
    with strategy.scope():
      network = make_network()
    for variable in network.variables:
      self.assertLen(variable.values, len(devices))
    outputs = strategy.run(tf.function(unroll), args=(network, make_inputs()))
    for value in strategy.experimental_local_results(outputs.value):
      self.assertAllClose(value, unroll(network, make_inputs()).value, atol=1e-5)

  @pytest.mark.long
  def test_runs_under_xla(self):
    network = shared_network('TransformerXL')
    inputs = make_inputs()
    compiled = tf.function(network, jit_compile=True)
    outputs, _ = compiled(inputs, network.initial_state(B))
    self.assertAllClose(
        outputs.policy.logits, unroll(network, inputs).policy.logits, atol=1e-5)

  def test_refuses_pixel_control_of_continuous_actions(self):
    with self.assertRaisesRegex(config.ConfigError, 'expected a DiscreteArray'):
      actor_critic.ActorCritic(specs.BoundedArray([2], np.float32, -1, 1),
                               torsos.VectorTorso(), CORES['Memoryless'](),
                               pixel_control_head=heads.PixelControlHead(2))

  def test_refuses_pixel_control_of_other_actions(self):
    with self.assertRaisesRegex(config.ConfigError, 'num_actions = 9'):
      make_network(pixel_control_head=heads.PixelControlHead(9))

  @parameterized.parameters(
      (specs.Array([2], np.float32),), ({'rgb': specs.Array([2], np.float32)},))
  def test_refuses_an_observation_without_the_instruction(self, spec):
    network = actor_critic.ActorCritic(
        ACTION_SPEC, torsos.VectorTorso(), CORES['Memoryless'](),
        instruction_encoder=language.InstructionEncoder(10, 2, 4))
    with self.assertRaisesRegex(config.ConfigError, "instruction_key = 'instruction'"):
      network.create_variables(spec)

  def test_refuses_a_predictor_of_another_core(self):
    with self.assertRaisesRegex(config.ConfigError, 'core = DeepLSTM'):
      make_network('DeepLSTM', predictor=predictor.Predictor())


class MixedPrecisionTest(tf.test.TestCase, parameterized.TestCase):

  def setUp(self):
    super().setUp()
    tf.keras.mixed_precision.set_global_policy('mixed_bfloat16')
    self.addCleanup(tf.keras.mixed_precision.set_global_policy, 'float32')

  @parameterized.parameters(*CORES)
  @pytest.mark.medium
  def test_outputs_are_float32(self, core):
    network = make_network(
        core, pixel_control_head=heads.PixelControlHead(A, hidden_shape=(2, 3, 4)))
    unrolled = unroll(network, make_inputs())
    stepped = steps(network, make_inputs())
    for output in tf.nest.flatten((unrolled, stepped)):
      self.assertEqual(output.dtype, tf.float32)
    self.assertAllClose(unrolled.policy.logits, stepped.policy.logits, atol=5e-2)

  def test_errors_of_a_predictor_are_finite_float32(self):
    network = make_network('MERLIN', predictor=predictor.Predictor(8))
    inputs = make_inputs()
    inputs = inputs._replace(
        previous_action=tf.where(inputs.is_first, 99, inputs.previous_action),
        reward=tf.where(inputs.is_first, np.nan, inputs.reward))
    for error in unroll(network, inputs).predictions:
      self.assertEqual(error.dtype, tf.float32)
      self.assertTrue(np.isfinite(error).all())


if __name__ == '__main__':
  absltest.main()
