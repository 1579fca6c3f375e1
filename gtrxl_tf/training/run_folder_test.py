"""Tests of run_folder.py."""

import errno
import fcntl
import threading
import time
from unittest import mock

from absl.testing import absltest

from gtrxl_tf.settings import config
from gtrxl_tf.training import run_folder


class RunFolderTest(absltest.TestCase):

  def test_a_folder_is_for_one_process_at_a_time(self):
    folder = run_folder.RunFolder(self.create_tempdir().full_path + '/runs/new')
    with folder.in_use():
      with self.assertRaisesRegex(
          run_folder.InUseError, 'runs/new is in use by another process'):
        with folder.in_use():
          self.fail('Two of them.')
    with folder.in_use():
      pass

  def test_a_file_system_without_locks_is_refused(self):
    folder = run_folder.RunFolder(self.create_tempdir().full_path)
    error = OSError(errno.ENOLCK, 'No locks available')
    with mock.patch.object(fcntl, 'flock', side_effect=error):
      with self.assertRaisesRegex(config.ConfigError, 'No locks available'):
        with folder.in_use():
          self.fail('It has no lock.')

  def test_a_start_waits_for_the_learner_of_the_one_before(self):
    folder, order = run_folder.RunFolder(self.create_tempdir().full_path), []

    def start_again():
      with folder.in_use():
        order.append('second')

    with folder.in_use():
      learner = folder.one_learner()
      learner.__enter__()
    thread = threading.Thread(target=start_again)
    thread.start()
    time.sleep(0.1)
    order.append('first')
    learner.__exit__(None, None, None)
    thread.join()
    self.assertEqual(order, ['first', 'second'])

  def test_a_path_that_tensorflow_cannot_read_is_refused(self):
    for name, character in ('lr[3e-4]', r'\['), ('run*', r'\*'), ('run?', r'\?'):
      folder = run_folder.RunFolder(f'{self.create_tempdir().full_path}/{name}/run')
      with self.assertRaisesRegex(
          config.ConfigError, f'expected a path without {character}, which TensorFlow'):
        with folder.in_use():
          self.fail('It was accepted.')
      self.assertFalse(folder.root.exists())


if __name__ == '__main__':
  absltest.main()
