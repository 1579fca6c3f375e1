"""Tests that agents learn in bfloat16, with all sums in float32."""

from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
from dm_env import specs
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf import networks
from gtrxl_tf.agents import cql
from gtrxl_tf.losses import vmpo
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.training import devices
from gtrxl_tf.training import tiny_agents_testing

# The rounding error of numbers near 1 in bfloat16.
_ROUNDING = 2.0 ** -8


def _gradient(name, dtype):
  """Returns a tiny agent, its metrics, and the flat gradient of its loss."""
  make, batch = tiny_agents_testing.AGENTS[name]
  with devices.compute_dtype(dtype):
    agent = make()
  with tf.GradientTape() as tape:
    loss, metrics = agent.loss(batch(0))
  gradients = tape.gradient(loss, agent.learned_variables)
  assert loss.dtype == tf.float32
  assert {x.dtype for x in gradients} == {tf.float32}
  return agent, metrics, np.concatenate([np.ravel(x) for x in gradients])


class PrecisionTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.parameters(*tiny_agents_testing.AGENTS)
  @pytest.mark.medium
  def test_a_step_in_bfloat16_is_near_that_in_float32(self, name):
    _, expected, exact = _gradient(name, 'float32')
    agent, metrics, gradient = _gradient(name, 'bfloat16')
    for x in tf.nest.flatten((metrics, agent.variables)):
      self.assertIn(x.dtype, (tf.float32, tf.bool, tf.int32, tf.int64))
    self.assertNear(metrics['loss'], expected['loss'], 0.05 * abs(expected['loss']))
    self.assertNotAllClose(gradient, exact, atol=1e-4 * np.linalg.norm(exact))
    cosine = gradient @ exact / np.linalg.norm(gradient) / np.linalg.norm(exact)
    self.assertGreater(cosine, 0.98)

  def test_a_target_network_computes_as_its_network(self):
    with devices.compute_dtype('bfloat16'):
      network = networks.CQLNetwork(
          specs.DiscreteArray(3), networks.VectorTorso([8]),
          cores.TransformerXL(1, 8, 2, 4, memory_length=2))
      network.create_variables(specs.Array([4], np.float32))
      agent = cql.CQLAgent(network)
    inputs = tf.nest.map_structure(
        lambda x: tf.stack([x] * 3, axis=1),
        actor_critic.zero_inputs(specs.Array([4], np.float32), network.action_space))
    inputs = inputs._replace(observation=tf.random.normal([1, 3, 4]))
    self.assertAllEqual(*(made(inputs, network.initial_state(1))[0]
                          for made in (network, agent.target)))

  def test_observations_are_normalized_in_float32(self):
    with devices.compute_dtype('bfloat16'):
      network = networks.ActorCritic(
          specs.DiscreteArray(3), networks.VectorTorso([16]), cores.Memoryless(1, 16),
          normalize_observations=True)
      network.create_variables(specs.Array((1,), np.float32))
    network.observation_statistics.mean.assign([1000.])
    values = []
    for x in 1000., 1000.5:
      inputs = networks.NetworkInputs(
          tf.fill([1, 1, 1], x), tf.zeros([1, 1], tf.int32), tf.zeros([1, 1]),
          tf.zeros([1, 1], tf.bool))
      outputs, _ = network(inputs, network.initial_state(1))
      values.append(outputs.value.numpy().item())
    self.assertNotAlmostEqual(*values, delta=0.01)  # Both are 1000 in bfloat16.

  def test_v_mpo_weighs_advantages_and_divergences_in_float32(self):
    with mock.patch.object(vmpo, 'vmpo_loss', wraps=vmpo.vmpo_loss) as loss:
      _gradient('vmpo', 'bfloat16')
    arguments = loss.call_args.kwargs
    (kl, _, _), = arguments['kl_constraints']
    for x in kl, arguments['advantages'], arguments['log_probs']:
      self.assertEqual(x.dtype, tf.float32)
      # Not rounded on the way either.
      self.assertNotAllClose(
          x, tf.cast(tf.cast(x, tf.bfloat16), tf.float32), rtol=0.01 * _ROUNDING,
          atol=0)


if __name__ == '__main__':
  absltest.main()
