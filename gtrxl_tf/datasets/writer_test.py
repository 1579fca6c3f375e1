"""Tests of writer.py: datasets read back, also after a writer was killed."""

import json
import os
import pathlib
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
from dm_env import specs as dm_specs
import numpy as np
import pytest

from gtrxl_tf import datasets
from gtrxl_tf import environments
from gtrxl_tf.datasets import episodes_testing

_SPECS = datasets.Specs(dm_specs.Array((2,), np.float32), dm_specs.DiscreteArray(3))


def _episodes(num, specs=_SPECS, seed=0):
  rng = np.random.default_rng(seed)
  return [episodes_testing.random_episode(specs, rng) for _ in range(num)]


class EpisodeWriterTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._path = pathlib.Path(self.create_tempdir().full_path) / 'new' / 'dataset'

  @parameterized.product(seed=list(range(12)), kind=('episodes', 'histories'))
  @pytest.mark.medium
  def test_episodes_come_back(self, seed, kind):
    rng = np.random.default_rng(seed)
    specs = episodes_testing.random_specs(rng)
    final = bool(rng.integers(2))
    episodes = [episodes_testing.random_episode(specs, rng, kind=kind,
                                                final_observation=final)
                for _ in range(rng.integers(1, 12))]
    dataset = episodes_testing.write(
        self._path, specs, episodes, kind=kind, final_observation=final,
        environment='A task', settings='a = 1', shard_episodes=int(rng.integers(1, 6)))
    datasets.check(self._path)
    self.assertEqual(dataset.num_episodes, len(episodes))
    self.assertEqual(dataset.num_steps, sum(len(e.reward) for e in episodes))
    self.assertEqual((dataset.kind, dataset.environment, dataset.settings),
                     (kind, 'A task', 'a = 1'))
    self.assertEqual(dataset.specs.leaves(), specs.leaves())
    np.testing.assert_array_equal(dataset.lengths, [len(e.reward) for e in episodes])
    np.testing.assert_array_equal(
        dataset.successes, np.float32([e.success for e in episodes]))
    np.testing.assert_allclose(
        dataset.returns, [e.reward.astype(float).sum() for e in episodes], rtol=1e-6)
    for i, episode in enumerate(episodes):
      episodes_testing.assert_equal(dataset.episode(i), episode)

  def test_numpy_alone_reads_it(self):
    episodes = _episodes(5)
    episodes_testing.write(self._path, _SPECS, episodes, shard_episodes=2)
    shards = json.loads((self._path / 'dataset.json').read_text())['shards']
    self.assertLen(shards, 3)
    rewards = [np.load(self._path / shard['name'] / 'reward.npy', allow_pickle=False)
               for shard in shards]
    np.testing.assert_array_equal(np.concatenate(rewards),
                                  np.concatenate([e.reward for e in episodes]))

  def test_a_shard_ends_where_it_is_full_and_not_within_what_belongs_together(self):
    episodes = _episodes(9)
    with datasets.EpisodeWriter(self._path, _SPECS, shard_episodes=4) as writer:
      for start in (0, 3, 6):
        writer.write(episodes[start:start + 3], progress=start + 3)
    shards = json.loads((self._path / 'dataset.json').read_text())['shards']
    self.assertEqual([shard['num_episodes'] for shard in shards], [6, 3])

  def test_shards_are_bounded_in_bytes(self):
    rng = np.random.default_rng(0)
    episodes = [episodes_testing.random_episode(_SPECS, rng, 100) for _ in range(4)]
    episodes_testing.write(self._path, _SPECS, episodes, shard_bytes=3000)
    self.assertLen(list(self._path.glob('shard-*')), 2)  # An episode has 2,112.

  def test_resumes_where_it_was(self):
    episodes = _episodes(7)
    first = datasets.EpisodeWriter(self._path, _SPECS)
    self.assertIsNone(first.progress)
    first.write(episodes[:4], progress={'piece': 2})
    first.close()
    with datasets.EpisodeWriter(self._path, _SPECS) as second:
      self.assertEqual((second.num_episodes, second.progress), (4, {'piece': 2}))
      second.write(episodes[4:], progress={'piece': 3})
    dataset = datasets.check(self._path)
    for i, episode in enumerate(episodes):
      episodes_testing.assert_equal(dataset.episode(i), episode)

  @parameterized.parameters(
      (dict(specs=datasets.Specs(dm_specs.Array((3,), np.float32), _SPECS.action)),
       r"other arrays, observation, shape: \[2\]: expected the writer's \[3\], or a new"),
      (dict(specs=_SPECS._replace(observation={'dial': _SPECS.observation})),
       r"other arrays: \['observation'\]: expected the writer's \['observation.dial'\]"),
      (dict(specs=_SPECS._replace(action=environments.NamedActions(['a', 'b', 'c']))),
       'other arrays, action'),
      (dict(specs=_SPECS, kind='histories'), "kind: episodes: expected the writer's histories"),
      (dict(specs=_SPECS, final_observation=False), 'other final_observation'),
      (dict(specs=_SPECS, settings='a = 1\nb = 2'), 'other settings: .*b = 3.*b = 2'),
      (dict(specs=_SPECS, settings='a = 1\nb = 3\n'), 'other settings: nothing'))
  def test_refuses_to_continue_with_other_specs_or_settings(self, settings, message):
    episodes_testing.write(
        self._path, _SPECS, _episodes(2), settings='a = 1\nb = 3')
    settings = {'settings': 'a = 1\nb = 3', **settings}
    with self.assertRaisesRegex(datasets.DatasetError, message):
      datasets.EpisodeWriter(self._path, **settings)

  def test_a_start_without_episodes_binds_nobody(self):
    datasets.EpisodeWriter(self._path, _SPECS, settings='wrong').close()
    with datasets.EpisodeWriter(self._path, _SPECS, settings='right') as writer:
      writer.write(_episodes(1))
    self.assertEqual(datasets.open_dataset(self._path).settings, 'right')

  def test_arrays_that_the_caller_uses_again_are_kept_as_they_were(self):
    episode, = _episodes(1)
    with datasets.EpisodeWriter(self._path, _SPECS) as writer:
      for i in range(3):
        episode.reward[:] = i
        episode.observation[:] = i
        episode.final_observation[:] = i
        writer.write([episode])
    dataset = datasets.check(self._path)
    for i in range(3):
      found = dataset.episode(i)
      for array in found.reward, found.observation, found.final_observation:
        np.testing.assert_array_equal(array, np.full_like(array, i))

  def test_a_writer_may_be_closed_twice(self):
    writer = datasets.EpisodeWriter(self._path, _SPECS)
    writer.write(_episodes(1))
    writer.close()
    other = os.open(self._path, os.O_RDONLY)  # Perhaps the same number.
    writer.close()
    os.close(other)  # An OSError if the writer has closed it.
    with self.assertRaisesRegex(datasets.DatasetError, 'the writer is closed'):
      writer.write(_episodes(1))

  @parameterized.parameters('', 'dataset', 300 * 'x')
  def test_refuses_a_path_that_cannot_be_a_folder(self, name):
    file = self.create_tempfile().full_path if len(name) < 100 else self._path
    path = pathlib.Path(file) / name
    with self.assertRaisesRegex(datasets.DatasetError, 'expected a folder for the dataset'):
      datasets.EpisodeWriter(path, _SPECS)
    with self.assertRaisesRegex(datasets.DatasetError, 'gs://mine/data'):
      datasets.EpisodeWriter('gs://mine/data', _SPECS)

  def test_refuses_a_second_writer(self):
    with datasets.EpisodeWriter(self._path, _SPECS) as writer:
      with self.assertRaisesRegex(datasets.DatasetError, 'another process'):
        datasets.EpisodeWriter(self._path, _SPECS)
      writer.write(_episodes(1))
    datasets.EpisodeWriter(self._path, _SPECS).close()

  def test_refuses_shards_without_their_list(self):
    episodes_testing.write(self._path, _SPECS, _episodes(1))
    (self._path / 'dataset.json').unlink()
    with self.assertRaisesRegex(datasets.DatasetError, 'no dataset.json'):
      datasets.EpisodeWriter(self._path, _SPECS)

  @parameterized.parameters(
      (dict(reward=np.float32([0, np.nan])), 'reward of episode 0, step 1, is nan'),
      (dict(discount=np.float32([1.5, 1])), 'discount .* step 0, is 1.5'),
      (dict(action=np.int32([0, 3])), r'action .* is 3: expected an .* in \[0, 3\)'),
      (dict(observation=np.float32([[0, 0], [np.inf, 0]])), 'observation .* step 1'),
      (dict(end=np.uint8([1, 1])), 'end of episode 0, step 0, is 1'),
      (dict(end=np.uint8([0, 0])), 'end of episode 0, step 1, is 0'),
      (dict(reward=np.zeros(2)), 'reward has shape .* float64: expected .* float32'),
      (dict(reward=np.zeros(3, np.float32)), r'reward has shape \(3,\)'),
      (dict(observation={'x': np.zeros((2, 2), np.float32)}), 'observation has .* dict'),
      (dict(final_observation=None), 'final_observation'),
      (dict(final_observation=np.float32([0, np.nan])), 'final_observation .* finite'),
      (dict(success=7), 'success is 7'), (dict(success=-np.inf), 'success is -inf'),
      (dict(success='yes'), 'success is yes'),
      (dict(reward=[0., 0.]), 'reward has .* list'),
      (dict(discount=np.ones(2, np.float32)), 'step 1, is 1.0, .* TERMINATION: expected 0'),
      (dict(end=np.uint8([0, 2])), 'step 1, is 0.0, .* TRUNCATION: expected 0'),
      (dict(end=np.zeros(0, np.uint8)), 'no steps'))
  def test_refuses_episodes_that_are_none(self, wrong, message):
    good = datasets.Episode(
        np.zeros((2, 2), np.float32), np.zeros(2, np.int32), np.zeros(2, np.float32),
        np.float32([1, 0]), np.uint8([0, 1]), 1.0, np.zeros(2, np.float32))
    with datasets.EpisodeWriter(self._path, _SPECS) as writer:
      with self.assertRaisesRegex(datasets.DatasetError, message):
        writer.write([good, good._replace(**wrong)] if 'final' in message
                     else [good._replace(**wrong)])
      self.assertEqual(writer.num_episodes, 0)

  def test_names_the_episode_that_does_not_fit(self):
    first, second = _episodes(2)
    with datasets.EpisodeWriter(self._path, _SPECS) as writer:
      writer.write([first])
      wrong = second._replace(reward=second.reward.astype(np.float64))
      for episodes, message in (([second, wrong], '^episode 2: reward has shape'),
                                ([second._asdict()], '^episode 1 is a dict'),
                                (second, '^episode 1 is a ndarray: expected an Episode')):
        with self.assertRaisesRegex(datasets.DatasetError, message):
          writer.write(episodes)

  @parameterized.parameters('rename', 'replace', 'fsync')
  @pytest.mark.medium
  def test_a_writer_that_stops_anywhere_leaves_a_valid_dataset(self, call):
    episodes = _episodes(6)
    episodes_testing.write(self._path, _SPECS, episodes[:2])
    original = getattr(os, call)
    for stop_at in range(14):
      calls = 0

      def stopping(*args):
        nonlocal calls
        calls += 1
        if calls > stop_at:
          raise KeyboardInterrupt
        return original(*args)

      writer = datasets.EpisodeWriter(self._path, _SPECS)
      known = writer.num_episodes
      with mock.patch.object(os, call, stopping):
        try:
          writer.write(episodes[known:known + 1], progress=stop_at)
          writer.close()
        except KeyboardInterrupt:
          pass
      dataset = datasets.check(self._path)
      self.assertIn(dataset.num_episodes, (known, known + 1))
      for i in range(dataset.num_episodes):
        episodes_testing.assert_equal(dataset.episode(i), episodes[i])
      if dataset.num_episodes == 6:
        break
    self.assertGreater(dataset.num_episodes, 2)


if __name__ == '__main__':
  absltest.main()
