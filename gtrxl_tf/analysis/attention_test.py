"""Tests of attention.py."""

import math
import pathlib
from unittest import mock

from absl.testing import absltest
from dm_env import specs
from matplotlib import pyplot as plt
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf import testing
from gtrxl_tf.agents import decision as agent
from gtrxl_tf.analysis import attention
from gtrxl_tf.analysis import films
from gtrxl_tf.networks import decision
from gtrxl_tf.networks import torsos
from gtrxl_tf.settings import config

_B, _D, _L, _H = 2, 8, 3, 2
_OBSERVATION = specs.Array((4,), np.float32)


def _rate(**settings):
  return cores.RATE(**{**dict(
      num_layers=_L, model_dim=_D, num_heads=_H, head_dim=3, num_memory_tokens=2,
      cache_length=4, segment_length=6), **settings})


def _network(core):
  tf.keras.utils.set_random_seed(0)
  network = decision.DecisionNetwork(
      testing.DISCRETE, torsos.VectorTorso((_D,)), core)
  network.create_variables(_OBSERVATION)
  random = np.random.RandomState(0)
  for variable in network.trainable_variables:
    variable.assign_add(0.3 * random.randn(*variable.shape))
  return network


def _inputs(length):
  unrolls = testing.random_unrolls(0, _B, length - 1, testing.DISCRETE)
  is_first = np.zeros([_B, length], bool)
  is_first[:, 0] = True
  returns = np.random.RandomState(1).randn(_B, length)
  return decision.Segments(
      tf.constant(returns, tf.float32), unrolls.observation, unrolls.action,
      tf.constant(is_first))


