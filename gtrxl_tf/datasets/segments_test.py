"""Tests of batches of segments."""

import itertools
import pathlib
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import dm_env
from dm_env import specs as dm_specs
import numpy as np
import pytest
import tree

from gtrxl_tf import datasets
from gtrxl_tf import environments
from gtrxl_tf.datasets import episodes_testing

_SPECS = datasets.Specs(
    {'i': dm_specs.Array((2,), np.float32)}, dm_specs.DiscreteArray(3))


class SegmentsTest(parameterized.TestCase):

  def _dataset(self, specs=_SPECS, lengths=(3, 12, 7, 1, 30), kind='episodes',
               seed=0):
    rng = np.random.default_rng(seed)
    self._episodes = [
        episodes_testing.random_episode(specs, rng, length, kind=kind)
        for length in lengths]
    return episodes_testing.write(
        pathlib.Path(self.create_tempdir().full_path) / f'{len(lengths)}{seed}{kind}',
        specs, self._episodes, shard_episodes=2, kind=kind)

  def _reference(self, batch, row, length):
    """A row of a batch, step by step."""
    episode = self._episodes[batch.episode[row]]
    start = batch.start[row]
    for t in range(length):
      step = start + t
      value = tree.map_structure(lambda x, t=t: x[row, t],
                                 tuple(batch[:7]))
      observation, action, reward, discount, end, return_to_go, mask = value
      if step < len(episode.reward):
        self.assertTrue(mask)
        tree.map_structure(
            lambda x, y, step=step: np.testing.assert_array_equal(x, y[step]),
            (observation, action), (episode.observation, episode.action))
        self.assertEqual((reward, discount, end), (
            episode.reward[step], episode.discount[step], episode.end[step]))
        rest = 0.0
        for later in range(step, len(episode.reward)):
          rest += float(episode.reward[later])
          if episode.end[later]:
            break
        np.testing.assert_allclose(return_to_go, rest, rtol=1e-5, atol=1e-5)
      else:
        self.assertFalse(mask)
        tree.map_structure(
            lambda x, y: np.testing.assert_array_equal(x, y[-1]),
            observation, episode.observation)
        tree.map_structure(
            lambda x: np.testing.assert_array_equal(x, 0), action)
        self.assertEqual((reward, discount, end, return_to_go), (0, 0, 0, 0))

  @parameterized.product(starts=('first', 'random', 'any'), seed=(0, 1, 2),
                         kind=('episodes', 'histories'))
  @pytest.mark.medium
  def test_a_batch_holds_the_steps_of_the_episodes(self, starts, seed, kind):
    specs = episodes_testing.random_specs(np.random.default_rng(seed))
    dataset = self._dataset(specs, kind=kind, seed=seed)
    for batch in itertools.islice(
        datasets.segments(dataset, 4, 2, 5, seed, starts), 3):
      self.assertEqual(batch.mask.shape, (5, 8))
      for leaf, spec in zip(tree.flatten(batch.observation),
                            tree.flatten(specs.observation)):
        self.assertEqual((leaf.shape, leaf.dtype), ((5, 8, *spec.shape), spec.dtype))
      self.assertEqual(batch.return_to_go.dtype, np.float32)
      for row in range(5):
        self._reference(batch, row, 8)

  def test_every_episode_comes_once_an_epoch(self):
    dataset = self._dataset()
    batches = itertools.islice(datasets.segments(dataset, 3, 1, 2, seed=4), 10)
    order = np.concatenate([batch.episode for batch in batches]).reshape(4, 5)
    for epoch in order:
      self.assertCountEqual(epoch, range(5))
    self.assertLen({tuple(epoch) for epoch in order}, 4)
    [batch] = itertools.islice(datasets.segments(dataset, 3, 1, 12, seed=4), 1)
    np.testing.assert_array_equal(batch.episode, order.ravel()[:12])
    np.testing.assert_array_equal(batch.start, 0)

  def test_every_whole_window_is_as_likely_as_any_other(self):
    dataset = self._dataset(lengths=(3, 5, 8))  # 1, 1 and 4 windows of 5.
    windows = [tuple(window) for batch in itertools.islice(
        datasets.segments(dataset, 5, 1, 100, 0, 'random'), 60)
               for window in zip(batch.episode, batch.start)]
    counts = {window: windows.count(window) for window in set(windows)}
    self.assertCountEqual(counts, [(0, 0), (1, 0), (2, 0), (2, 1), (2, 2), (2, 3)])
    for count in counts.values():
      self.assertBetween(count, 880, 1120)  # 1,000, and four standard deviations.

  def test_a_window_may_begin_at_any_step(self):
    dataset = self._dataset(lengths=(3, 5))
    windows = {window for batch in itertools.islice(
        datasets.segments(dataset, 5, 1, 100, 0, 'any'), 5)
               for window in zip(batch.episode, batch.start)}
    self.assertEqual(windows, {(0, t) for t in range(3)} | {(1, t) for t in range(5)})

  def test_windows_have_the_return_that_is_asked_for(self):
    dataset = self._dataset(lengths=(3, 9, 20))

    def total(e, t):
      return self._episodes[e].reward[t:t + 4].astype(float).sum()

    expected = {(e, t) for e, n in enumerate((3, 9, 20))
                for t in range(max(n - 3, 1)) if total(e, t) >= 0.5}
    found = {window for batch in itertools.islice(datasets.segments(
        dataset, 2, 2, 50, 0, 'random', min_window_return=0.5), 20)
             for window in zip(batch.episode, batch.start)}
    self.assertEqual(found, expected)
    self.assertNotEmpty(expected)
    with self.assertRaisesRegex(datasets.DatasetError, 'no window of 4 steps'):
      datasets.segments(dataset, 2, 2, 50, 0, 'random', min_window_return=1e6)

  @parameterized.parameters('first', 'random')
  def test_resumes_at_any_batch_and_depends_on_the_seed(self, starts):
    dataset = self._dataset()

    def take(number, **more):
      return list(itertools.islice(
          datasets.segments(dataset, 3, 2, 4, starts=starts, **more), number))

    batches = take(6, seed=1)
    for batch, again in zip(batches[4:], take(2, seed=1, first_batch=4)):
      tree.map_structure(np.testing.assert_array_equal, batch, again)
    self.assertNotEqual([tuple(b.episode) for b in batches],
                        [tuple(b.episode) for b in take(6, seed=2)])

  def test_observations_are_stacked_as_the_wrapper_stacks_them(self):
    observation_spec = {
        'action_mask': dm_specs.BoundedArray((3,), np.int8, 0, 1),
        'image': dm_specs.BoundedArray((2, 2, 1), np.uint8, 0, 255),
        'number': dm_specs.Array((), np.float32), 'vector': dm_specs.Array((2,), bool)}
    specs = datasets.Specs(observation_spec, dm_specs.DiscreteArray(3))
    episode = episodes_testing.random_episode(specs, np.random.default_rng(0), 6)
    dataset = episodes_testing.write(
        pathlib.Path(self.create_tempdir().full_path), specs, [episode])
    batch = datasets.gather(dataset, [0, 0], [0, 3], 3, frame_stack=2)
    found = tree.map_structure(np.concatenate, batch.observation)

    replay = mock.create_autospec(dm_env.Environment, instance=True)
    replay.observation_spec.return_value = observation_spec
    steps = [tree.map_structure(lambda x, t=t: x[t], episode.observation)
             for t in range(6)]
    replay.reset.return_value = dm_env.restart(steps[0])
    replay.step.side_effect = [dm_env.transition(0.0, step) for step in steps[1:]]
    wrapper = environments.FrameStack(replay, frames=2)
    seen = [wrapper.reset().observation] + [
        wrapper.step(0).observation for _ in range(5)]
    expected = tree.map_structure(lambda *x: np.stack(x), *seen)
    tree.map_structure(np.testing.assert_array_equal, found, expected)
    self.assertEqual(found['action_mask'].shape, (6, 3))

  def test_refuses_settings(self):
    dataset = self._dataset()
    with self.assertRaisesRegex(ValueError, "starts = 'last'"):
      datasets.segments(dataset, 2, 2, 2, 0, starts='last')
    with self.assertRaisesRegex(ValueError, 'min_window_return = 2'):
      datasets.segments(dataset, 2, 2, 2, 0, min_window_return=2)
    with self.assertRaisesRegex(datasets.DatasetError, 'has no episodes'):
      datasets.segments(self._dataset(lengths=()), 2, 2, 2, 0)


if __name__ == '__main__':
  absltest.main()
