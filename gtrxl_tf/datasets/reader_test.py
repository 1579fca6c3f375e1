"""Tests of reader.py: every kind of damage is found and reported."""

import gc
import json
import os
import pathlib
from unittest import mock

from absl.testing import absltest
from dm_env import specs as dm_specs
import numpy as np

from gtrxl_tf import datasets
from gtrxl_tf import files
from gtrxl_tf.datasets import episodes_testing
from gtrxl_tf.datasets import format as format_lib

_SPECS = datasets.Specs(
    {'image': dm_specs.BoundedArray((3, 2), np.uint8, 0, 255),
     'x': dm_specs.Array((), np.float32)}, dm_specs.DiscreteArray(3))


class ReaderTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self._path = pathlib.Path(self.create_tempdir().full_path) / 'dataset'
    rng = np.random.default_rng(0)
    episodes = [episodes_testing.random_episode(_SPECS, rng) for _ in range(7)]
    longest = max(episodes, key=lambda episode: len(episode.reward))
    longest.discount[0] = 0  # As at a life's loss, after which the episode goes on.
    episodes_testing.write(self._path, _SPECS, episodes, shard_episodes=3)

  def _sign(self, description):
    description.pop('crc32', None)
    description['crc32'] = files.seal(description)
    (self._path / 'dataset.json').write_text(json.dumps(description))

  def test_views_are_of_the_files(self):
    dataset = datasets.open_dataset(self._path)
    image = dataset.episode(0).observation['image']
    base = image
    while base is not None and not isinstance(base, np.memmap):
      base = base.base
    self.assertIsInstance(base, np.memmap)
    with self.assertRaises(ValueError):
      image[0] = 0
    with self.assertRaises(IndexError):
      dataset.episode(7)

  def test_relabeled_rewards_and_returns(self):
    dataset = datasets.open_dataset(self._path)
    other = dataset.relabeled(0.9, -100.0)
    for i in range(dataset.num_episodes):
      episode = dataset.episode(i)
      steps = np.arange(len(episode.reward))[np.newaxis]
      reward = np.where(episode.end == datasets.End.TERMINATION, -100, episode.reward)
      expected = [sum(0.9 ** k * x for k, x in enumerate(reward[t:])) for t in steps[0]]
      np.testing.assert_array_equal(other.take('reward', [i], steps)[0], reward)
      np.testing.assert_allclose(
          other.take('return_to_go', [i], steps)[0], expected, rtol=1e-5)
      np.testing.assert_array_equal(
          dataset.take('reward', [i], steps)[0], episode.reward)
    rewards = np.concatenate([
        other.episode(i).reward for i in range(dataset.num_episodes)])
    np.testing.assert_allclose(
        other.statistics('reward'), (rewards.mean(), rewards.std()), rtol=1e-5)

  def test_the_files_of_a_dataset_that_is_dropped_are_closed(self):
    def open_files():
      return [path for path in map(os.path.realpath, pathlib.Path('/proc/self/fd').iterdir())
              if path.startswith(str(self._path))]

    dataset = datasets.open_dataset(self._path)
    other = dataset.relabeled(0.9, -100)
    for i in range(dataset.num_episodes):
      dataset.episode(i)
      other.take('return_to_go', [i], np.zeros([1, 1], int))
    self.assertNotEmpty(open_files())
    gc.disable()
    self.addCleanup(gc.enable)
    del dataset, other
    self.assertEmpty(open_files())

  def test_damage_is_named(self):
    rng = np.random.default_rng(1)
    for path in sorted(self._path.rglob('*.npy')):
      whole, name = path.read_bytes(), path.relative_to(self._path)
      flipped = bytearray(whole)
      flipped[rng.integers(len(whole))] ^= int(rng.integers(1, 256))
      for data, message, read in (
          (whole[:-1], 'bytes: expected', datasets.open_dataset),
          (whole + b'x', 'bytes: expected', datasets.open_dataset),
          (flipped, 'was changed after it was written', datasets.check)):
        path.write_bytes(data)
        with self.assertRaisesRegex(datasets.DatasetError, f'{name}: .*{message}'):
          read(self._path)
      path.unlink()
      with self.assertRaisesRegex(datasets.DatasetError, f'{name}: missing'):
        datasets.open_dataset(self._path)
      path.write_bytes(whole)
    datasets.check(self._path)

  def test_a_changed_dataset_json_is_found(self):
    file = self._path / 'dataset.json'
    whole = file.read_bytes()
    description = json.loads(whole)
    rng = np.random.default_rng(2)
    for place in rng.integers(len(whole), size=200):
      data = bytearray(whole)
      data[place] ^= int(rng.integers(1, 256))
      file.write_bytes(data)
      try:
        datasets.open_dataset(self._path)
      except datasets.DatasetError as error:
        self.assertIn('dataset.json', str(error))
      else:  # One white space for another.
        self.assertEqual(json.loads(data), description)
    for length in (0, 1, len(whole) // 2, len(whole) - 3):
      file.write_bytes(whole[:length])
      with self.assertRaisesRegex(datasets.DatasetError, 'dataset.json: damaged'):
        datasets.open_dataset(self._path)

  def test_another_version_or_format_is_refused(self):
    description = json.loads((self._path / 'dataset.json').read_text())
    self._sign({**description, 'version': 3})
    with self.assertRaisesRegex(datasets.DatasetError, 'has version 3'):
      datasets.open_dataset(self._path)
    self._sign({**description, 'format': 'another'})
    with self.assertRaisesRegex(datasets.DatasetError, "format 'gtrxl_tf episodes'"):
      datasets.open_dataset(self._path)
    with self.assertRaisesRegex(datasets.DatasetError, 'no dataset'):
      datasets.open_dataset(self._path / 'nowhere')
    with self.assertRaisesRegex(datasets.DatasetError, f'in it: {self._path.name}'):
      datasets.open_dataset(self._path.parent)

  def test_integers_of_version_1_are_read_as_those_of_the_environment(self):
    bounded = dm_specs.BoundedArray
    recorded = datasets.Specs(
        {'dials': bounded((2,), np.int32, 0, [2, 4]), 'level': dm_specs.DiscreteArray(5),
         'own': bounded((), np.int32, -3, 1)}, dm_specs.DiscreteArray(3))
    played = datasets.Specs(
        {'dials': bounded((2,), np.int32, [1, -2], [3, 2]),
         'level': bounded((), np.int32, 2, 6), 'own': recorded.observation['own']},
        bounded((), np.int32, -1, 1))
    old = episodes_testing.random_episode(recorded, np.random.default_rng(0), 6)
    for version in 1, 2:
      path = self._path.with_name(f'version {version}')
      with mock.patch.object(format_lib, 'VERSION', version):
        episodes_testing.write(path, recorded, [old])
      episodes_testing.assert_equal(datasets.check(path).episode(0), old)
      dataset = datasets.check(path, played)
      self.assertEqual(dataset.specs, played if version == 1 else recorded)
    dataset = datasets.check(self._path.with_name('version 1'), played)
    new = dataset.episode(0)
    np.testing.assert_array_equal(new.action, old.action - 1)
    self.assertEqual(new.final_observation['level'], old.final_observation['level'] + 2)
    np.testing.assert_array_equal(
        new.observation['dials'], old.observation['dials'] + [1, -2])
    np.testing.assert_array_equal(new.observation['own'], old.observation['own'])
    np.testing.assert_array_equal(
        dataset.take('action', np.array([0]), np.array([[-1, 3]])), [[0, new.action[3]]])
    # A writer goes on with it, but not with the environment's integers.
    path = self._path.with_name('version 1')
    self.assertEqual(episodes_testing.write(path, recorded, [old]).num_episodes, 2)
    with self.assertRaisesRegex(datasets.DatasetError, 'has other arrays'):
      episodes_testing.write(path, played, [])

  def test_a_dataset_without_episodes_is_one(self):
    path = self._path.with_name('empty')
    dataset = episodes_testing.write(path, _SPECS, [])
    datasets.check(path)
    self.assertEqual((dataset.num_episodes, dataset.num_steps), (0, 0))
    self.assertEmpty(dataset.lengths)
    self.assertEmpty(dataset.returns)
    with self.assertRaisesRegex(datasets.DatasetError, 'empty: has no episodes'):
      dataset.observation_statistics()


if __name__ == '__main__':
  absltest.main()