class AttendTest(tf.test.TestCase):

  def test_of_segments_with_an_unfinished_last_one(self):
    network, inputs = _network(_rate()), _inputs(4)
    first, second = attention.attend(
        network, tf.nest.map_structure(lambda x: x[:, :3], inputs))
    memory, steps = ['read'] * 2, ['step'] * 6
    self.assertEqual(first.queries, memory + steps + ['write'] * 2)
    self.assertEqual(first.keys, ['cache'] * 4 + first.queries)
    self.assertEqual(second.queries, memory + steps[:3])
    self.assertEqual(second.keys, ['cache'] * 4 + second.queries)
    for segment in first, second:
      self.assertEqual(segment.weights.shape, (
          _B, _L, _H, len(segment.queries), len(segment.keys)))
      self.assertAllClose(
          segment.weights.sum(axis=-1), np.ones(segment.weights.shape[:-1]))
    # Later steps change nothing.
    _, whole = attention.attend(network, inputs)
    self.assertAllClose(second.weights, whole.weights[..., :5, :9])

  def test_of_a_core_without_segments(self):
    network = _network(cores.TransformerXL(_L, _D, _H, 3, memory_length=7))
    segment, = attention.attend(network, _inputs(4))
    self.assertEqual(segment.queries, ['step'] * 12)
    self.assertEqual(segment.keys, ['cache'] * 7 + ['step'] * 12)
    seen = segment.weights[..., 7:].any(axis=(0, 1, 2))
    query, key = np.indices(seen.shape)
    self.assertAllEqual(seen, (key <= query) & (key >= query - 7))

  def test_of_each_step_to_memory_and_steps(self):
    segments = attention.attend(_network(_rate()), _inputs(5))
    weights = attention.by_step(segments, row=1)
    # A column for the cache, two for memory tokens, and one for each step.
    self.assertEqual(weights.shape, (5, _L, 1 + 2 + 5))
    self.assertAllClose(weights.sum(axis=-1), np.ones([5, _L]))
    seen = weights.any(axis=1)
    step, other = np.indices([5, 5])
    # A segment has two steps.
    self.assertAllEqual(seen[:, 3:], (other <= step) & (other >= step // 2 * 2))
    self.assertAllEqual(seen[:, 0], [False, False, True, True, True])
    second = segments[1].weights[1].mean(axis=1)
    self.assertAllClose(weights[3, :, 5], second[:, 2 + 3 + 1, 4 + 2:4 + 2 + 3].sum(-1))

  def test_of_each_step_without_memory(self):
    network = _network(_rate(num_memory_tokens=0, cache_length=0))
    weights = attention.by_step(attention.attend(network, _inputs(4)))
    self.assertEqual(weights.shape, (4, _L, 4))

  def test_shares(self):
    for segment in attention.attend(_network(_rate()), _inputs(4)):
      shares = attention.shares(segment)
      self.assertEqual(tuple(shares), attention.KINDS)
      self.assertAllClose(sum(shares.values()), np.ones((_B, _L, _H, 10)))
      self.assertAllEqual(shares['write'][..., :-2], np.zeros((_B, _L, _H, 8)))
    self.assertGreater(shares['cache'][..., 2:8].min(), 0)
    self.assertAllClose(shares['cache'], segment.weights[..., :4].sum(axis=-1))

  def test_refuses_a_core_that_does_not_attend(self):
    with self.assertRaisesRegex(config.ConfigError, 'attention of a DeepLSTM'):
      attention.attend(_network(cores.DeepLSTM(1, _D)), _inputs(2))

  def test_refuses_a_network_of_another_kind(self):
    with self.assertRaisesRegex(config.ConfigError, 'attention of a Dense'):
      attention.attend(tf.keras.layers.Dense(2), _inputs(2))

  def test_refuses_a_core_without_recurrence(self):
    for core in cores.SegmentTransformer(), cores.DeepLSTM(1, _D):
      with self.assertRaisesRegex(config.ConfigError, 'to its recurrence'):
        attention.check_recurs(core)


class EpisodeTest(tf.test.TestCase):

  def test_a_window_attends_to_its_own_steps(self):
    length, window = 7, 4
    network = _network(_rate(
        segment_length=3 * window, num_memory_tokens=0, cache_length=0))
    policy = agent.DecisionPolicy(
        network, _OBSERVATION, testing.DISCRETE, target_return=1.0, window=window)
    random = np.random.RandomState(0)
    inputs = decision.Segments(
        tf.constant(random.randn(1, length), tf.float32),
        tf.constant(random.randn(1, length, 4), tf.float32), (),
        tf.constant([[True] + [False] * (length - 1)]), tf.range(length)[tf.newaxis])
    action = random.randint(3, size=length)
    weights = attention.of_episode(network, policy, films.Episode(
        0, [], action, np.zeros(length), 0.0, math.nan, inputs))
    self.assertEqual(weights.shape, (length, _L, length))
    self.assertAllClose(weights.sum(axis=-1), np.ones([length, _L]))
    step, other = np.indices([length, length])
    self.assertAllEqual(
        weights.any(axis=1), (other <= step) & (other > step - window))
    # The last step saw the last steps alone.
    last, = attention.attend(network, decision.Segments(
        inputs.return_to_go[:, -window:], inputs.observation[:, -window:],
        tf.constant(action[tf.newaxis, -window:], tf.int32),
        tf.constant([[True] + [False] * (window - 1)]), inputs.timestep[:, -window:]))
    self.assertAllClose(weights[-1, :, -window:], attention.by_step([last])[-1])


class DrawTest(tf.test.TestCase):

  def _draw(self, segment, **settings):
    path = pathlib.Path(self.get_temp_dir()) / 'attention.png'
    with mock.patch.object(plt, 'close'):
      attention.draw(path, segment, 'a title', **settings)
    self.assertGreater(path.stat().st_size, 1000)
    figure = plt.gcf()
    self.addCleanup(plt.close, figure)
    return [panel for panel in figure.axes if panel.get_title()]

  @pytest.mark.medium
  def test_a_panel_for_each_layer(self):
    first, second = attention.attend(_network(_rate()), _inputs(3))
    panels = self._draw(second)
    self.assertEqual(
        [panel.get_title() for panel in panels], ['layer 1', 'layer 2', 'layer 3'])

    def names(axis, minor):
      return [label.get_text() for label in axis.get_ticklabels(minor=minor)]

    panel = panels[1]
    self.assertAllClose(
        panel.images[0].get_array(), second.weights[0, 1].mean(axis=0))
    self.assertEqual(names(panel.xaxis, False), ['cache', 'read', 'step'])
    self.assertEqual(names(panel.xaxis, True), [''] * 4 + list('mmRoa'))
    self.assertEqual(names(panel.yaxis, True), list('mmRoa'))
    # Lines between the groups, of keys and of queries.
    self.assertContainsSubset([3.5, 5.5], [line.get_xdata()[0] for line in panel.lines])
    self.assertIn(1.5, [line.get_ydata()[0] for line in panel.lines])
    # The empty cache of an episode's first segment is not drawn.
    self.assertEqual(self._draw(first)[0].images[0].get_array().shape, (10, 10))


  @pytest.mark.medium
  def test_a_panel_for_each_head(self):
    _, segment = attention.attend(_network(_rate()), _inputs(3))
    panels = self._draw(segment, by_head=True)
    self.assertEqual([panel.get_title() for panel in panels], [
        f'layer {layer + 1}, head {head + 1}'
        for layer in range(_L) for head in range(_H)])
    for panel, weights in zip(panels, segment.weights[0].reshape(
        -1, *segment.weights.shape[3:])):
      self.assertAllClose(panel.images[0].get_array(), weights)


if __name__ == '__main__':
  absltest.main()
