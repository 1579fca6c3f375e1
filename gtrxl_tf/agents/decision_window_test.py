"""Tests of window.py, and of windows.py through it."""

import pathlib

from absl.testing import absltest
from dm_env import specs
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf import testing
from gtrxl_tf.agents import decision as policy_lib
from gtrxl_tf.agents import windows as window_lib
from gtrxl_tf.networks import decision
from gtrxl_tf.networks import torsos
from gtrxl_tf.serving import export
from gtrxl_tf.settings import config

_B, _T, _K, _D = 3, 8, 4, 4
_OBSERVATION_SPEC = {'pixels': specs.Array((2, 1), np.uint8),
                     'speed': specs.Array((), np.float32)}


def _network(segment_length=3 * _K, **settings):
  """A Decision Transformer."""
  network = decision.DecisionNetwork(
      testing.HYBRID, torsos.VectorTorso((_D,)),
      cores.RATE(2, _D, 2, 2, mlp_dim=_D, num_memory_tokens=0,
                 segment_length=segment_length), **settings)
  network.create_variables(_OBSERVATION_SPEC)
  random = np.random.RandomState(0)
  for variable in network.trainable_variables:
    variable.assign(0.5 * random.randn(*variable.shape))
  return network


def _inputs(starts):
  """Random steps; `starts` are the steps of each row at which an episode begins."""
  random = np.random.RandomState(1)
  is_first = np.zeros([_B, _T], bool)
  for row, row_starts in zip(is_first, starts):
    row[row_starts] = True
  steps = np.arange(_T)
  timestep = steps - np.maximum.accumulate(np.where(is_first, steps, 0), axis=1)
  return tf.nest.map_structure(tf.constant, decision.Segments(
      return_to_go=random.randn(_B, _T).astype(np.float32),
      observation={'pixels': random.randint(4, size=[_B, _T, 2, 1]).astype(np.uint8),
                   'speed': random.randn(_B, _T).astype(np.float32)},
      action=testing.random_unrolls(2, _B, _T - 1, testing.HYBRID).action,
      is_first=is_first, timestep=timestep.astype(np.int32)))


def _act(acting, inputs, jit_compile=False):
  """The policy at every step, given the actions of `inputs`."""
  step = tf.function(acting.step, autograph=False, jit_compile=jit_compile)
  remember = tf.function(
      acting.remember_action, autograph=False, jit_compile=jit_compile)
  cache, policies = acting.initial_cache(_B), []
  for t in range(_T):
    at_t = tf.nest.map_structure(lambda x: x[:, t], inputs)
    policy, cache = step(at_t.return_to_go, at_t.observation, at_t.is_first, cache,
                         at_t.timestep)
    cache = remember(at_t.action, cache, at_t.timestep)
    policies.append(policy)
  return tf.nest.map_structure(lambda *x: tf.stack(x, axis=1).numpy(), *policies)


def _unroll_windows(network, inputs):
  """The policy at every step, from a separate unroll over its last K steps."""
  is_first = inputs.is_first.numpy()
  windows, places = [], []
  for row in range(_B):
    for t in range(_T):
      start = max(t + 1 - _K, np.flatnonzero(is_first[row, :t + 1])[-1])
      windows.append(tf.nest.map_structure(
          # pylint: disable-next=cell-var-from-loop
          lambda x: np.resize(x[row, start:t + 1], [_K, *x.shape[2:]]), inputs))
      places.append(t - start)
  windows = tf.nest.map_structure(lambda *x: tf.constant(np.stack(x)), *windows)
  begins = tf.constant([[True] + [False] * (_K - 1)] * len(places))
  policies, _ = network(
      windows._replace(is_first=begins), network.initial_state(len(places)))
  return tf.nest.map_structure(
      lambda x: np.reshape([x[i, place] for i, place in enumerate(places)],
                           [_B, _T, -1]), policies)


