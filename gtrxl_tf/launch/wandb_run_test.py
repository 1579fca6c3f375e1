"""Tests of wandb_run.py, in wandb's offline mode."""

import importlib.util
import json
import os
import sys
from unittest import mock

from absl.testing import absltest
from PIL import Image
import pytest

from gtrxl_tf import files
from gtrxl_tf.launch import train
from gtrxl_tf.launch import wandb_run
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import run_folder

_NAN = float('nan')


class _Test(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = run_folder.RunFolder(self.create_tempdir('run').full_path)
    self.folder.config.write_text('DeepLSTM.hidden_dim = 7\n')
    self.enter_context(mock.patch.dict(os.environ, WANDB_MODE='offline'))
    self.enter_context(mock.patch.object(wandb_run, '_SECONDS', 0.05))

  def learn(self, *steps, resume_step=0):
    writer = metrics_csv.MetricsWriter(self.folder.metrics, resume_step)
    for step in steps:
      writer.append({'learner_step': step, 'environment_steps': 10 * step,
                     'return': _NAN if step == 1 else step / 2})

  def follow(self):
    return wandb_run.followed('project', self.folder, 'environment_steps')


class WandbTest(_Test):

  def test_a_missing_package_is_refused_before_the_run_starts(self):
    root = f'{self.folder.root}/new'
    with mock.patch.dict(sys.modules, wandb=None):
      with mock.patch('sys.stderr') as stderr:
        self.assertEqual(train.train(['no.gin'], [], root, wandb='project'), 2)
    self.assertRegex(stderr.write.call_args_list[0][0][0], 'Not started: --wandb needs '
                     r'the package wandb, which is not installed: expected `.*\[wandb\]')
    self.assertFalse(os.path.exists(root))

  def test_without_a_project_nothing_happens(self):
    with wandb_run.followed(None, self.folder, 'learner_step'):
      self.learn(1)
    self.assertFalse(self.folder.wandb.exists())

  def test_an_error_is_one_warning(self):
    wandb = mock.Mock(**{'init.side_effect': OSError('no network\nat all')})
    with mock.patch.dict(sys.modules, wandb=wandb), self.assertLogs() as logs:
      with self.follow():
        self.learn(1)
    self.assertEqual(logs.output, [
        'WARNING:absl:wandb: no network; the run goes on without it'])


@absltest.skipUnless(importlib.util.find_spec('wandb'), 'wandb is not installed')
@pytest.mark.medium
class OfflineTest(_Test):

  def sent(self):
    """The records of all starts: rows, settings, summaries, and the ids of the runs."""
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal import datastore
    def read(items):
      return {x.key or x.nested_key[0]: json.loads(x.value_json) for x in items}

    rows, settings, summary, ids = [], {}, {}, set()
    for path in sorted(self.folder.root.glob('wandb/offline-run-*/*.wandb'),
                       key=os.path.getmtime):
      store = datastore.DataStore()
      store.open_for_scan(str(path))
      while (data := store.scan_data()) is not None:
        record = wandb_internal_pb2.Record.FromString(data)
        rows.append(read(record.history.item))
        settings |= read([*record.run.config.update, *record.config.update])
        summary |= read(record.summary.update)
        ids |= {record.run.run_id} - {''}
      store.close()
    return [row for row in rows if row], settings, summary, ids

  def test_all_rows_the_settings_and_the_results(self):
    with self.follow():
      self.learn(1, 2, 3)
    with self.follow():  # The rows after the checkpoint of step 2 are written again.
      self.learn(3, 4, resume_step=2)
      files.write_csv(self.folder.evaluation, [
          ['episode', 'return', 'success', 'task'], [0, 1, _NAN, 0], [1, 2, _NAN, 0]])
      files.write_csv(self.folder.scores, [['human'], [0.25]])
      Image.new('RGB', (4, 4)).save(self.folder.curve)
    rows, settings, summary, ids = self.sent()
    self.assertEqual([(row['learner_step'], row['environment_steps'], row.get('return'))
                      for row in rows if 'learner_step' in row],
                     [(1, 10, None), (2, 20, 1), (3, 30, 1.5), (4, 40, 2)])
    self.assertIn('curve', rows[-1])
    self.assertEqual(settings['DeepLSTM.hidden_dim'], '7')
    self.assertEqual(summary['evaluation/return'], 1.5)
    self.assertEqual(summary['evaluation/human'], 0.25)
    self.assertNotIn('evaluation/success', summary)
    self.assertEqual(ids, {self.folder.wandb.read_text()})


if __name__ == '__main__':
  absltest.main()
