"""Tests of processes.py."""

import os
import pathlib
import subprocess
import sys
import textwrap

from absl.testing import absltest
import pytest

_ROOT = pathlib.Path(__file__).parents[2]
_MODULE = '''
    import os, sys
    from gtrxl_tf.launch import processes

    def say_parent():
      import tensorflow as tf
      tf.config.threading.set_intra_op_parallelism_threads(1)  # Still possible.
      assert float(tf.add(1., 1.)) == 2
      print(os.getppid(), 'matplotlib' in sys.modules, flush=True)

    if __name__ == '__main__':
      for _ in range(2):
        part = processes.context().Process(target=say_parent, daemon=True)
        part.start()
        part.join()
      assert 'tensorflow' not in sys.modules
      print(os.getpid())
    '''


class ProcessesTest(absltest.TestCase):

  @pytest.mark.medium
  def test_one_process_imports_tensorflow_for_those_of_a_run(self):
    work = pathlib.Path(self.create_tempdir().full_path) / 'work.py'
    work.write_text(textwrap.dedent(_MODULE))
    done = subprocess.run(
        [sys.executable, str(work)], text=True, cwd=_ROOT, check=True,
        stdout=subprocess.PIPE, env={**os.environ, 'PYTHONPATH': str(_ROOT)})
    one, other, caller = done.stdout.splitlines()
    self.assertEqual(one, other)
    self.assertNotEqual(one, f'{caller} False')
    self.assertEndsWith(one, ' False')


if __name__ == '__main__':
  absltest.main()
