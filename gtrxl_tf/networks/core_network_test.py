"""Tests of core_network.py: a memory core in place of TF-Agents' LSTM."""

import functools

from absl.testing import parameterized
import gin
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from tf_agents.agents.reinforce import reinforce_agent
from tf_agents.networks import sequential
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory

from gtrxl_tf import config
from gtrxl_tf import cores
from gtrxl_tf import networks
from gtrxl_tf.networks import core_network
from gtrxl_tf.networks import torsos

_B, _T = 3, 6
_SPEC = tf.TensorSpec([4])
_CORES = {
    'gtrxl': functools.partial(cores.TransformerXL, 1, 8, 2, 4, memory_length=4),
    'lstm': functools.partial(cores.DeepLSTM, 1, 8),
}


def _network(core):
  return core_network.CoreNetwork(
      _SPEC, _CORES[core], functools.partial(torsos.VectorTorso, (8,)))


class CoreNetworkTest(tf.test.TestCase, parameterized.TestCase):

  def test_it_is_exported(self):
    self.assertIs(networks.CoreNetwork, core_network.CoreNetwork)

  @parameterized.parameters(*_CORES)
  def test_unroll_equals_steps(self, core):
    network = _network(core)
    network.create_variables()
    random = np.random.RandomState(0)
    observation = tf.constant(random.randn(_B, _T, 4), tf.float32)
    step_type = tf.constant(random.choice([0, 1, 1, 1], (_B, _T)), tf.int32)
    unrolled, _ = network(observation, step_type)
    state = ()
    for t in range(_T):
      output, state = network(observation[:, t], step_type[:, t], state)
      self.assertAllClose(output, unrolled[:, t], atol=1e-5)

  def test_copy_has_weights_of_its_own(self):
    network = _network('gtrxl')
    network.create_variables()
    other = network.copy()
    other.create_variables()
    self.assertFalse({id(v) for v in network.variables}
                     & {id(v) for v in other.variables})

  def test_it_can_be_made_by_gin(self):
    self.addCleanup(gin.clear_config)
    config.parse([], [
        'CoreNetwork.core = @DeepLSTM', 'CoreNetwork.torso = @VectorTorso',
        'DeepLSTM.num_layers = 1', 'DeepLSTM.hidden_dim = 8'])
    network = networks.CoreNetwork(_SPEC)
    outputs, _ = network(tf.zeros([_B, _T, 4]))
    self.assertEqual(outputs.shape, [_B, _T, 8])

  def test_reinforce_agent_trains_it(self):
    action_spec = tensor_spec.BoundedTensorSpec([], tf.int32, 0, 2)
    actor = sequential.Sequential([
        _network('gtrxl'), tf.keras.layers.Dense(3),
        tf.keras.layers.Lambda(lambda x: tfp.distributions.Categorical(logits=x))
    ], input_spec=_SPEC)
    agent = reinforce_agent.ReinforceAgent(
        ts.time_step_spec(_SPEC), action_spec, actor,
        tf.keras.optimizers.legacy.Adam(1e-2))
    agent.initialize()
    step_type = np.ones((_B, _T), np.int32)
    step_type[:, 0], step_type[:, -1] = 0, 2
    next_step_type = np.roll(step_type, -1, axis=1)
    experience = trajectory.Trajectory(
        step_type=tf.constant(step_type), observation=tf.random.normal((_B, _T, 4)),
        action=tf.ones((_B, _T), tf.int32), policy_info=(),
        next_step_type=tf.constant(next_step_type), reward=tf.random.normal((_B, _T)),
        discount=tf.ones((_B, _T)))
    before = [v.numpy() for v in actor.trainable_variables]
    self.assertTrue(np.isfinite(agent.train(experience).loss))
    changed = [np.any(a != v.numpy())
               for a, v in zip(before, actor.trainable_variables)]
    self.assertTrue(any(changed))


if __name__ == '__main__':
  tf.test.main()
