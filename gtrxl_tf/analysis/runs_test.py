"""Tests of index files: of what runs.py keeps, and of what is drawn from them."""

import math
import pathlib

from absl.testing import absltest
import pytest

from gtrxl_tf import files
from gtrxl_tf.analysis import comparison
from gtrxl_tf.analysis import runs as runs_lib


def _run(model, seed, final, diverged=False, samples=None, lines=()):
  """A run with a row every 1000 environment steps, whose return ends at `final`."""
  return runs_lib.Run(
      model, seed, [{'environment_steps': 1000. * i, 'seconds': 60. * i,
                     'return': final * i / 300 if i > 1 else math.nan, 'queue': 3.,
                     'entropy': 1., 'gradient_norm': 0.5}
                    for i in range(1, 301)],
      [] if diverged else [{'episode': i, 'return': final + i, 'success': math.nan,
                            'task': 0.} for i in (-1, 1)],
      diverged, samples or {}, config='\n'.join(['A.a = 1', 'B.b = 2', *lines]))


def _index(setting='Core.num_layers', finals=(1., 2., 9.)):
  points = [runs_lib.Point(value, [
      *(_run('gtrxl+Adam.learning_rate=1e-3', seed, final, lines=[f'Core.n = {value}'])
        for seed, final in enumerate(finals)),
      _run('lstm+Adam.learning_rate=2', 0, 4., samples={'rate': 0.1}),
      _run('lstm+Adam.learning_rate=2', 1, 0., diverged=True, samples={'rate': 0.2})], 10.)
            for value in ('2', '8')]
  return runs_lib.Index('gtrxl compare --seeds=3', '0.1.0 abc', setting,
                         points if setting else points[:1])


class RunIndexTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.path = pathlib.Path(self.create_tempdir().full_path) / 'depth.jsonl'

  def test_an_index_has_what_tables_are_made_of(self):
    runs_lib.write(self.path, _index())
    read = runs_lib.read(self.path)
    self.assertEqual(comparison.tables(read),
                     comparison.tables(_index()))

  def test_an_index_written_again_stays_the_same(self):
    runs_lib.write(self.path, _index())
    before = self.path.read_text()
    runs_lib.write(self.path, runs_lib.read(self.path))
    self.assertEqual(self.path.read_text(), before)

  def test_a_score_that_is_not_known_stays_so(self):
    index = _index(None)
    runs = [run._replace(scores={'score': 5., 'score_memory': math.nan})
            for run in index.points[0].runs]
    point = index.points[0]._replace(runs=runs, scores=('score', 'score_memory'))
    index = index._replace(points=[point])
    runs_lib.write(self.path, index)
    self.assertEqual(comparison.tables(runs_lib.read(self.path)),
                     comparison.tables(index))

  def test_curves_are_thinned_and_keep_their_ends(self):
    runs_lib.write(self.path, _index())
    run = runs_lib.read(self.path).points[0].runs[1]
    self.assertLen(run.metrics, runs_lib.MOST_ROWS)
    self.assertTrue(math.isnan(run.metrics[0]['return']))
    self.assertEqual(run.metrics[-1], {
        'environment_steps': 300_000, 'seconds': 18_000, 'return': 2, 'entropy': 1,
        'gradient_norm': 0.5})

  def test_the_lowest_return_of_a_run_that_diverged_is_kept(self):
    rows = [{'learner_step': 20. * i, 'return': -95. if i == 7 else -10.}
            for i in range(301)]
    run = runs_lib.Run('ed', 0, rows, [], True, {})
    runs_lib.write(self.path, runs_lib.Index(
        'c', 'v', None, [runs_lib.Point('', [run], None)]))
    read, = runs_lib.read(self.path).points[0].runs
    self.assertEqual(read.floor('return'), -95)

  def test_settings_of_several_lines_stay_whole(self):
    long = '\n'.join(['X.a = \\', '    [{},', '     2]'])
    runs = [_run('gtrxl', seed, 4., lines=[long.format(seed)]) for seed in (0, 1)]
    runs_lib.write(self.path, runs_lib.Index(
        'c', 'v', None, [runs_lib.Point('', runs, None)]))
    for run, read in zip(runs, runs_lib.read(self.path).points[0].runs):
      self.assertEqual(read.config, run.config)

  def test_another_file_is_no_index(self):
    runs_lib.write(self.path, _index())
    two = 2 * self.path.read_text('utf-8')
    for text in ('', '{"points": []}\n', 'return,success\n1,1\n', two):
      self.path.write_text(text)
      with self.assertRaisesRegex(files.DamagedFile, r'depth\.jsonl is not an index'):
        runs_lib.read(self.path)


class FiguresTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = pathlib.Path(self.create_tempdir().full_path)

  def _write(self, index):
    runs_lib.write(self.folder / 'depth.jsonl', index)
    read = runs_lib.read(self.folder / 'depth.jsonl')
    return comparison.write(read, self.folder, 'Depth', 'depth')[1]

  @pytest.mark.long
  def test_pictures_are_the_same_each_time(self):
    written = self._write(_index())
    self.assertEqual([path.name for path in written], ['depth.png', 'depth_ranked.png'])
    before = [path.read_bytes() for path in written]
    self.assertEqual([path.read_bytes() for path in self._write(_index())], before)


if __name__ == '__main__':
  absltest.main()
