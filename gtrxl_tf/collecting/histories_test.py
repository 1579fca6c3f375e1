"""Tests of histories.py."""

import io
import pathlib
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import gin
import numpy as np

from gtrxl_tf import collecting
from gtrxl_tf import datasets
from gtrxl_tf import environments
from gtrxl_tf.collecting import histories
from gtrxl_tf.settings import config

_GIN = pathlib.Path(__file__).parents[2] / 'gin/distillation/histories'


def _collector(setting='dktdld', **settings):
  family = environments.DarkRoomFamily(
      setting, size=5, episode_length=10, num_episodes=12)
  return collecting.HistoryCollector(
      family, collecting.QLearning,
      **{'num_histories': 25, 'num_evaluation': 8, **settings})


class HistoriesTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.addCleanup(gin.clear_config)
    self._path = pathlib.Path(self.create_tempdir().full_path) / 'new'

  @mock.patch.object(histories, '_PIECE', 10)
  def test_recorded_histories_are_read_back(self):
    collector = _collector()
    histories.collect(collector, self._path, io.StringIO())
    for split, num in (('training', 25), ('evaluation', 8)):
      dataset = datasets.check(self._path / split)
      self.assertEqual((dataset.kind, dataset.num_episodes, dataset.num_steps),
                       ('histories', num, num * 120))
      self.assertEqual([str(spec.dtype) for spec in dataset.specs.leaves().values()],
                       ['uint8', 'uint8', 'int8', 'uint8'])
      first = collector.play(split, 0)
      for name in ('observation', 'action', 'reward', 'end'):
        np.testing.assert_array_equal(getattr(dataset.episode(7), name),
                                      getattr(first, name)[7])
      self.assertGreater(len({dataset.episode(i).action.tobytes()
                              for i in range(num)}), num - 2)

  def test_other_collectors_get_the_evaluation_tasks(self):
    collector = _collector()
    histories.collect(collector, self._path, io.StringIO())
    dataset = datasets.open_dataset(self._path / 'evaluation')
    tasks = collector.evaluation_tasks()
    episodes = [dataset.episode(i) for i in range(8)]
    for t in range(120):
      np.testing.assert_array_equal(
          tasks.observe(tasks.state), [e.observation[t] for e in episodes])
      outcome = tasks.step(np.array([e.action[t] for e in episodes]))
      np.testing.assert_array_equal(outcome.reward, [e.reward[t] for e in episodes])
      np.testing.assert_array_equal(outcome.terminated + 2 * outcome.truncated,
                                    [e.end[t] for e in episodes])
      np.testing.assert_array_equal(~outcome.terminated,
                                    [e.discount[t] for e in episodes])

  @mock.patch.object(histories, '_PIECE', 10)
  def test_resumes_where_it_was(self):
    collector = _collector()
    play = collector.play

    def interrupted(split, piece):
      if (split, piece) == ('training', 2):
        raise KeyboardInterrupt
      return play(split, piece)

    with mock.patch.object(collector, 'play', interrupted):
      with self.assertRaises(KeyboardInterrupt):
        histories.collect(collector, self._path, io.StringIO())
    stream = io.StringIO()
    histories.collect(_collector(), self._path, stream)
    self.assertNotIn('10 of 25', stream.getvalue())
    self.assertIn('25 of 25', stream.getvalue())
    at_once = self._path.with_name('at_once')
    histories.collect(_collector(), at_once, io.StringIO())
    found, expected = (datasets.check(path / 'training')
                       for path in (self._path, at_once))
    for i in range(25):
      np.testing.assert_array_equal(found.episode(i).action, expected.episode(i).action)
    with self.assertRaisesRegex(datasets.DatasetError, 'other settings'):
      histories.collect(_collector(seed=1), self._path, io.StringIO())

  @parameterized.parameters(
      ('dark_room.gin', 2500), ('dark_room_backward_sweep.gin', 800),
      ('bandit_ucb.gin', 500))
  def test_gin_files(self, name, num_steps):
    config.parse([str(_GIN / name)], ['HistoryCollector.num_evaluation = 5'])
    collector = collecting.HistoryCollector()  # pylint: disable=no-value-for-parameter
    self.assertEqual(collector.play('evaluation', 0).reward.shape, (5, num_steps))
    self.assertIn('HistoryCollector.num_evaluation = 5', collector.settings)


if __name__ == '__main__':
  absltest.main()
