"""Tests of histories.py."""

import math
import pathlib

from absl.testing import absltest
import numpy as np

from gtrxl_tf.training.offline import history_curves


class HistoriesTest(absltest.TestCase):

  def test_returns_by_part(self):
    reward = np.array([[1, 2, 0, 0, 4, 0, 0, 9], [0, 0, 0, 0, 0, 5, 1, 2]], np.int8)
    end = np.array([[0, 2, 1, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0, 1, 1, 2]], np.uint8)
    # Ends of the first: 3 after step 1, 0 after 2, 4 after 4; the 9 is never reached.
    np.testing.assert_array_equal(
        history_curves.returns_by_part(reward, end, 4),
        [[3, 0, 4, 4], [np.nan, np.nan, 5, 1.5]])

  def test_a_return_counts_in_the_part_where_its_episode_ends(self):
    random = np.random.default_rng(0)
    reward = random.integers(-28, 3, size=(5, 70)).astype(np.int8)
    end = (random.random((5, 70)) < 0.2).astype(np.uint8)
    expected = [[[] for _ in range(7)] for _ in range(5)]
    for i in range(5):
      total = 0
      for t in range(70):
        total += int(reward[i, t])
        if end[i, t]:
          expected[i][t // 10].append(total)
          total = 0
    found = history_curves.returns_by_part(reward, end, 7)
    for i, parts in enumerate(expected):
      for part, returns in enumerate(parts):
        if returns:
          self.assertAlmostEqual(found[i, part], np.mean(returns))

  def test_the_mean_and_its_interval(self):
    reward = np.array([[0, 1, 1], [0, 3, 0], [2, 8, 0]])
    end = np.array([[0, 1, 1], [0, 1, 0], [1, 1, 0]])
    steps, mean, interval = history_curves.curve(reward, end, 3)
    np.testing.assert_array_equal(steps, [1, 2, 3])
    np.testing.assert_allclose(mean, [np.nan, 4, 4])
    np.testing.assert_allclose(
        interval[1:], 1.96 * np.std([1, 3, 8], ddof=1) / np.sqrt(3))
    self.assertTrue(np.isnan(interval[0]))
    self.assertTrue(np.isnan(history_curves.curve(reward[:1], end[:1], 3).interval).all())

  def test_random_play_has_0_and_the_source_1_also_where_returns_are_costs(self):
    self.assertAlmostEqual(history_curves.normalized(0.6, 0.2, 0.8), 2 / 3)
    self.assertAlmostEqual(history_curves.normalized(-35.66, -157.0, -8.92), 0.82, 2)
    self.assertAlmostEqual(history_curves.normalized(-10.0, -50.0, -10.0), 1)
    self.assertAlmostEqual(history_curves.normalized(-50.0, -50.0, -10.0), 0)
    self.assertTrue(math.isnan(history_curves.normalized(1.0, 2.0, 2.0)))

  def test_files(self):
    folder = pathlib.Path(self.create_tempdir().full_path)
    curves = {'a': history_curves.Curve(*np.array([[10, 20], [0.5, 1], [np.nan, 0.25]]))}
    history_curves.write_csv(folder / 'curve.csv', curves)
    self.assertEqual((folder / 'curve.csv').read_text(encoding='utf-8').splitlines(),
                     ['name,transitions,return,interval95', 'a,10,0.5,nan',
                      'a,20,1,0.25'])
    found = history_curves.read_csv(folder / 'curve.csv')
    np.testing.assert_array_equal(found['a'], curves['a'])
    self.assertEmpty(history_curves.read_csv(folder / 'nowhere.csv'))
    history_curves.draw(folder / 'curve.png', curves, 'title', optimum=1.0)
    self.assertEqual({path.name for path in folder.iterdir()},
                     {'curve.csv', 'curve.png'})


if __name__ == '__main__':
  absltest.main()
