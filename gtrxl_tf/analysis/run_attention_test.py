"""Tests of run_attention.py."""

import math

from absl.testing import absltest
from dm_env import specs
import numpy as np
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf import networks
from gtrxl_tf import testing
from gtrxl_tf.agents import decision as agent
from gtrxl_tf.analysis import attention
from gtrxl_tf.analysis import films
from gtrxl_tf.analysis import run_attention
from gtrxl_tf.networks import decision

_T, _WINDOW = 7, 4
_OBSERVATION = specs.Array((4,), np.float32)


class ByStepTest(tf.test.TestCase):

  def test_a_window_attends_to_its_own_steps(self):
    tf.keras.utils.set_random_seed(0)
    network = networks.DecisionNetwork(
        testing.DISCRETE, networks.VectorTorso([8]),
        cores.RATE(2, 8, num_heads=2, head_dim=4, mlp_dim=8, segment_length=3 * _WINDOW,
                   num_memory_tokens=0, cache_length=0))
    network.create_variables(_OBSERVATION)
    policy = agent.DecisionPolicy(
        network, _OBSERVATION, testing.DISCRETE, target_return=1.0, window=_WINDOW)
    random = np.random.RandomState(0)
    inputs = decision.Segments(
        tf.constant(random.randn(1, _T), tf.float32),
        tf.constant(random.randn(1, _T, 4), tf.float32), (),
        tf.constant([[True] + [False] * (_T - 1)]), tf.range(_T)[tf.newaxis])
    action = random.randint(3, size=_T)
    weights = run_attention.by_step(network, policy, films.Episode(
        0, [], action, np.zeros(_T), 0.0, math.nan, inputs))
    self.assertEqual(weights.shape, (_T, 2, _T))
    self.assertAllClose(weights.sum(axis=-1), np.ones([_T, 2]))
    step, other = np.indices([_T, _T])
    self.assertAllEqual(
        weights.any(axis=1), (other <= step) & (other > step - _WINDOW))
    # The last step saw the last steps alone.
    window, = attention.attend(network, decision.Segments(
        inputs.return_to_go[:, -_WINDOW:], inputs.observation[:, -_WINDOW:],
        tf.constant(action[tf.newaxis, -_WINDOW:], tf.int32),
        tf.constant([[True] + [False] * (_WINDOW - 1)]), inputs.timestep[:, -_WINDOW:]))
    self.assertAllClose(
        weights[-1, :, -_WINDOW:], attention.by_step([window], tokens_per_step=3)[-1])


if __name__ == '__main__':
  absltest.main()
