"""Tests of importers.py, on small files in the formats of other libraries."""

import gzip
import importlib.util
import io
import json
import os
import pathlib
import sys
from unittest import mock
import warnings

from absl.testing import absltest
from absl.testing import parameterized
from dm_env import specs as dm_specs
import numpy as np
from PIL import Image

from gtrxl_tf import datasets
from gtrxl_tf.datasets import importers
from gtrxl_tf.settings import config

try:
  import h5py
except ModuleNotFoundError:
  h5py = None

_NEEDS_H5PY = absltest.skipIf(h5py is None, 'h5py is not installed')


def _import(source, path):
  dataset = importers.import_dataset(source, path, 'Task-v0', io.StringIO())
  datasets.check(path)
  return dataset


@_NEEDS_H5PY
class D4RLTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._folder = pathlib.Path(self.create_tempdir().full_path)
    self._path = self._folder / 'hopper.hdf5'
    rng = np.random.default_rng(0)
    self._arrays = {
        'observations': rng.normal(size=(20, 3)), 'actions': rng.normal(size=(20, 2)),
        'rewards': rng.normal(size=20), 'terminals': np.zeros(20, bool),
        'timeouts': np.zeros(20, bool)}
    self._arrays['terminals'][[4, 12]] = True
    self._arrays['timeouts'][[9, 12, 17]] = True

  def _write(self, without=(), **other):
    with h5py.File(self._path, 'w') as file:
      for name, array in {**self._arrays, **other}.items():
        if name not in without:
          file[name] = array

  def test_episodes_end_at_terminals_and_timeouts(self):
    self._write()
    dataset = _import(importers.d4rl(self._path), self._folder / 'out')
    self.assertEqual(dataset.environment, 'Task-v0')
    np.testing.assert_array_equal(dataset.lengths, [5, 5, 3, 5])  # Two steps are over.
    for i, (begin, end, kind) in enumerate([(0, 5, 1), (5, 10, 2), (10, 13, 1),
                                            (13, 18, 2)]):
      episode = dataset.episode(i)
      np.testing.assert_array_equal(
          episode.observation, self._arrays['observations'][begin:end].astype('f4'))
      np.testing.assert_array_equal(
          episode.action, self._arrays['actions'][begin:end].astype('f4'))
      np.testing.assert_array_equal(
          episode.reward, self._arrays['rewards'][begin:end].astype('f4'))
      self.assertEqual(episode.end[-1], kind)
      self.assertEqual(episode.discount[-1], kind - 1)
      self.assertIsNone(episode.final_observation)

  def test_without_timeouts_the_limit_must_be_given(self):
    self._write(without=['timeouts'])
    with self.assertRaisesRegex(datasets.DatasetError, "no array 'timeouts'; without"):
      importers.d4rl(self._path)
    dataset = _import(importers.d4rl(self._path, 4), self._folder / 'out')
    np.testing.assert_array_equal(dataset.lengths, [4, 1, 4, 4, 4])
    self.assertEqual([dataset.episode(i).end[-1] for i in range(5)], [2, 1, 2, 1, 2])

  @parameterized.parameters(
      (0, dm_specs.DiscreteArray(3)), (-1, dm_specs.BoundedArray((), np.int32, -1, 1)))
  def test_discrete_actions_are_counted(self, least, spec):
    self._write(actions=np.arange(20) % 3 + least)
    dataset = _import(importers.d4rl(self._path), self._folder / 'out')
    self.assertEqual(dataset.action_spec(), spec)
    np.testing.assert_array_equal(
        dataset.episode(1).action, np.array([2, 0, 1, 2, 0]) + least)

  def test_resumes_and_refuses_another_input(self):
    self._write()
    source = importers.d4rl(self._path)
    with datasets.EpisodeWriter(
        self._folder / 'out', source.specs, 'Task-v0', source.settings,
        final_observation=False) as writer:
      writer.write([next(source.episodes), next(source.episodes)])
    dataset = _import(importers.d4rl(self._path), self._folder / 'out')
    np.testing.assert_array_equal(dataset.lengths, [5, 5, 3, 5])
    source.episodes.close()
    self._write(rewards=np.ones(20))
    with self.assertRaisesRegex(datasets.DatasetError, 'other settings'):
      _import(importers.d4rl(self._path), self._folder / 'out')

  @parameterized.parameters('complex64', 'S4', h5py and h5py.string_dtype())
  def test_arrays_of_other_types_are_refused(self, dtype):
    self._write(without=['observations'])
    with h5py.File(self._path, 'a') as file:
      file.create_dataset('observations', (20, 3), dtype)
    with self.assertRaisesRegex(datasets.DatasetError, 'observation has dtype '):
      _import(importers.d4rl(self._path), self._folder / 'out')

  def test_says_what_is_wrong_with_the_file(self):
    def refused(message, path=self._path, *rest):
      with self.assertRaisesRegex(datasets.DatasetError, message):
        _import(importers.d4rl(path, *rest), self._folder / 'out')

    self._path.write_bytes(b'no hdf5')
    refused('hopper.hdf5: cannot be read')
    refused('nowhere: cannot be read', self._folder / 'nowhere')
    self._write(without=['rewards'])
    refused("no array 'rewards'")
    self._write()
    refused('has timeouts', self._path, 7)
    self._write(actions=np.zeros((19, 2)))
    refused('actions has 19 steps: .* 20')
    self._write(rewards=np.full(20, np.nan))
    refused('reward of episode 0, step 0')
    self._write(terminals=np.zeros(20, bool), timeouts=np.zeros(20, bool))
    refused('has no complete episode|other settings')
    self._write(rewards=0.0)
    refused('cannot be read: TypeErr')


