"""Tests of offline runs with two worker processes in one folder."""

import pathlib
import shutil

from absl.testing import absltest
import tensorflow as tf

from gtrxl_tf import testing
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import run_folder
from gtrxl_tf.training import trainer as training_lib
from gtrxl_tf.training.offline import multiworker_testing
from gtrxl_tf.training.offline import trainer


class MultiworkerSlowTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.root = pathlib.Path(self.create_tempdir().full_path)
    self.dataset = str(self.root / 'dataset')
    testing.write_informed_episodes(
        self.dataset, multiworker_testing.MAZE(seed=0), 60)

  def run_workers(self, folders, stop_after):
    """Runs two workers; returns their outputs and exit codes."""
    workers = multiworker_testing.start([
        ['offline', self.dataset, str(self.root / folder), str(stop)]
        for folder, stop in zip(folders, stop_after)])
    for worker in workers:
      self.addCleanup(worker.kill)
    said = [worker.communicate(timeout=300)[0] for worker in workers]
    return said, [worker.returncode for worker in workers]

  def test_they_train_stop_and_resume_together(self):
    # The second is told to stop; both do, after the same step.
    said, codes = self.run_workers(['two', 'two'], [99, 9])
    self.assertEqual(codes, [0, 0], said)
    self.assertIn('chief: True, done: False', said[0])
    self.assertIn('chief: False, done: False', said[1])
    two = run_folder.RunFolder(self.root / 'two')
    self.assertEqual(
        tf.train.latest_checkpoint(str(two.checkpoints)).rpartition('-')[2], '9')
    said, codes = self.run_workers(['two', 'two'], [99, 99])
    self.assertEqual(codes, [0, 0], said)
    self.assertIn('done: True', said[1])

    one = run_folder.RunFolder(self.root / 'one')
    trainer.OfflineTrainer(
        multiworker_testing.experiment(self.dataset), training_lib.Process(
            one, tf.distribute.get_strategy(), lambda: False)).train()
    together, alone = (metrics_csv.read_metrics(x.metrics) for x in (two, one))
    self.assertEqual([row['learner_step'] for row in together], [5, 7, 10, 14, 15, 20])
    for name in ('loss', 'gradient_norm'):
      for ours, theirs in zip(together, alone):
        self.assertAlmostEqual(ours[name] / theirs[name], 1, delta=1e-3)
    # Each start of the chief has one file of them.
    self.assertLen(list(two.summaries.iterdir()), 2)
    self.assertTrue((two.policy / 'saved_model.pb').exists())

    # A worker that does not see the folder of the other one.
    shutil.copytree(two.root, self.root / 'copy')
    said, codes = self.run_workers(['copy', 'empty'], [99, 99])
    self.assertEqual(codes, [1, 1])
    for text in said:
      self.assertIn('the workers have different learner steps', text)
      self.assertIn('[20, 0]; expected all to see the same folder', text)


if __name__ == '__main__':
  absltest.main()
