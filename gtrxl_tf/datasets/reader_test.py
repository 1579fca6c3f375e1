"""Tests of reader.py: every kind of damage is found and reported."""

import json
import pathlib
import shutil
import zlib

from absl.testing import absltest
from absl.testing import parameterized
from dm_env import specs as dm_specs
import numpy as np

from gtrxl_tf import datasets
from gtrxl_tf import files
from gtrxl_tf.datasets import episodes_testing

_SPECS = datasets.Specs(
    {'image': dm_specs.BoundedArray((3, 2), np.uint8, 0, 255),
     'x': dm_specs.Array((), np.float32)}, dm_specs.DiscreteArray(3))


class ReaderTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._path = pathlib.Path(self.create_tempdir().full_path) / 'dataset'
    rng = np.random.default_rng(0)
    episodes = [episodes_testing.random_episode(_SPECS, rng) for _ in range(7)]
    episodes_testing.write(self._path, _SPECS, episodes, shard_episodes=3)
    self._whole = self._path.with_name('whole')
    shutil.copytree(self._path, self._whole)

  def _restore(self):
    shutil.rmtree(self._path)
    shutil.copytree(self._whole, self._path)

  def _files(self):
    return sorted(path.relative_to(self._path) for path in self._path.rglob('*.npy'))

  def _rewrite(self, name, array, num_episodes=None):
    """Replaces a shard's array and updates dataset.json."""
    (self._path / name).unlink()
    with open(self._path / name, 'xb') as file:
      np.lib.format.write_array(file, array, version=(1, 0), allow_pickle=True)
    description = json.loads((self._path / 'dataset.json').read_text())
    [shard] = [s for s in description['shards'] if s['name'] == name.split('/')[0]]
    data = (self._path / name).read_bytes()
    shard['files'][name.split('/')[1]] = {
        'bytes': len(data), 'crc32': f'{zlib.crc32(data):08x}'}
    self._sign(description)

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

  def test_a_missing_file_is_named(self):
    for name in self._files():
      self._restore()
      (self._path / name).unlink()
      with self.assertRaisesRegex(datasets.DatasetError, f'{name}: missing'):
        datasets.open_dataset(self._path)

  def test_a_missing_shard_is_named(self):
    shutil.rmtree(self._path / 'shard-00001')
    with self.assertRaisesRegex(datasets.DatasetError, 'shard-00001/.*: missing'):
      datasets.open_dataset(self._path)

  def test_another_size_is_named(self):
    for name in self._files():
      whole = (self._path / name).read_bytes()
      for data in (whole[:-1], whole[:10], b'', whole + b'x'):
        (self._path / name).write_bytes(data)
        with self.assertRaisesRegex(datasets.DatasetError,
                                    f'{name}: has {len(data):,} bytes: expected '):
          datasets.open_dataset(self._path)
      (self._path / name).write_bytes(whole)
    datasets.open_dataset(self._path)

  def test_a_flipped_byte_anywhere_is_found(self):
    rng = np.random.default_rng(1)
    for name in self._files():
      whole = (self._path / name).read_bytes()
      for place in rng.integers(len(whole), size=12):
        data = bytearray(whole)
        data[place] ^= int(rng.integers(1, 256))
        (self._path / name).write_bytes(data)
        with self.assertRaisesRegex(datasets.DatasetError, str(name)):
          datasets.check(self._path)
      (self._path / name).write_bytes(whole)
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
    for key in description:
      without = {k: v for k, v in description.items() if k != key}
      file.write_text(json.dumps(without))
      with self.assertRaisesRegex(datasets.DatasetError, 'dataset.json'):
        datasets.open_dataset(self._path)
    for length in (0, 1, len(whole) // 2, len(whole) - 3):
      file.write_bytes(whole[:length])
      with self.assertRaisesRegex(datasets.DatasetError, 'dataset.json: not JSON'):
        datasets.open_dataset(self._path)

  def test_another_version_or_format_is_refused(self):
    description = json.loads((self._path / 'dataset.json').read_text())
    self._sign({**description, 'version': 2})
    with self.assertRaisesRegex(datasets.DatasetError, 'has version 2: expected 1'):
      datasets.open_dataset(self._path)
    self._sign({**description, 'format': 'another'})
    with self.assertRaisesRegex(datasets.DatasetError, "format 'gtrxl_tf episodes'"):
      datasets.open_dataset(self._path)
    with self.assertRaisesRegex(datasets.DatasetError, 'no dataset'):
      datasets.open_dataset(self._path / 'nowhere')

  @parameterized.parameters(
      ('x', lambda x: x.astype(np.float64), 'float64: expected .* float32'),
      ('x', lambda x: x[:-1], r'has shape \(.*: expected \('),
      ('x', lambda x: x[:, None], 'has shape'),
      ('x', lambda x: x.astype(object), 'not an array: .*bject'))
  def test_an_array_that_does_not_fit_the_specs_is_named(self, name, change, message):
    name = f'shard-00001/observation.{name}.npy'
    array = np.load(self._path / name, allow_pickle=False)
    self._rewrite(name, change(array))
    with self.assertRaisesRegex(datasets.DatasetError, f'{name}: .*{message}'):
      datasets.open_dataset(self._path)

  @parameterized.parameters(
      lambda x: x[::-1], lambda x: x + 1, lambda x: np.r_[x[:2], x[1], x[3:]],
      lambda x: np.r_[x[:-1], x[-1] + 1], lambda x: x * 0)
  def test_offsets_that_do_not_rise_are_named(self, change):
    name = 'shard-00000/offset.npy'
    self._rewrite(name, change(np.load(self._path / name)))
    with self.assertRaisesRegex(datasets.DatasetError,
                                f'{name}: expected numbers that rise from 0'):
      datasets.open_dataset(self._path)

  @parameterized.parameters(
      ('reward', np.nan, 'is nan: expected finite'),
      ('observation.x', np.inf, 'is inf: expected finite'),
      ('discount', -0.5, 'is -0.5: expected a number in'),
      ('action', 3, r'is 3: expected an integer in \[0, 3\)'),
      ('end', 3, 'is 3: expected an end at the last step'))
  def test_invalid_values_are_found_and_located(self, name, value, message):
    whole = datasets.open_dataset(self._path)
    first = int(whole.lengths[:3].sum())
    file = f'shard-00001/{name}.npy'
    array = np.load(self._path / file)
    row = whole.lengths[3] + whole.lengths[4] - 1  # The last of episode 4.
    self.assertEqual(first + row + 1, whole.lengths[:5].sum())
    array[row] = value
    self._rewrite(file, array)
    datasets.open_dataset(self._path)
    with self.assertRaisesRegex(
        datasets.DatasetError,
        f'{file}: {name} of episode 4, step {whole.lengths[4] - 1}, {message}'):
      datasets.check(self._path)

  def test_large_arrays_are_checked_to_their_end(self):
    specs = datasets.Specs(dm_specs.Array((2**17,), np.float32),
                           dm_specs.DiscreteArray(2))
    episodes = [episodes_testing.random_episode(specs, np.random.default_rng(i), 30)
                for i in range(3)]
    path = self._path.with_name('large')
    episodes_testing.write(path, specs, episodes)
    datasets.check(path)
    self._path = path
    file = 'shard-00000/observation.npy'
    array = np.load(path / file)
    array[-1, -1] = np.nan
    self._rewrite(file, array)
    with self.assertRaisesRegex(datasets.DatasetError, 'episode 2, step 29'):
      datasets.check(path)

  def test_a_dataset_without_episodes_is_one(self):
    path = self._path.with_name('empty')
    dataset = episodes_testing.write(path, _SPECS, [])
    datasets.check(path)
    self.assertEqual((dataset.num_episodes, dataset.num_steps), (0, 0))
    self.assertEmpty(dataset.lengths)
    self.assertEmpty(dataset.returns)


if __name__ == '__main__':
  absltest.main()