@_NEEDS_H5PY
class MinariTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._folder = pathlib.Path(self.create_tempdir().full_path) / 'door-v0'
    rng = np.random.default_rng(0)
    (self._folder / 'data').mkdir(parents=True)
    self._observation_space = {'type': 'Dict', 'subspaces': {
        'mission': {'type': 'Text', 'max_length': 9, 'min_length': 0, 'charset': 'ab'},
        'image': {'type': 'Box', 'dtype': 'uint8', 'shape': [2, 2, 3],
                  'low': np.zeros((2, 2, 3), int).tolist(),
                  'high': np.full((2, 2, 3), 255).tolist()},
        'x': {'type': 'Box', 'dtype': 'float64', 'shape': [1],
              'low': [float('-inf')], 'high': [float('inf')]}}}
    self._action_space = {'type': 'Discrete', 'dtype': 'int64', 'start': 2, 'n': 4}
    self._episodes = []
    with h5py.File(self._folder / 'data' / 'main_data.hdf5', 'w') as file:
      for i in range(12):
        num = int(rng.integers(1, 6))
        episode = {
            'image': rng.integers(256, size=(num + 1, 2, 2, 3)).astype(np.uint8),
            'x': rng.normal(size=(num + 1, 1)), 'actions': rng.integers(2, 6, size=num),
            'rewards': rng.normal(size=num), 'terminated': bool(i % 2)}
        self._episodes.append(episode)
        group = file.create_group(f'episode_{i}')
        group.attrs['id'] = i
        observations = group.create_group('observations')
        observations['mission'] = [b'a'] * (num + 1)
        observations['image'], observations['x'] = episode['image'], episode['x']
        group['actions'], group['rewards'] = episode['actions'], episode['rewards']
        for name in ('terminations', 'truncations'):
          flags = np.zeros(num, bool)
          flags[-1] = episode['terminated'] == (name == 'terminations')
          group[name] = flags
    self._write_metadata()

  def _write_metadata(self, **other):
    (self._folder / 'data' / 'metadata.json').write_text(json.dumps({
        'total_episodes': 12, 'data_format': 'hdf5',
        'observation_space': json.dumps(self._observation_space),
        'action_space': json.dumps(self._action_space), **other}))

  def test_episodes_come_in_their_order_with_their_last_observation(self):
    dataset = _import(importers.minari(self._folder), self._folder / 'out')
    self.assertEqual(dataset.num_episodes, 12)
    self.assertEqual(dataset.action_spec(), dm_specs.BoundedArray((), np.int32, 2, 5))
    self.assertEqual(set(dataset.observation_spec()), {'image', 'x'})
    self.assertEqual(dataset.observation_spec()['image'].maximum.max(), 255)
    self.assertEqual(dataset.observation_spec()['x'].dtype, np.float32)
    for i, expected in enumerate(self._episodes):
      episode = dataset.episode(i)
      for name, dtype in (('image', np.uint8), ('x', np.float32)):
        values = expected[name].astype(dtype)
        np.testing.assert_array_equal(episode.observation[name], values[:-1])
        np.testing.assert_array_equal(episode.final_observation[name], values[-1])
      np.testing.assert_array_equal(episode.action, expected['actions'])
      np.testing.assert_array_equal(episode.reward, expected['rewards'].astype('f4'))
      self.assertEqual(episode.end[-1], 1 if expected['terminated'] else 2)
      self.assertEqual(episode.discount[-1], not expected['terminated'])

  def test_is_found_by_its_id(self):
    root = self._folder.parent
    (root / 'D4RL').mkdir()
    self._folder.rename(root / 'D4RL' / 'door-v0')
    for variables, root in (({'MINARI_DATASETS_PATH': str(root)}, root),
                            ({'HOME': str(root / 'home')},
                             root / 'home' / '.minari' / 'datasets')):
      if not root.exists():
        root.parent.mkdir(parents=True)
        root.symlink_to(self._folder.parent)
      with mock.patch.dict(os.environ, variables, clear=True):
        self.assertRegex(
            importers.minari('D4RL/door-v0').settings, r'^minari door-v0 [0-9a-f]{8}$')
        with self.assertRaises(datasets.DatasetError) as caught:
          importers.minari('D4RL/other-v0')
      self.assertEqual(
          str(caught.exception), 'D4RL/other-v0/data/metadata.json and '
          f'{root}/D4RL/other-v0/data/metadata.json: missing: expected the folder of a '
          'local Minari dataset, or its id')

  def _store(self, space, arrays):
    """Replaces the images of all episodes, and their space."""
    self._observation_space['subspaces']['image'] = space
    self._write_metadata()
    with h5py.File(self._folder / 'data' / 'main_data.hdf5', 'a') as file:
      for group in file.values():
        del group['observations/image']
        arrays(group['observations'], len(group['actions']) + 1)

  def test_jpeg_is_decoded_where_minari_does(self):
    image = np.random.default_rng(0).integers(256, size=(32, 33, 3)).astype(np.uint8)
    data = io.BytesIO()
    Image.fromarray(image).save(data, 'JPEG')
    encoded = np.frombuffer(data.getvalue(), np.uint8)

    def store(group, num):
      group['image'] = np.stack([encoded] * num)

    space = {'type': 'Box', 'dtype': 'uint8', 'shape': [32, 33, 3], 'low': 0,
             'high': 255}
    self._store(space, store)
    found = _import(importers.minari(self._folder), self._folder / 'jpeg').episode(0)
    np.testing.assert_array_equal(found.final_observation['image'], np.asarray(
        Image.open(io.BytesIO(encoded.tobytes()))))
    for shape, message in (([40, 50, 3], r'has a picture of shape \(32, 33, 3\)'),
                           ([7, 7, 3], r'Minari stored uint8 of shape \(7, 7, 3\) as JPEG')):
      self._store({**space, 'shape': shape}, store)
      with self.assertRaisesRegex(datasets.DatasetError, message):
        _import(importers.minari(self._folder), self._folder / 'other')
    self._store(space, lambda group, num: group.create_dataset(
        'image', data=np.zeros((num, 9), np.uint8)))
    with self.assertRaisesRegex(datasets.DatasetError, 'door-v0: cannot be read: Unid'):
      _import(importers.minari(self._folder), self._folder / 'other')

  def test_jpeg_keeps_a_single_number(self):
    numbers = np.linspace(0, 255, 12).astype(np.uint8)
    self._action_space = {'type': 'Box', 'dtype': 'uint8', 'shape': [1], 'low': 0, 'high': 255}
    self._write_metadata()
    with h5py.File(self._folder / 'data' / 'main_data.hdf5', 'a') as file:
      for number, group in zip(numbers, file.values()):
        data = io.BytesIO()
        Image.fromarray(np.uint8([number])).save(data, 'JPEG')
        num = len(group['actions'])
        del group['actions']
        group['actions'] = np.stack([np.frombuffer(data.getvalue(), np.uint8)] * num)
    dataset = _import(importers.minari(self._folder), self._folder / 'single')
    self.assertEqual({int(dataset.episode(i).action[0, 0]) for i in range(12)},
                     set(numbers.tolist()))

  def test_says_what_cannot_be_read(self):
    def refused(message, folder=self._folder):
      with self.assertRaisesRegex(datasets.DatasetError, message):
        _import(importers.minari(folder), self._folder / 'out')

    refused('metadata.json: missing', self._folder / 'data')
    for message, metadata in (
        ("'arrow'", dict(data_format='arrow')),
        ('action has .* type Sequence', dict(action_space='{"type": "Sequence"}')),
        ('door-v0: cannot be read: ', dict(action_space='{"type": ')),
        ('door-v0: cannot be read: ', dict(action_space='{"type": "Discrete", "n": 0}')),
        ('door-v0: cannot be read: ',
         dict(observation_space='{"type": "Box", "dtype": "more"}'))):
      self._write_metadata(**metadata)
      refused(message)
    self._write_metadata()
    for message, rewards in (('episode_3 has 9 rewards', np.zeros(9)),
                             ('episode_3 has no steps', np.zeros(0)),
                             ('door-v0: cannot be read: .*rewards', None)):
      with h5py.File(self._folder / 'data' / 'main_data.hdf5', 'a') as file:
        del file['episode_3']['rewards']
        if rewards is not None:
          file['episode_3']['rewards'] = rewards
      refused(message)

  def test_says_which_package_is_missing(self):
    with mock.patch.dict(sys.modules, {'h5py': None}):
      with self.assertRaisesRegex(config.ConfigError, 'Minari needs .*h5py.*offline'):
        importers.minari(self._folder)


