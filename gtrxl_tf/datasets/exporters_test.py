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

from gtrxl_tf import datasets
from gtrxl_tf import environments
from gtrxl_tf.datasets import episodes_testing
from gtrxl_tf.datasets import exporters
from gtrxl_tf.datasets import importers
from gtrxl_tf.settings import config


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


_FROM_ELSEWHERE = datasets.Specs(
    {'dials': _BOUNDED((2,), np.int32, [-1, 0], [1, 4]),
     'level': _BOUNDED((), np.int32, -2, 4)}, _BOUNDED((), np.int32, -1, 1))


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

  def _imported(self, recording, dataset=None, episodes=()):
    """Imports a recording, which has these episodes and the dataset's actions."""
    importers.import_dataset(recording, self._folder / 'out', '', io.StringIO())
    found = datasets.check(self._folder / 'out')
    if dataset:
      self.assertEqual(found.num_episodes, len(episodes))
      self.assertEqual(found.action_spec(), dataset.action_spec())
      for i, episode in enumerate(episodes):
        episodes_testing.assert_equal(found.episode(i), episode)
    return found


@_needs('minari')
class MinariTest(ExporterTest):

  def test_minari_reads_the_same_values_and_so_does_the_importer(self):
    import minari  # pylint: disable=import-outside-toplevel
    episodes = self._random()
    dataset = self._write(episodes=episodes)
    folder = exporters.minari(dataset, 'tests/any-v0')
    self.assertEqual(folder, self._folder / 'minari' / 'tests' / 'any-v0')
    stored = minari.load_dataset('tests/any-v0')
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
    found = self._imported(importers.minari('tests/any-v0'), dataset, episodes)
    for name in ('camera', 'grid'):
      np.testing.assert_array_equal(found.observation_spec()[name].maximum.max(),
                                    _SPECS.observation[name].maximum)
    self.assertEqual(found.observation_spec()['tuple'][0], dm_specs.DiscreteArray(3))

  def test_integers_that_do_not_begin_at_0(self):
    import minari  # pylint: disable=import-outside-toplevel
    episodes = self._random(_FROM_ELSEWHERE)
    dataset = self._write(_FROM_ELSEWHERE, episodes)
    exporters.minari(dataset, 'any-v0')
    stored = minari.load_dataset('any-v0')
    self.assertEqual((stored.action_space.n, stored.action_space.start), (3, -1))
    self.assertEqual(stored.observation_space['dials'].start.tolist(), [-1, 0])
    found = self._imported(importers.minari('any-v0'), dataset, episodes)
    self.assertEqual(found.specs, dataset.specs)

  def test_refuses_what_minari_cannot_hold(self):
    array, discrete = dm_specs.Array((), np.float32), dm_specs.DiscreteArray(2)
    specs = datasets.Specs(array, discrete)
    dataset = self._write(specs, self._random(specs))
    for name in ('any', '/any-v0', ''):
      with self.assertRaisesRegex(datasets.DatasetError, 'not an id of Minari'):
        exporters.minari(dataset, name)
    exporters.minari(dataset, 'any-v0')
    with self.assertRaisesRegex(datasets.DatasetError, 'any-v0: exists'):
      exporters.minari(dataset, 'any-v0')

  @parameterized.parameters(
      (dict(kind='histories'), {}, 'has histories: Minari can hold episodes only'),
      (dict(final_observation=False), {}, 'has no final observations'),
      ({}, dict(discount=np.float32([1, 0.5, 1])),
       'episode 2 has the discount 0.5 at step 1: Minari can hold 0'),
      # A life was lost there.
      ({}, dict(discount=np.float32([1, 0, 1])),
       'episode 2 has the discount 0.0 at step 1: Minari can hold 0, at the end, and 1'))
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


