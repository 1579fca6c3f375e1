"""Tests of exporters.py, with the libraries of the formats."""

import importlib.util
import io
import os
import pathlib
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
from dm_env import specs as dm_specs
import numpy as np

from gtrxl_tf import config
from gtrxl_tf import datasets
from gtrxl_tf.datasets import episodes_testing
from gtrxl_tf.datasets import exporters
from gtrxl_tf.datasets import importers


def _needs(package):
  return absltest.skipIf(importlib.util.find_spec(package) is None,
                         f'{package} is not installed')


_BOUNDED = dm_specs.BoundedArray
_SPECS = datasets.Specs(
    {'camera': _BOUNDED((32, 40, 3), np.uint8, 0, 255),
     'gray': dm_specs.Array((33, 32), np.uint8),
     'grid': _BOUNDED((7, 7, 3), np.uint8, 0, 10),
     'bytes': dm_specs.Array((3,), np.uint8),
     'x': dm_specs.Array((2,), np.float32),
     'y': dm_specs.Array((), np.int64),
     'tuple': (dm_specs.DiscreteArray(3), _BOUNDED((2,), np.int8, 0, 1),
               {'z': _BOUNDED((), np.float32, -1.5, np.inf)})},
    _BOUNDED((2,), np.int32, 0, [1, 3]))


class ExporterTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._folder = pathlib.Path(self.create_tempdir().full_path)
    self.enter_context(mock.patch.dict(
        os.environ, {'MINARI_DATASETS_PATH': str(self._folder / 'minari')}))

  def _write(self, specs=_SPECS, episodes=(), **settings):
    return episodes_testing.write(self._folder / 'in', specs, list(episodes), **settings)

  def _random(self, specs=_SPECS, num=5, **settings):
    rng = np.random.default_rng(0)
    return [episodes_testing.random_episode(specs, rng, **settings) for _ in range(num)]

  def _imported(self, recording):
    importers.import_dataset(recording, self._folder / 'out', '', io.StringIO())
    return datasets.check(self._folder / 'out')


@_needs('minari')
class MinariTest(ExporterTest):

  def test_minari_reads_the_same_values(self):
    import minari  # pylint: disable=import-outside-toplevel
    episodes = self._random()
    folder = exporters.minari(self._write(episodes=episodes), 'tests/any-v0')
    self.assertEqual(folder, self._folder / 'minari' / 'tests' / 'any-v0')
    stored = minari.load_dataset('tests/any-v0')
    self.assertEqual(stored.total_episodes, 5)
    self.assertEqual(stored.total_steps, sum(len(x.reward) for x in episodes))
    for episode, found in zip(episodes, stored.iterate_episodes()):
      for name in ('camera', 'gray', 'grid', 'bytes', 'x', 'y'):
        array = found.observations[name]
        self.assertEqual(array.dtype, _SPECS.observation[name].dtype)
        np.testing.assert_array_equal(array[:-1], episode.observation[name], name)
        np.testing.assert_array_equal(array[-1], episode.final_observation[name], name)
      np.testing.assert_array_equal(
          found.observations['tuple'][0][:-1], episode.observation['tuple'][0])
      np.testing.assert_array_equal(found.actions, episode.action)
      np.testing.assert_array_equal(found.rewards, episode.reward)
      np.testing.assert_array_equal(found.terminations, episode.end == 1)
      np.testing.assert_array_equal(found.truncations, episode.end == 2)
      self.assertTrue(stored.action_space.contains(found.actions[0]))

  def test_importing_it_again_gives_the_same_dataset(self):
    episodes = self._random()
    dataset = self._write(episodes=episodes)
    exporters.minari(dataset, 'any-v0')
    found = self._imported(importers.minari('any-v0'))
    self.assertEqual(found.num_episodes, 5)
    for i, episode in enumerate(episodes):
      episodes_testing.assert_equal(found.episode(i), episode)
    for name in ('camera', 'grid'):
      np.testing.assert_array_equal(found.observation_spec()[name].maximum.max(),
                                    _SPECS.observation[name].maximum)
    self.assertEqual(found.observation_spec()['tuple'][0], dm_specs.DiscreteArray(3))
    self.assertEqual(found.action_spec(), dataset.action_spec())

  def test_refuses_what_minari_cannot_hold(self):
    array, discrete = dm_specs.Array((), np.float32), dm_specs.DiscreteArray(2)
    specs = datasets.Specs(array, discrete)
    dataset = self._write(specs, self._random(specs))
    for name in ('any', '/any-v0', ''):
      with self.assertRaisesRegex(datasets.DatasetError, 'no id of Minari'):
        exporters.minari(dataset, name)
    exporters.minari(dataset, 'any-v0')
    with self.assertRaisesRegex(datasets.DatasetError, 'any-v0: exists: expected an id'):
      exporters.minari(dataset, 'any-v0')

  @parameterized.parameters(
      (dict(kind='histories'), {}, 'has histories: Minari can hold episodes only'),
      (dict(final_observation=False), {}, 'has no final observations'),
      ({}, dict(discount=np.float32([1, 0.5, 1])),
       'episode 2 has the discount 0.5 at step 1: Minari can hold 0'))
  def test_refuses_episodes_that_minari_cannot_hold(self, settings, changes, message):
    specs = datasets.Specs(dm_specs.Array((), np.float32), dm_specs.DiscreteArray(2))
    episodes = self._random(specs, num_steps=3, **settings)
    if changes:
      end = np.uint8([0, 0, datasets.End.TRUNCATION])
      episodes[2] = episodes[2]._replace(end=end, **changes)
    dataset = self._write(specs, episodes, **settings)
    with self.assertRaisesRegex(datasets.DatasetError, message):
      exporters.minari(dataset, 'tests/any-v0')
    self.assertFalse((self._folder / 'minari' / 'tests' / 'any-v0').exists())

  def test_refuses_images_that_minari_cannot_hold(self):
    specs = datasets.Specs({'x': dm_specs.Array((84, 84, 1), np.uint8)},
                           dm_specs.DiscreteArray(2))
    with self.assertRaisesRegex(
        datasets.DatasetError, r'observation.x has images of shape \(84, 84, 1\)'):
      exporters.minari(self._write(specs, self._random(specs)), 'any-v0')


class MissingTest(ExporterTest):

  def test_says_which_package_is_missing(self):
    specs = datasets.Specs(dm_specs.Array((), np.float32), dm_specs.DiscreteArray(2))
    dataset = self._write(specs, self._random(specs))
    with mock.patch.dict('sys.modules', {'minari': None}):
      with self.assertRaisesRegex(config.ConfigError, 'Minari needs .*minari.*offline'):
        exporters.minari(dataset, 'any-v0')


if __name__ == '__main__':
  absltest.main()
