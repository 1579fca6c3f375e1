"""Tests of samplers.py, on episodes of small mazes."""

import functools
import pathlib
import tempfile

from absl.testing import absltest
from dm_env import specs as dm_specs
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf import datasets
from gtrxl_tf import testing
from gtrxl_tf.environments import clues
from gtrxl_tf.environments import t_maze
from gtrxl_tf.networks import action_space
from gtrxl_tf.settings import config
from gtrxl_tf.training.offline import samplers

_B, _K, _N = 6, 4, 3
_MAZE = functools.partial(t_maze.TMaze, corridor_length=10, min_corridor_length=1)


def _state(batch_size):
  core = cores.RATE(1, 8, 2, 4, num_memory_tokens=1, segment_length=3 * _K)
  return core.initial_state(batch_size)


def _carried(first):
  """An agent's states: row b's memory after segment n is first + 10 b + n."""
  state = _state(_B)
  number = first + 10. * np.arange(_B)[:, None] + np.arange(_N)
  def fill(x):
    return tf.constant(np.broadcast_to(
        number.reshape(_B, _N, *[1] * (len(x.shape) - 1)), (_B, _N, *x.shape[1:]))
                                 .astype(x.dtype.as_numpy_dtype))
  return tf.nest.map_structure(fill, state)


class SamplersTest(absltest.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    path = pathlib.Path(cls.enter_context(tempfile.TemporaryDirectory()), 'dataset')
    maze = _MAZE(seed=0)
    testing.write_informed_episodes(path, maze, 60)
    cls.trajectories = samplers.Trajectories(
        datasets.open_dataset(path), action_space.ActionSpace(maze.action_spec()),
        _K, _N, _B, seed=0, return_scale=1.0, starts='first')

  def make(self, sampler, **settings):
    return sampler(self.trajectories, _state, 30, **settings)

  def test_padding_is_no_action_and_floats_are_narrow(self):
    specs = datasets.Specs(
        dm_specs.Array((2,), np.float64), dm_specs.BoundedArray((), np.int32, 2, 5))
    path = pathlib.Path(self.create_tempdir().full_path, 'dataset')
    with datasets.EpisodeWriter(path, specs, final_observation=False) as writer:
      for length in 3, 5:
        ends = np.zeros(length, np.uint8)
        ends[-1] = datasets.End.TRUNCATION
        writer.write([datasets.Episode(
            np.ones([length, 2]), np.full(length, 4, np.int32),
            *np.ones([2, length], np.float32), ends)])
    trajectories = samplers.Trajectories(
        datasets.open_dataset(path), action_space.ActionSpace(specs.action), 6, 1, 2,
        seed=0, return_scale=1.0, starts='first')
    batch = trajectories.segments(
        next(trajectories.batches(0)), np.ones(2, bool))
    np.testing.assert_array_equal(batch.action, np.where(batch.valid, 2, 0))
    self.assertEqual(batch.observation.dtype, tf.float32)

  def test_a_curriculum_goes_from_short_to_long(self):
    sampler = self.make(samplers.WholeTrajectories, curriculum=True)
    batches = [sampler.batch(step) for step in range(30)]
    self.assertEqual({batch.valid.shape[1] for batch in batches}, {_N * _K})
    longest = [np.max(np.sum(batch.valid, axis=1)) for batch in batches]
    for stage in range(_N):
      self.assertBetween(max(longest[10 * stage:10 * stage + 10]),
                         stage * _K + 1, (stage + 1) * _K)
    self.assertTrue(np.all(np.any(batches[0].discount == 0, axis=1)))

  def test_a_sampler_that_carries_memory_refuses_a_network_without(self):
    with self.assertRaisesRegex(config.ConfigError, '@SegmentBySegment'):
      samplers.SegmentBySegment(self.trajectories, lambda _: (), 30)

  def test_single_segments_carry_their_state(self):
    sampler = self.make(samplers.SegmentBySegment)
    whole = self.make(samplers.WholeTrajectories)
    for step in range(2 * _N):
      batch = sampler.batch(step)
      minibatch, segment = divmod(step, _N)
      if segment == 0:
        expected = whole.batch(minibatch)
      steps = slice(segment * _K, (segment + 1) * _K)
      np.testing.assert_array_equal(
          batch.observation, expected.observation[:, steps])
      np.testing.assert_array_equal(
          batch.timestep, [range(segment * _K, (segment + 1) * _K)] * _B)
      self.assertEqual(bool(batch.is_first[0, 0]), segment == 0)
      if segment:
        np.testing.assert_array_equal(batch.state.memory[:, 0, 0],
                                      [step + 10 * b + 1 for b in range(_B)])
      sampler.observe(step, {'carried': tf.nest.map_structure(
          lambda x: x[:, :2], _carried(step + 1))})

  def test_the_pool_is_used_when_the_loss_has_fallen(self):
    sampler = self.make(samplers.MemoryPool, clue=clues.t_maze_clue, start_loss=0.5)
    for step, loss in enumerate([1.] * 5 + [0.] * 20):
      batch = sampler.batch(step)
      self.assertTrue(np.all(batch.is_first[:, 0]), step)
      sampler.observe(step, {'loss': tf.constant(loss), 'carried': _carried(0)})
      if sampler.arrays().get('labels') is not None:
        break
    self.assertEqual(step, 19)
    batch = sampler.batch(step + 1)
    young = _B // 2
    np.testing.assert_array_equal(
        batch.is_first[:, 0], np.arange(_B) < young)
    np.testing.assert_array_equal(np.abs(batch.observation[:, 0, 1]),
                                  np.arange(_B) < young)

  def test_the_pool_refuses_a_core_without_segments(self):
    sampler = self.make(samplers.MemoryPool, clue=clues.t_maze_clue, start_loss=0.5)
    sampler.batch(0)
    carried = tf.nest.map_structure(lambda x: x[:, :1], _carried(0))
    with self.assertRaisesRegex(
        config.ConfigError, f'the core has 1 segments in a row: expected {_N}'):
      sampler.observe(0, {'loss': tf.constant(1.), 'carried': carried})

  @pytest.mark.medium
  def test_old_rows_must_answer_with_the_clue_in_their_memory(self):
    sampler = self.make(samplers.MemoryPool, clue=clues.t_maze_clue, start_loss=9.,
                       renewal=0.3)
    labels, taken = {}, 0
    for step in range(60):
      batch = sampler.batch(step)
      memory = batch.state.memory.numpy()[:, 0, 0]
      last = np.sum(batch.valid, axis=1) - 1
      turned_up = batch.action.numpy()[np.arange(_B), last] == t_maze.UP
      for row in range(_B):
        if not batch.is_first[row, 0]:
          taken += 1
          self.assertEqual(labels[memory[row]], turned_up[row])
      carried = _carried(1000. * (step + 1))
      for row in range(_B):
        for segment in range(_N):
          labels[float(carried.memory[row, segment, 0, 0])] = turned_up[row]
      sampler.observe(step, {'loss': tf.constant(0.), 'carried': carried})
    self.assertGreater(taken, 50)
    ages = step - np.floor(memory[_B // 2:] / 1000)
    self.assertLess(ages.max(), 10)  # They are replaced or kept.


if __name__ == '__main__':
  absltest.main()
