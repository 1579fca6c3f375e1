"""Tests of parts.py: the error message and the file of a part that fails."""

import contextlib
import io
import pathlib
from unittest import mock

from absl.testing import absltest
import gin

from gtrxl_tf.environments import action_recall
from gtrxl_tf.launch import parts
from gtrxl_tf.launch import signals

_GIN_FILE = str(
    pathlib.Path(__file__).parents[2] / 'gin' / 'gtrxl' / 'action_recall_cpu.gin')
# The error that `act` raises, in one line.
_LINE = "making Experiment.environment = ActionRecall: KeyError: 'door'"


class FailureTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    gin.clear_config()
    self.addCleanup(gin.clear_config)
    self.root = pathlib.Path(self.create_tempdir().full_path)
    self.path = self.root / 'failures' / 'actor_0.txt'

  def act(self, error, **settings):
    """Runs an actor whose environment raises an error; returns exit code and stderr."""
    stderr = io.StringIO()
    with contextlib.redirect_stderr(stderr), mock.patch.object(
        action_recall.ActionRecall, '__init__', side_effect=error):
      code = parts.act(parts.Settings([_GIN_FILE], **settings), 'localhost:1', 0)
    return code, stderr.getvalue()

  def test_an_error_is_one_line_and_a_file_with_its_place(self):
    code, stderr = self.act(KeyError('door'), failure=str(self.path))
    self.assertEqual(code, 1)
    self.assertEqual(
        stderr, f'Stopped: actor: {_LINE} (traceback: {self.path})\n')
    line, empty, *rest = self.path.read_text().splitlines()
    self.assertEqual((line, empty), (f'actor: {_LINE}', ''))
    self.assertEqual(rest[0], 'Traceback (most recent call last):')
    self.assertIn('in make_environments', ' '.join(rest))

  def test_an_error_with_a_line_of_its_own_keeps_it(self):
    code, stderr = self.act(ValueError('no door'), failure=str(self.path))
    self.assertEqual((code, stderr), (2, 'Not started: no door\n'))
    self.assertFalse(self.path.exists())

  def test_a_supervisor_finds_such_an_error_in_the_file(self):
    with mock.patch.object(
        signals, 'stop_requested_by_parent', signals.stop_requested):
      self.act(ValueError('no door'), failure=str(self.path), supervised=True)
    self.assertStartsWith(self.path.read_text(), 'no door\n\nTraceback')

  def test_a_file_that_cannot_be_written_leaves_the_line(self):
    (self.root / 'no_folder').write_text('')
    code, stderr = self.act(
        KeyError('door'), failure=str(self.root / 'no_folder' / 'actor_0.txt'))
    self.assertEqual((code, stderr), (1, f'Stopped: actor: {_LINE}\n'))


if __name__ == '__main__':
  absltest.main()