@_needs('tensorflow_datasets')
class RldsTest(ExporterTest):

  def setUp(self):
    super().setUp()
    self._specs = datasets.Specs(
        {name: spec for name, spec in _SPECS.observation.items() if name != 'tuple'}
        | {'z': {'flag': dm_specs.Array((2,), bool), 'd': dm_specs.DiscreteArray(4)}},
        environments.NamedActions(['left', 'right']))

  def test_tfds_reads_the_same_steps_and_a_last_one(self):
    import tensorflow_datasets as tfds  # pylint: disable=import-outside-toplevel
    episodes = self._random(self._specs)
    episodes[0] = episodes[0]._replace(discount=np.where(
        episodes[0].end, episodes[0].discount, 0.9).astype(np.float32))
    dataset = self._write(self._specs, episodes)
    folder = exporters.rlds(dataset, self._folder / 'a' / 'b')
    self.assertEqual([path.name for path in folder.parent.iterdir()], ['b'])
    stored = tfds.builder_from_directory(folder).as_dataset('train')
    self.assertLen(stored, 5)
    for episode, found in zip(episodes, stored):
      steps = list(found['steps'].as_numpy_iterator())
      num = len(episode.reward)
      self.assertLen(steps, num + 1)
      for t, step in enumerate(steps[:-1]):
        self.assertEqual(step['action'], episode.action[t])
        self.assertEqual(step['reward'], episode.reward[t])
        self.assertEqual(step['discount'], episode.discount[t])
        for name in ('camera', 'x', 'y'):
          np.testing.assert_array_equal(
              step['observation'][name], episode.observation[name][t])
      np.testing.assert_array_equal(
          steps[-1]['observation']['grid'], episode.final_observation['grid'])
      self.assertEqual([step['is_first'] for step in steps], [True] + [False] * num)
      self.assertEqual([step['is_last'] for step in steps], [False] * num + [True])
      self.assertEqual([step['is_terminal'] for step in steps],
                       [False] * num + [episode.end[-1] == 1])
    found = self._imported(importers.rlds(folder), dataset, episodes)
    self.assertEqual(found.action_spec().names, ('left', 'right'))
    self.assertEqual(
        found.observation_spec()['z']['d'], dm_specs.DiscreteArray(4))

  def test_integers_that_do_not_begin_at_0(self):
    episodes = self._random(_FROM_ELSEWHERE)
    dataset = self._write(_FROM_ELSEWHERE, episodes)
    self._imported(importers.rlds(exporters.rlds(dataset, self._folder / 'rlds')),
                   dataset, episodes)

  def test_refuses_what_rlds_cannot_hold(self):
    dataset = self._write(episodes=self._random())
    with self.assertRaisesRegex(datasets.DatasetError, 'has tuples: RLDS can hold dict'):
      exporters.rlds(dataset, self._folder / 'rlds')
    with self.assertRaisesRegex(datasets.DatasetError, 'exists: expected a new folder'):
      exporters.rlds(dataset, self._folder)

  def _store(self, changes=(), lengths=(3, 2)):
    """Stores episodes as others do: with texts, and integers that are not labels."""
    import tensorflow_datasets as tfds  # pylint: disable=import-outside-toplevel
    features = {
        'observation': tfds.features.FeaturesDict({
            'x': tfds.features.Tensor(shape=[2], dtype=np.float64),
            'text': tfds.features.Text()}),
        'action': np.int64, 'reward': np.float32, 'is_first': np.bool_,
        'is_last': np.bool_, 'is_terminal': np.bool_}
    features.update(changes)
    features = {name: x for name, x in features.items() if x is not None}

    def episodes():
      for i, num in enumerate(lengths):
        last = np.arange(num) == num - 1
        steps = {
            'observation': {'x': np.full([num, 2], i + 0.5), 'text': ['a'] * num},
            'action': np.arange(num), 'reward': np.ones(num, np.float32),
            'is_first': np.arange(num) == 0, 'is_last': last,
            'is_terminal': last & (i == 0)}
        yield i, {'steps': {name: steps[name] for name in features}}

    return tfds.dataset_builders.store_as_tfds_dataset(
        'any', '1.0.0', tfds.features.FeaturesDict(
            {'steps': tfds.features.Dataset(features)}), {'train': episodes()},
        data_dir=self._folder / 'tfds', disable_shuffling=True).data_dir

  def test_imports_what_others_stored(self):
    found = self._imported(importers.rlds(self._store()))
    np.testing.assert_array_equal(found.lengths, [2, 1])
    self.assertEqual(found.action_spec(), dm_specs.DiscreteArray(3))
    self.assertEqual(list(found.observation_spec()), ['x'])
    first, second = found.episode(0), found.episode(1)
    np.testing.assert_array_equal(first.action, [0, 1])
    np.testing.assert_array_equal(first.discount, [1, 0])
    np.testing.assert_array_equal(first.final_observation['x'], np.float32([0.5, 0.5]))
    self.assertEqual([first.end[-1], second.end[-1]], [1, 2])

  @_needs('envlogger')
  def test_imports_what_envlogger_recorded(self):
    # pylint: disable=import-outside-toplevel
    import envlogger
    from envlogger.backends import tfds_backend_writer
    import tensorflow_datasets as tfds
    # pylint: enable=import-outside-toplevel
    task = environments.TMaze(corridor_length=3, seed=0)
    config_ = tfds.rlds.rlds_base.DatasetConfig(
        name='t_maze', observation_info=tfds.features.Tensor(shape=[4], dtype=np.float32),
        action_info=tfds.features.ClassLabel(num_classes=4), reward_info=np.float64,
        discount_info=np.float64)
    (self._folder / 'logged').mkdir()
    backend = tfds_backend_writer.TFDSBackendWriter(
        str(self._folder / 'logged'), max_episodes_per_file=2, split_name='train',
        ds_config=config_)
    recorded = []
    with envlogger.EnvLogger(task, backend=backend) as logged:
      for _ in range(3):
        time_steps, actions = [logged.reset()], []
        while not time_steps[-1].last():
          actions.append(np.int64(task.informed_action()))
          time_steps.append(logged.step(actions[-1]))
        recorded.append((time_steps, actions))
    found = self._imported(importers.rlds(self._folder / 'logged'))
    self.assertEqual(found.num_episodes, 3)
    specs = datasets.Specs(task.observation_spec(), dm_specs.DiscreteArray(4, np.int64))
    for i, (time_steps, actions) in enumerate(recorded):
      expected = datasets.from_dm_env(time_steps, actions, specs)
      episodes_testing.assert_equal(
          found.episode(i), expected._replace(action=expected.action.astype(np.int32)))

  def test_missing_fields_are_named(self):
    with self.assertRaisesRegex(datasets.DatasetError, 'dataset_info.json: missing'):
      importers.rlds(self._folder)
    with self.assertRaisesRegex(datasets.DatasetError, "has no 'reward' in steps"):
      importers.rlds(self._store({'reward': None}))

  def test_says_what_is_wrong_with_episodes(self):
    folder = self._store(lengths=(3, 1))
    with self.assertRaisesRegex(datasets.DatasetError, 'an episode of 1 steps'):
      self._imported(importers.rlds(folder))
    path, = pathlib.Path(folder).glob('*.tfrecord*')
    path.write_bytes(path.read_bytes()[:-9])
    with self.assertRaisesRegex(datasets.DatasetError, 'cannot be read'):
      self._imported(importers.rlds(folder))


class MissingTest(ExporterTest):

  def test_a_missing_package_is_named(self):
    specs = datasets.Specs(dm_specs.Array((), np.float32), dm_specs.DiscreteArray(2))
    dataset = self._write(specs, self._random(specs))
    with mock.patch.dict('sys.modules', {'minari': None}):
      with self.assertRaisesRegex(config.ConfigError, 'Minari needs .*minari.*offline'):
        exporters.minari(dataset, 'any-v0')
    with mock.patch.dict('sys.modules', {'tensorflow_datasets': None}):
      with self.assertRaisesRegex(config.ConfigError, 'RLDS needs .*tensorflow_datasets'):
        exporters.rlds(dataset, self._folder / 'rlds')
      (self._folder / 'dataset_info.json').write_text('{}')
      with self.assertRaisesRegex(config.ConfigError, 'RLDS needs .*tensorflow_datasets'):
        importers.rlds(self._folder)


if __name__ == '__main__':
  absltest.main()
