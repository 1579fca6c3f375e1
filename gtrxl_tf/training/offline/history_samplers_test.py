"""Tests of history_samplers.py."""

import pathlib
import tempfile

from absl.testing import absltest
from dm_env import specs
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import datasets
from gtrxl_tf.cores import segment_transformer
from gtrxl_tf.networks import action_space
from gtrxl_tf.settings import config
from gtrxl_tf.training.offline import history_samplers
from gtrxl_tf.training.offline import samplers

_B, _K, _N = 6, 3, 2
_SPECS = datasets.Specs(
    specs.BoundedArray((2,), np.uint8, 0, 255), specs.DiscreteArray(5, np.uint8),
    specs.Array((), np.int8), specs.Array((), np.uint8))
_LENGTHS = (20, 12, 5, 18)


def _history(number, length):
  """Steps that hold the number of the history and their own."""
  steps = np.arange(length)
  end = np.where(steps % 4 == 3, datasets.End.TERMINATION, 0).astype(np.uint8)
  return datasets.Episode(
      np.stack([np.full(length, number), steps + 1], axis=1).astype(np.uint8),
      (steps % 5).astype(np.uint8), steps.astype(np.int8), (end == 0).astype(np.uint8),
      end)


def _state(batch_size):
  return segment_transformer.SegmentTransformer(
      1, 4, 1, 4, 4, segment_length=_K, recurrence='xl', memory_length=2
  ).initial_state(batch_size)


def _carried(step):
  return tf.nest.map_structure(
      lambda x: tf.cast(tf.fill(x.shape, step + 1), x.dtype), _state(_B))


class HistorySamplersTest(absltest.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    path = pathlib.Path(cls.enter_context(tempfile.TemporaryDirectory()), 'dataset')
    with datasets.EpisodeWriter(path, _SPECS, kind='histories', final_observation=False,
                                shard_episodes=3) as writer:
      writer.write([_history(*x) for x in enumerate(_LENGTHS)])
    cls.trajectories = samplers.Trajectories(
        datasets.open_dataset(path), action_space.ActionSpace(_SPECS.action), _K, _N,
        _B, seed=0, return_scale=1.0)

  def make(self, sampler):
    return sampler(self.trajectories, _state, 30)

  def check(self, batch):
    """Checks that rows hold the histories' steps and the step before."""
    parts, valid = tf.nest.map_structure(np.array, (batch.histories, batch.valid))
    history, time = parts.observation[..., 0], parts.observation[..., 1] - 1.0
    for b in range(_B):
      length = _LENGTHS[history[b, 1]]
      np.testing.assert_array_equal(valid[b], parts.position[b] < length)
      known = np.append(parts.position[b, 0] > 0, valid[b])
      expected = np.append(parts.position[b, 0] - 1, parts.position[b])[known]
      np.testing.assert_array_equal(time[b, known], expected)
      np.testing.assert_array_equal(parts.reward[b, known], expected)
      np.testing.assert_array_equal(parts.action[b, known], expected % 5)
      np.testing.assert_array_equal(parts.done[b, known], expected % 4 == 3)
    np.testing.assert_array_equal(parts.is_first, parts.position == 0)
    self.assertEqual(parts.reward.dtype, np.float32)

  def test_windows_begin_anywhere(self):
    sampler = self.make(history_samplers.HistoryWindows)
    starts = set()
    for step in range(150):
      batch = sampler.batch(step)
      if step < 10:
        self.check(batch)
      self.assertEqual(batch.state, ())
      starts |= set(zip(np.array(batch.histories.observation)[:, 1, 0].tolist(),
                        np.array(batch.histories.position)[:, 0].tolist()))
    expected = {(number, start) for number, length in enumerate(_LENGTHS)
                for start in range(max(length - _K * _N + 1, 1))}
    self.assertEqual(starts, expected)
    again = self.make(history_samplers.HistoryWindows).batch(149)
    self.assertTrue(np.all(np.array(again.histories.reward == batch.histories.reward)))

  @pytest.mark.medium
  def test_first_and_last_steps_need_not_be_rare(self):
    def frequency(**settings):
      """How often each step of the first history is in a window."""
      sampler = history_samplers.HistoryWindows(self.trajectories, _state, 30, **settings)
      counts = np.zeros(_LENGTHS[0])
      for step in range(1500):
        parts = sampler.batch(step).histories
        rows = np.array(parts.observation)[:, 1, 0] == 0
        np.add.at(counts, np.array(parts.position)[rows].ravel(), 1)
      return counts / counts[8:12].mean()

    length = _K * _N
    uniform = frequency()
    np.testing.assert_allclose(uniform[[0, -1]], 1 / length, atol=0.06)
    whole = frequency(whole_ends=True)
    np.testing.assert_allclose(whole[[0, -1]], 1, atol=0.15)
    self.assertBetween(whole.min(), 0.8, 1.1)
    self.assertLess(whole.max(), 2.1)

  def test_rows_pass_through_histories_and_carry_their_state(self):
    sampler = self.make(history_samplers.HistoryChunks)
    previous, began = None, 0
    for step in range(12):
      batch = sampler.batch(step)
      self.check(batch)
      position = np.array(batch.histories.position)
      history = np.array(batch.histories.observation)[:, 1, 0]
      np.testing.assert_array_equal(position[:, 0] % (_K * _N), 0)
      self.assertTrue(np.all(np.array(batch.state.memory) == step))
      if previous is not None:
        goes_on = previous[1] + _K * _N < np.array(_LENGTHS)[previous[0]]
        np.testing.assert_array_equal(
            position[:, 0], np.where(goes_on, previous[1] + _K * _N, 0))
        np.testing.assert_array_equal(history[goes_on], previous[0][goes_on])
        began += np.sum(~goes_on)
      else:
        self.assertGreater(len(set(position[:, 0])), 1)
      previous = history, position[:, 0]
      sampler.observe(step, {'carried': _carried(step)})
    self.assertGreater(began, 10)

  def test_an_interrupted_run_resumes_with_the_same_batches(self):
    sampler = self.make(history_samplers.HistoryChunks)
    for step in range(7):
      sampler.batch(step)
      sampler.observe(step, {'carried': _carried(step)})
    other = self.make(history_samplers.HistoryChunks)
    other.deserialize(sampler.serialize())
    for step in range(7, 14):
      expected, found = sampler.batch(step), other.batch(step)
      tf.nest.map_structure(np.testing.assert_array_equal, expected, found)
      for each in (sampler, other):
        each.observe(step, {'carried': _carried(step)})

  def test_needs_histories(self):
    episodes = self.trajectories.dataset
    self.addCleanup(setattr, episodes, 'kind', 'histories')
    episodes.kind = 'episodes'
    with self.assertRaisesRegex(config.ConfigError, 'has episodes'):
      self.make(history_samplers.HistoryWindows)


if __name__ == '__main__':
  absltest.main()
