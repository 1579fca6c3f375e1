"""Tests of inspection.py."""

import pathlib

from absl.testing import absltest
from absl.testing import parameterized
from dm_env import specs as dm_specs
import numpy as np
import pytest

from gtrxl_tf import datasets
from gtrxl_tf.datasets import episodes_testing
from gtrxl_tf.datasets import inspection


class InspectionTest(parameterized.TestCase):

  def _dataset(self, observation, lengths):
    specs = datasets.Specs(observation, dm_specs.DiscreteArray(3))
    rng = np.random.default_rng(0)
    episodes = [
        episodes_testing.random_episode(specs, rng, n)._replace(
            reward=np.full(n, 0.5, np.float32), success=float(n > 2))
        for n in lengths]
    return episodes_testing.write(pathlib.Path(self.create_tempdir().full_path), specs,
                                  episodes, environment='A task')

  def test_the_table_has_the_numbers(self):
    text = inspection.describe(
        self._dataset(dm_specs.Array((2,), np.float32), [2, 4, 6, 4]))
    lines = dict(line.split('  ', 1) for line in text.splitlines())
    values = {name: value.strip() for name, value in lines.items()}
    self.assertEqual(values['environment'], 'A task')
    self.assertEqual((values['episodes'], values['steps']), ('4', '16'))
    self.assertEqual(values['action'], 'int32 [], 3 values')
    self.assertEqual(values['length'], 'mean 4, standard deviation 1.414, '
                     'min 2, median 4, max 6')
    self.assertStartsWith(values['return'], 'mean 2, ')
    self.assertEqual(values['success'], '0.750')

  @parameterized.parameters(
      (dm_specs.Array((2,), np.float32), 0),
      (dm_specs.Array((16, 16, 3), np.uint8), 1),
      ({'a': dm_specs.Array((20, 16, 4), np.uint8),
        'b': dm_specs.Array((16, 16, 1), np.uint8),
        'symbols': dm_specs.Array((7, 7, 3), np.uint8)}, 2))
  @pytest.mark.medium
  def test_draws_pictures_where_there_are_any(self, observation, num_strips):
    dataset = self._dataset(observation, [3, 30])
    path = dataset.path / 'dataset.png'
    with self.subTest('and for episodes without spread'):
      inspection.draw(self._dataset(observation, [1, 1]), path)
    inspection.draw(dataset, path)
    self.assertStartsWith(path.read_bytes(), b'\x89PNG')
    height = int.from_bytes(path.read_bytes()[20:24], 'big')
    self.assertAlmostEqual(height, 120 * (3.6 + 1.3 * num_strips), delta=2)

  def test_without_episodes_there_is_a_table_and_no_picture(self):
    dataset = self._dataset(dm_specs.Array((), np.float32), [])
    self.assertIn('episodes     0', inspection.describe(dataset))
    with self.assertRaisesRegex(datasets.DatasetError, 'no episodes to draw'):
      inspection.draw(dataset, dataset.path / 'dataset.png')


if __name__ == '__main__':
  absltest.main()
