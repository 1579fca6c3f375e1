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

  def test_discrete_actions_are_counted(self):
    self._write(actions=np.arange(20) % 3)
    dataset = _import(importers.d4rl(self._path), self._folder / 'out')
    self.assertEqual(dataset.action_spec(), dm_specs.DiscreteArray(3))
    np.testing.assert_array_equal(dataset.episode(1).action, [2, 0, 1, 2, 0])

  def test_integers_below_0_keep_their_numbers(self):
    self._write(actions=np.arange(20) % 3 - 1)
    dataset = _import(importers.d4rl(self._path), self._folder / 'out')
    self.assertEqual(
        dataset.action_spec(), dm_specs.BoundedArray((), np.int32, -1, 1))
    np.testing.assert_array_equal(dataset.episode(1).action, [1, -1, 0, 1, -1])

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

  def test_a_file_that_says_where_episodes_were_cut_off_needs_no_number(self):
    self._write()
    with self.assertRaisesRegex(datasets.DatasetError, 'has timeouts'):
      importers.d4rl(self._path, 7)

  @parameterized.parameters('complex64', 'S4', h5py and h5py.string_dtype())
  def test_arrays_of_other_types_are_refused(self, dtype):
    self._write(without=['observations'])
    with h5py.File(self._path, 'a') as file:
      file.create_dataset('observations', (20, 3), dtype)
    with self.assertRaisesRegex(datasets.DatasetError, 'observation has dtype '):
      _import(importers.d4rl(self._path), self._folder / 'out')

  def test_says_what_is_wrong_with_the_file(self):
    self._path.write_bytes(b'no hdf5')
    with self.assertRaisesRegex(datasets.DatasetError, 'not an HDF5 file'):
      importers.d4rl(self._path)
    with self.assertRaisesRegex(datasets.DatasetError, 'nowhere: missing'):
      importers.d4rl(self._folder / 'nowhere')
    self._write(without=['rewards'])
    with self.assertRaisesRegex(datasets.DatasetError, "no array 'rewards'"):
      importers.d4rl(self._path)
    self._write(actions=np.zeros((19, 2)))
    with self.assertRaisesRegex(datasets.DatasetError, 'actions has 19 steps: .* 20'):
      importers.d4rl(self._path)
    self._write(rewards=np.full(20, np.nan))
    with self.assertRaisesRegex(datasets.DatasetError, 'reward of episode 0, step 0'):
      _import(importers.d4rl(self._path), self._folder / 'out')
    self._write(terminals=np.zeros(20, bool), timeouts=np.zeros(20, bool))
    with self.assertRaisesRegex(datasets.DatasetError, 'has no complete episode'):
      _import(importers.d4rl(self._path), self._folder / 'other')
    self._write(rewards=0.0)
    with self.assertRaisesRegex(datasets.DatasetError, 'cannot be read: TypeErr'):
      importers.d4rl(self._path)
    self._write()
    self._path.write_bytes(self._path.read_bytes()[:-100])
    with self.assertRaisesRegex(datasets.DatasetError, 'not an HDF5 file: .*truncated'):
      importers.d4rl(self._path)


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

  def test_arrays_of_integers_keep_their_numbers(self):
    self._action_space = {'type': 'MultiDiscrete', 'dtype': 'int64', 'nvec': [3, 5],
                          'start': [1, -2]}
    self._observation_space['subspaces']['x'] = {'type': 'MultiBinary', 'n': 1}
    self._observation_space['subspaces']['image'] = {'type': 'MultiBinary', 'n': [2, 3]}
    self._write_metadata()
    with h5py.File(self._folder / 'data' / 'main_data.hdf5', 'a') as file:
      for group in file.values():
        num = len(group['actions'])
        del group['actions'], group['observations/x'], group['observations/image']
        group['actions'] = np.tile([[3, -2]], [num, 1])
        group['observations/x'] = np.ones([num + 1, 1], np.int8)
        group['observations/image'] = np.ones([num + 1, 2, 3], np.int8)
    dataset = _import(importers.minari(self._folder), self._folder / 'out')
    self.assertEqual(dataset.action_spec(), dm_specs.BoundedArray(
        [2], np.int32, [1, -2], [3, 2]))
    self.assertEqual(dataset.observation_spec()['x'], dm_specs.BoundedArray(
        [1], np.int8, 0, 1))
    episode = dataset.episode(0)
    np.testing.assert_array_equal(
        episode.action, np.tile([[3, -2]], [len(episode.action), 1]))
    self.assertEqual(episode.observation['image'].shape[1:], (2, 3))
    self.assertEqual(episode.observation['image'].dtype, np.int8)

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

  def test_images_are_decoded(self):
    image = np.random.default_rng(0).integers(256, size=(32, 33, 3)).astype(np.uint8)
    def encoded(format_, size=None):
      data = io.BytesIO()
      picture = Image.fromarray(image)
      (picture.resize(size) if size else picture).save(data, format_)
      return np.frombuffer(data.getvalue(), np.uint8)

    def same_length(group, num):
      group['image'] = np.stack([encoded('JPEG')] * num)

    def any_length(group, num, size=None):
      group.create_dataset('image', (num,), h5py.vlen_dtype(np.uint8))
      for i in range(num):
        group['image'][i] = encoded('PNG', size)

    space = {'type': 'Box', 'dtype': 'uint8', 'shape': [32, 33, 3], 'low': 0,
             'high': 255}
    self._store(space, same_length)
    found = _import(importers.minari(self._folder), self._folder / 'jpeg').episode(0)
    np.testing.assert_array_equal(found.final_observation['image'], np.asarray(
        Image.open(io.BytesIO(encoded('JPEG').tobytes()))))
    self._store(space, any_length)
    found = _import(importers.minari(self._folder), self._folder / 'png').episode(0)
    np.testing.assert_array_equal(found.observation['image'][0], image)
    self._store(space, lambda group, num: any_length(group, num, (40, 50)))
    with self.assertRaisesRegex(datasets.DatasetError, r'has a picture of shape \(50, 40, 3\)'):
      _import(importers.minari(self._folder), self._folder / 'other')
    self._store(space, lambda group, num: group.create_dataset(
        'image', data=np.zeros((num, 9), np.uint8)))
    with self.assertRaisesRegex(datasets.DatasetError, 'door-v0: cannot be read: Unid'):
      _import(importers.minari(self._folder), self._folder / 'other')
    self._store({**space, 'shape': [7, 7, 3]}, same_length)
    with self.assertRaisesRegex(
        datasets.DatasetError, r'Minari stored uint8 of shape \(7, 7, 3\) as JPEG'):
      _import(importers.minari(self._folder), self._folder / 'small')

  def test_bytes_are_what_was_recorded_or_are_refused(self):
    def space(size):
      return {'type': 'Box', 'dtype': 'uint8', 'shape': [size], 'low': 0, 'high': 255}

    def jpeg(values):
      data = io.BytesIO()
      Image.fromarray(np.uint8(values)).save(data, 'JPEG')
      return np.frombuffer(data.getvalue(), np.uint8)

    def plain(group, num):
      group['image'] = np.tile(np.uint8([7, 3, 200]), [num, 1])

    self._store(space(3), plain)
    found = _import(importers.minari(self._folder), self._folder / 'plain').episode(0)
    np.testing.assert_array_equal(found.final_observation['image'], [7, 3, 200])
    # JPEG keeps a single number.
    numbers = np.linspace(0, 255, 12).astype(np.uint8)
    self._action_space = space(1)
    self._write_metadata()
    with h5py.File(self._folder / 'data' / 'main_data.hdf5', 'a') as file:
      for i, group in enumerate(file.values()):
        num = len(group['actions'])
        del group['actions']
        group['actions'] = np.stack([jpeg([numbers[i]])] * num)
    dataset = _import(importers.minari(self._folder), self._folder / 'single')
    self.assertEqual({int(dataset.episode(i).action[0, 0]) for i in range(12)},
                     set(numbers.tolist()))
    self._action_space = {'type': 'Tuple', 'subspaces': [space(2)]}
    self._write_metadata()
    with h5py.File(self._folder / 'data' / 'main_data.hdf5', 'a') as file:
      for group in file.values():
        num = len(group['actions'])
        del group['actions']
        group['actions/_index_0'] = np.stack([jpeg([7, 3])] * num)
    with self.assertRaisesRegex(
        datasets.DatasetError, r'episode_0/actions/_index_0: .*\(2,\) as JPEG'):
      _import(importers.minari(self._folder), self._folder / 'actions')

  def test_says_what_cannot_be_read(self):
    with self.assertRaisesRegex(datasets.DatasetError, 'metadata.json: missing'):
      importers.minari(self._folder / 'data')
    self._write_metadata(data_format='arrow')
    with self.assertRaisesRegex(datasets.DatasetError, "'arrow'"):
      importers.minari(self._folder)
    self._write_metadata(action_space=json.dumps({'type': 'Sequence'}))
    with self.assertRaisesRegex(datasets.DatasetError, 'action has .* type Sequence'):
      importers.minari(self._folder)
    self._write_metadata()
    with h5py.File(self._folder / 'data' / 'main_data.hdf5', 'a') as file:
      del file['episode_3']['rewards']
      file['episode_3']['rewards'] = np.zeros(9)
    with self.assertRaisesRegex(datasets.DatasetError, 'episode_3 has 9 rewards'):
      _import(importers.minari(self._folder), self._folder / 'out')
    with h5py.File(self._folder / 'data' / 'main_data.hdf5', 'a') as file:
      del file['episode_3']['rewards']
    with self.assertRaisesRegex(datasets.DatasetError, 'episode_3: .*rewards'):
      _import(importers.minari(self._folder), self._folder / 'out')
    with h5py.File(self._folder / 'data' / 'main_data.hdf5', 'a') as file:
      file['episode_3']['rewards'] = np.zeros(0)
    with self.assertRaisesRegex(datasets.DatasetError, 'episode_3 has no steps'):
      _import(importers.minari(self._folder), self._folder / 'out')
    for damage in (dict(action_space='{"type": '), dict(action_space='{}'),
                   dict(action_space='{"type": "Discrete", "n": 0}'),
                   dict(observation_space='{"type": "Box", "dtype": "more"}')):
      self._write_metadata(**damage)
      with self.assertRaisesRegex(datasets.DatasetError, 'door-v0: cannot be read: '):
        importers.minari(self._folder)

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
    self.assertEqual(dataset.observation_spec()['place'][0],
                     dm_specs.BoundedArray((), np.int32, 1, 4))
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
    with self.assertRaisesRegex(datasets.DatasetError, 'no .store._observation'):
      importers.dqn_replay(self._folder / 'nowhere')
    path = self._folder / '$store$_observation_ckpt.2.gz'
    whole = path.read_bytes()
    for data, message in [(whole[:200], 'not a gzipped'), (b'x', 'not a gzipped'),
                          (gzip.compress(b'x' * 99), 'not a gzipped array')]:
      path.write_bytes(data)
      with self.assertRaisesRegex(datasets.DatasetError, message):
        _import(importers.dqn_replay(self._folder), self._folder / 'out')
    path.write_bytes(whole)
    self._files[2]['action'] = self._files[2]['action'][:-1]
    self._write()
    with self.assertRaisesRegex(datasets.DatasetError, 'action has 39 steps: .* 40'):
      _import(importers.dqn_replay(self._folder), self._folder / 'other')
    (self._folder / '$store$_reward_ckpt.2.gz').unlink()
    with self.assertRaisesRegex(datasets.DatasetError, 'reward_ckpt.2.gz: missing'):
      _import(importers.dqn_replay(self._folder), self._folder / 'other')


if __name__ == '__main__':
  absltest.main()