class DecisionWindowTest(tf.test.TestCase):

  def assert_equal_policies(self, policies, expected):
    tf.nest.map_structure(
        lambda x, y: self.assertAllClose(x, y, atol=1e-5), policies, expected)

  @pytest.mark.medium
  def test_within_the_window_it_equals_the_networks_step(self):
    network, inputs = _network(), _inputs([[0, 4, 6], [0, 2, 5], [0, 1, 4, 7]])
    window = window_lib.DecisionWindow(network, _K)
    self.assert_equal_policies(_act(window, inputs), _act(network, inputs))

  @pytest.mark.medium
  def test_it_equals_an_unroll_over_the_last_steps(self):
    inputs = _inputs([[0], [0, 5], [0, 1, 6]])
    for settings in {}, {'num_timesteps': 6}:
      network = _network(**settings)
      window = window_lib.DecisionWindow(network, _K)
      self.assert_equal_policies(
          _act(window, inputs, jit_compile=True), _unroll_windows(network, inputs))

  @pytest.mark.medium
  def test_an_oracle_tells_at_an_episodes_first_step_what_it_saw(self):
    def oracle(observation):
      return tf.cast(observation['speed'] > 0, tf.float32)

    network = decision.DecisionNetwork(
        testing.HYBRID, torsos.VectorTorso((_D,)),
        cores.RATE(2, _D, 2, 2, mlp_dim=_D, num_memory_tokens=1, retention='none',
                   segment_length=3 * _K), oracle=oracle)
    network.create_variables(_OBSERVATION_SPEC)
    starts = [[0], [0, 5], [0, 1, 6]]
    inputs = _inputs(starts)
    policies = _act(window_lib.DecisionWindow(network, _K), inputs, jit_compile=True)
    # What was told stands in for the memory, however far the window has moved.
    means = []
    for row in range(_B):
      for t in range(_T):
        begin = max(s for s in starts[row] if s <= t)
        first = max(t + 1 - _K, begin)
        steps = tf.nest.map_structure(
            # pylint: disable-next=cell-var-from-loop
            lambda x: np.resize(x[row, first:t + 1], [1, _K, *x.shape[2:]]), inputs)
        told = float(inputs.observation['speed'][row, begin] > 0)
        state = network.initial_state(1)
        state = state._replace(
            memory=told * network.core.initial_memory[tf.newaxis],
            begun=tf.constant([True]))
        policy, _ = network.read(
            network.embed(steps), tf.zeros([1, _K], tf.bool), state)
        means.append(policy.mean[0, t - first])
    self.assertAllClose(policies.mean.reshape([_B * _T, -1]), means, atol=1e-5)

  def test_refuses_a_window_that_cuts_a_segment(self):
    with self.assertRaisesRegex(config.ConfigError, 'a window of 5 .* of 12 tokens'):
      window_lib.DecisionWindow(_network(), 5)

  @pytest.mark.long
  def test_the_policy_and_its_export_use_it(self):
    policy = policy_lib.DecisionPolicy(
        _network(segment_length=6), _OBSERVATION_SPEC, testing.HYBRID,
        target_return=1.0, window=2)
    path = pathlib.Path(self.create_tempdir().full_path) / 'policy'
    export.save_policy(policy, path)
    loaded = tf.saved_model.load(str(path))
    inputs = _inputs([[0]] * _B)

    def play(policy, first):
      """The actions from step `first` on."""
      state, actions = policy.get_initial_state(_B), []
      for t in range(first, 5):
        observation = tf.nest.map_structure(lambda x: x[:, t], inputs.observation)
        time_step = (testing.restart(observation, _B) if t == first
                     else testing.transition(observation, tf.zeros([_B])))
        done = policy.action(time_step, state)
        state = done.state
        actions.append(done.action['move'])
      return tf.stack(actions).numpy()

    actions = play(policy, 0)
    self.assertAllClose(play(loaded, 0), actions, atol=1e-5)
    self.assertNotAllClose(actions[4], play(policy, 4)[0], atol=1e-3)


if __name__ == '__main__':
  absltest.main()
