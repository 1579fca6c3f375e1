"""Tests of core_network.py: a memory core in place of TF-Agents' LSTM."""

import functools

from absl.testing import parameterized
import gin
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from tf_agents.agents.dqn import dqn_agent
from tf_agents.agents.ppo import ppo_clip_agent
from tf_agents.agents.reinforce import reinforce_agent
from tf_agents.networks import categorical_projection_network
from tf_agents.networks import encoding_network
from tf_agents.networks import sequential
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory

from gtrxl_tf import cores
from gtrxl_tf import networks
from gtrxl_tf.networks import core_network
from gtrxl_tf.networks import torsos
from gtrxl_tf.settings import config

_B, _T = 3, 6
_SPEC = tf.TensorSpec([4])
_CORES = {
    'gtrxl': functools.partial(cores.TransformerXL, 1, 8, 2, 4, memory_length=4),
    'lstm': functools.partial(cores.DeepLSTM, 1, 8),
}


def _network(core, head=None):
  return core_network.CoreNetwork(
      _SPEC, _CORES[core], functools.partial(torsos.VectorTorso, (8,)), head=head)


class _Value(tf.keras.layers.Dense):

  def __init__(self):
    super().__init__(1)

  def call(self, inputs):
    return tf.squeeze(super().call(inputs), -1)


def _experience(agent):
  """A batch of whole episodes, acted by the agent's own policy: `[B, T, ...]`."""
  random = np.random.RandomState(0)
  step_types = [0] + [1] * (_T - 2) + [2, 0]
  time_steps = [ts.TimeStep(
      step_type=tf.fill([_B], step_type), reward=tf.ones([_B]), discount=tf.ones([_B]),
      observation=tf.constant(random.randn(_B, 4), tf.float32))
                for step_type in step_types]
  policy = agent.collect_policy
  state, steps = policy.get_initial_state(_B), []
  for now, after in zip(time_steps, time_steps[1:]):
    action = policy.action(now, state)
    steps.append(trajectory.from_transition(now, action, after))
    state = action.state
  return tf.nest.map_structure(lambda *x: tf.stack(x, axis=1), *steps)


class CoreNetworkTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.parameters(*_CORES)
  @pytest.mark.medium
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

  def test_it_can_be_made_by_gin(self):
    self.addCleanup(gin.clear_config)
    config.parse([], [
        'CoreNetwork.core = @DeepLSTM', 'CoreNetwork.torso = @VectorTorso',
        'DeepLSTM.num_layers = 1', 'DeepLSTM.hidden_dim = 8'])
    network = networks.CoreNetwork(_SPEC)  # Its public name.
    outputs, _ = network(tf.zeros([_B, _T, 4]))
    self.assertEqual(outputs.shape, [_B, _T, 8])

  @pytest.mark.medium
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
    self.check_training(agent, actor)

  @parameterized.parameters(*_CORES)
  @pytest.mark.medium
  def test_a_graph_carries_the_state(self, core):
    network = _network(core)
    network.create_variables()
    step = tf.function(network)
    observation, step_type = tf.ones([_B, 4]), tf.ones([_B], tf.int32)
    state = network.get_initial_state(_B)
    for _ in range(2):
      output, next_state = step(observation, step_type, state)
      expected, state = network(observation, step_type, state)
      self.assertAllClose(output, expected, atol=1e-5)
      tf.nest.map_structure(
          lambda x, y: self.assertAllClose(x, y, atol=1e-5), next_state, state)

  def test_a_head_is_applied_to_steps_and_unrolls(self):
    network = _network('lstm', lambda: {
        'value': _Value(), 'logits': tf.keras.layers.Dense(3)})
    for leading in ([_B], [_B, _T]):
      outputs, _ = network(tf.ones([*leading, 4]), tf.ones(leading, tf.int32))
      self.assertEqual(outputs['value'].shape, leading)
      self.assertEqual(outputs['logits'].shape, [*leading, 3])

  def test_an_encoding_network_embeds_a_nest_of_observations(self):
    spec = {'image': tf.TensorSpec([4, 4, 1]),
            'kind': tensor_spec.BoundedTensorSpec([], tf.int32, 0, 4)}
    encoder = functools.partial(
        encoding_network.EncodingNetwork, spec, preprocessing_layers={
            'image': tf.keras.layers.Flatten(),
            'kind': tf.keras.layers.Embedding(5, 3)},
        preprocessing_combiner=tf.keras.layers.Concatenate(), fc_layer_params=(8,))
    network = core_network.CoreNetwork(spec, _CORES['gtrxl'], encoder)
    network.create_variables()
    for leading in ([_B], [_B, _T]):
      observation = {'image': tf.ones([*leading, 4, 4, 1]),
                     'kind': tf.ones(leading, tf.int32)}
      outputs, _ = network(observation, tf.ones(leading, tf.int32))
      self.assertEqual(outputs.shape, [*leading, 8])
    other = network.copy()
    other.create_variables()
    self.assertFalse({id(v) for v in network.variables}
                     & {id(v) for v in other.variables})

  def test_a_core_with_segments_is_refused(self):
    with self.assertRaisesRegex(
        config.ConfigError, 'CoreNetwork.core makes a RATE with segments of'):
      core_network.CoreNetwork(_SPEC, functools.partial(
          cores.RATE, 1, 8, 2, 4, segment_length=3))

  @parameterized.parameters(
      (dict(core=cores.DeepLSTM(1, 8)), 'CoreNetwork.core = <.*: expected a function that'),
      (dict(torso=torsos.VectorTorso([4])), 'CoreNetwork.torso = <.*: expected a function'),
      (dict(head=[tf.keras.layers.Dense]), r'CoreNetwork.head = \[.*: expected a function'),
      (dict(torso=functools.partial(tf.keras.layers.Dense, 8)),
       'CoreNetwork.torso makes a Dense: expected a Torso, such as VectorTorso, or'),
      (dict(core=torsos.VectorTorso), 'CoreNetwork.core makes a VectorTorso: expected a c'))
  def test_layers_in_place_of_functions_are_refused(self, arguments, message):
    with self.assertRaisesRegex(config.ConfigError, message):
      core_network.CoreNetwork(_SPEC, **arguments)

  def check_training(self, agent, network):
    before = [v.numpy() for v in network.trainable_variables]
    self.assertTrue(np.isfinite(agent.train(_experience(agent)).loss))
    changed = [np.any(a != v.numpy())
               for a, v in zip(before, network.trainable_variables)]
    self.assertTrue(any(changed))

  @parameterized.parameters(*_CORES)
  @pytest.mark.medium
  def test_ppo_trains_an_actor_and_a_value_network(self, core):
    action_spec = tensor_spec.BoundedTensorSpec([], tf.int32, 0, 2)
    actor, value = _network(core, functools.partial(
        categorical_projection_network.CategoricalProjectionNetwork, action_spec)
    ), _network(core, _Value)
    agent = ppo_clip_agent.PPOClipAgent(
        ts.time_step_spec(_SPEC), action_spec, tf.keras.optimizers.Adam(1e-2),
        actor_net=actor, value_net=value, num_epochs=1)
    agent.initialize()
    self.check_training(agent, actor)
    self.check_training(agent, value)

  @parameterized.parameters(*_CORES)
  @pytest.mark.medium
  def test_dqn_trains_it_beside_a_target_network(self, core):
    network = _network(core, functools.partial(tf.keras.layers.Dense, 3))
    agent = dqn_agent.DqnAgent(
        ts.time_step_spec(_SPEC), tensor_spec.BoundedTensorSpec([], tf.int32, 0, 2),
        network, tf.keras.optimizers.Adam(1e-2))
    agent.initialize()
    target = agent._target_q_network  # pylint: disable=protected-access
    for x, y in zip(network.variables, target.variables):
      self.assertIsNot(x, y)
      self.assertAllEqual(x, y)
    self.check_training(agent, network)


if __name__ == '__main__':
  tf.test.main()