@absltest.skipIf(importlib.util.find_spec('minari') is None
                 or importlib.util.find_spec('jax') is None,
                 'minari and jax, with which it records, are not installed')
class MinariRecorderTest(absltest.TestCase):

  def test_episodes_that_the_collector_recorded(self):
    # pylint: disable=import-outside-toplevel
    import gymnasium
    from gymnasium import spaces
    import minari
    # pylint: enable=import-outside-toplevel

    class Task(gymnasium.Env):
      """Episodes of four steps; even ones terminate, and odd ones are cut off."""
      observation_space = spaces.Dict(
          place=spaces.Tuple([spaces.Discrete(4, start=1), spaces.Box(-1, 1, [2])]),
          camera=spaces.Box(0, 255, [32, 32, 3], np.uint8), name=spaces.Text(5),
          bytes=spaces.Box(0, 255, [3], np.uint8))
      action_space = spaces.Discrete(3, start=-1)
      episode = -1

      def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode += 1
        self.seen = []
        return self._observe(), {}

      def step(self, action):
        observation = self._observe()
        over = len(self.seen) == 5
        even = self.episode % 2 == 0
        return observation, float(action), over and even, over and not even, {}

      def _observe(self):
        self.seen.append(self.observation_space.sample())
        return self.seen[-1]

    folder = pathlib.Path(self.create_tempdir().full_path)
    with mock.patch.dict(os.environ, {'MINARI_DATASETS_PATH': str(folder / 'minari')}):
      task = minari.DataCollector(Task())
      seen = []
      for _ in range(3):
        task.reset()
        seen.append(task.unwrapped.seen)
        for action in (-1, 0, 1, 1):
          task.step(np.int64(action))
      with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # The warning that the author is not given.
        task.create_dataset('tests/task-v0')
      task.close()
      dataset = _import(importers.minari('tests/task-v0'), folder / 'out')
    self.assertEqual(dataset.num_episodes, 3)
    self.assertEqual(
        dataset.action_spec(), dm_specs.BoundedArray((), np.int32, -1, 1))
    self.assertEqual(set(dataset.observation_spec()), {'place', 'camera', 'bytes'})
    for i, observations in enumerate(seen):
      episode = dataset.episode(i)
      np.testing.assert_array_equal(episode.action, [-1, 0, 1, 1])
      np.testing.assert_array_equal(episode.reward, [-1, 0, 1, 1])
      self.assertEqual(episode.end[-1], 2 if i == 1 else 1)
      np.testing.assert_array_equal(
          [*episode.observation['place'][0], episode.final_observation['place'][0]],
          [x['place'][0] for x in observations])
      np.testing.assert_array_equal(
          episode.observation['bytes'], [x['bytes'] for x in observations[:-1]])
      np.testing.assert_array_equal(
          episode.observation['place'][1], [x['place'][1] for x in observations[:-1]])
      # JPEG approximately keeps the mean of a picture.
      np.testing.assert_allclose(
          episode.observation['camera'].mean(axis=(1, 2, 3)),
          [x['camera'].mean() for x in observations[:-1]], atol=10)


class DQNReplayTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._folder = pathlib.Path(self.create_tempdir().full_path) / 'Pong'
    self._folder.mkdir()
    rng = np.random.default_rng(0)
    self._files = {}
    for number in (0, 2, 10):
      num = 40
      self._files[number] = {
          'observation': rng.integers(1, 256, size=(num, 3, 3)).astype(np.uint8),
          'action': rng.integers(5, size=num).astype(np.int32),
          'reward': rng.integers(-1, 2, size=num).astype(np.float32),
          'terminal': np.zeros(num, np.uint8)}
      self._files[number]['action'][7] = 5
      self._files[number]['terminal'][[9, 20, 33]] = 1
      for begin in (0, 10, 21, 34):  # Dopamine's padding.
        for name in ('observation', 'action', 'reward'):
          self._files[number][name][begin:begin + 3] = 0
      self._files[number]['observation'][13] = 0  # A black picture of the game.
    self._write()

  def _write(self):
    for number, arrays in self._files.items():
      for name, array in arrays.items():
        path = self._folder / f'$store$_{name}_ckpt.{number}.gz'
        with gzip.open(path, 'wb') as file:
          np.save(file, array)

  def test_whole_episodes_without_padding(self):
    source = importers.dqn_replay(self._folder)
    dataset = _import(source, self._folder / 'out')
    rows = [(0, 3, 10), (0, 13, 21), (0, 24, 34),
            (2, 13, 21), (2, 24, 34), (10, 13, 21), (10, 24, 34)]
    # The fourth step of an episode is its first even if it is black.
    np.testing.assert_array_equal(
        dataset.lengths, [end - begin for _, begin, end in rows])
    self.assertEqual(dataset.action_spec(), dm_specs.DiscreteArray(6))
    self.assertEqual(dataset.observation_spec(), dm_specs.Array((3, 3, 1), np.uint8))
    for i, (number, begin, end) in enumerate(rows):
      episode = dataset.episode(i)
      for found, name in [(episode.observation[..., 0], 'observation'),
                          (episode.action, 'action'), (episode.reward, 'reward')]:
        np.testing.assert_array_equal(found, self._files[number][name][begin:end])
      self.assertEqual((episode.end[-1], episode.discount[-1]), (1, 0))

  def test_actions_have_the_names_that_are_given(self):
    names = tuple('01234567')
    source = importers.dqn_replay(self._folder, action_names=names)
    spec = _import(source, self._folder / 'out').action_spec()
    self.assertEqual((spec.num_values, spec.names), (8, names))
    with self.assertRaisesRegex(datasets.DatasetError, r'an integer in \[0, 2\)'):
      _import(importers.dqn_replay(self._folder, action_names=names[:2]),
              self._folder / 'other')

  def test_stops_after_enough_steps_of_a_file(self):
    dataset = _import(importers.dqn_replay(self._folder, 8), self._folder / 'out')
    np.testing.assert_array_equal(dataset.lengths, [7, 8, 8, 8])

  def test_says_what_is_wrong(self):
    def refused(message, folder=self._folder):
      with self.assertRaisesRegex(datasets.DatasetError, message):
        _import(importers.dqn_replay(folder), self._folder / 'out')

    refused('no .store._observation', self._folder / 'nowhere')
    path = self._folder / '$store$_observation_ckpt.2.gz'
    whole = path.read_bytes()
    for data in whole[:200], b'x', gzip.compress(b'x' * 99):
      path.write_bytes(data)
      refused('observation_ckpt.2.gz: cannot be read')
    path.write_bytes(whole)
    self._files[2]['action'] = self._files[2]['action'][:-1]
    self._write()
    refused('action has 39 steps: .* 40|other settings')
    (self._folder / '$store$_reward_ckpt.2.gz').unlink()
    refused('reward_ckpt.2.gz: cannot be read|other settings')


if __name__ == '__main__':
  absltest.main()
