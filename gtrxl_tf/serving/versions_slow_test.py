"""Exported policies and the README's model across versions; `make test-newest` runs it.

This Python has TensorFlow 2.15, and `.venv-newest` the newest.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

_ROOT = pathlib.Path(__file__).parents[2]
_PYTHONS = {'2.15': sys.executable, 'newest': str(_ROOT / '.venv-newest/bin/python')}
_EXPORT = """
import pathlib, sys
from gtrxl_tf.serving import export, policy_testing
export.save_policy(policy_testing.make_policy('trxl'), pathlib.Path(sys.argv[1]))
"""
_PLAY = """
import pathlib, sys
import numpy as np
from gtrxl_tf.serving import policy_testing
shown = policy_testing.draw(seed=0, num_steps=20)
np.save(sys.argv[2], policy_testing.alone(pathlib.Path(sys.argv[1]), shown))
"""


@absltest.skipUnless(os.path.exists(_PYTHONS['newest']), 'needs `make test-newest`')
class VersionsTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = pathlib.Path(self.enter_context(tempfile.TemporaryDirectory()))

  def run_in(self, version, code, *arguments):
    done = subprocess.run(
        [_PYTHONS[version], '-c', code, *map(str, arguments)], cwd=_ROOT, text=True,
        capture_output=True, check=False)
    self.assertEqual(done.returncode, 0, done.stderr)

  @parameterized.parameters(*_PYTHONS)
  def test_an_exported_policy_acts_the_same_in_both(self, version):
    policy = self.folder / 'policy'
    self.run_in(version, _EXPORT, policy)
    logits = {}
    for other in _PYTHONS:
      self.run_in(other, _PLAY, policy, self.folder / f'{other}.npy')
      logits[other] = np.load(self.folder / f'{other}.npy')
    self.assertGreater(np.std(logits[version]), 0.1)
    np.testing.assert_allclose(
        logits['newest'], logits['2.15'], atol=1e-5, rtol=1e-5)

  @parameterized.parameters(*_PYTHONS)
  def test_the_first_model_of_the_readme_runs(self, version):
    readme = (_ROOT / 'README.md').read_text(encoding='utf-8')
    blocks = [block.partition('```')[0] for block in readme.split('```python\n')[1:]]
    code, = (block for block in blocks if 'logits' in block)
    self.run_in(version, code + '\nassert logits.shape == [8, 20, 4], logits.shape')


if __name__ == '__main__':
  absltest.main()
