"""Tests of what mypy says of programs that use the library; `make lint` runs it, too."""

import importlib.util
import pathlib
import re
import subprocess
import sys

from absl.testing import absltest
import pytest

from binaries import readme_test

_ROOT = pathlib.Path(__file__).parents[1]
_WRONG = '''
import gtrxl_tf
from gtrxl_tf import agents, cores, environments, networks

core = cores.TransformerXL(num_layers='2', model_dimm=64)
gtrxl_tf.cores.DeepLSTM(num_layers=None)
networks.VectorTorso('8')
environments.TMaze(corridor_lenght=3)
environments.Atari()
agents.PPOAgent(clip=0.2)
agents.VMPOAgnet
'''
_FOUND = '''
5: Unexpected keyword argument "model_dimm" for "TransformerXL"; did you mean "model_dim"?
5: Argument "num_layers" to "TransformerXL" has incompatible type "str"; expected "int"
6: Argument "num_layers" to "DeepLSTM" has incompatible type "None"; expected "int"
7: Argument 1 to "VectorTorso" has incompatible type "str"; expected "Sequence[int]"
8: Unexpected keyword argument "corridor_lenght" for "TMaze"; did you mean
9: Missing positional argument "game" in call to "Atari"
10: Unexpected keyword argument "clip" for "PPOAgent"
11: Module has no attribute "VMPOAgnet"
'''


@absltest.skipUnless(importlib.util.find_spec('mypy'), 'mypy is not installed')
@pytest.mark.medium
class TypesTest(absltest.TestCase):

  def check(self, *programs):
    """Returns the errors of mypy, as `LINE: MESSAGE`."""
    files = [self.create_tempfile(f'program_{i}.py', text).full_path
             for i, text in enumerate(programs)]
    done = subprocess.run([sys.executable, '-m', 'mypy', *files], cwd=_ROOT, text=True,
                          capture_output=True, check=False)
    self.assertIn(done.returncode, (0, 1), done.stderr)
    return [''.join(x) for x in re.findall(r':(\d+: )error: (.*?)  \[', done.stdout)]

  def test_programs_of_the_readme_have_no_errors(self):
    programs = re.findall(r'```python\n(.*?)```', readme_test.README, re.DOTALL)
    self.assertEqual(self.check(*programs), [])

  def test_wrong_arguments_and_names_are_found(self):
    found, expected = self.check(_WRONG), _FOUND.strip().splitlines()
    self.assertLen(found, len(expected), found)
    for line in expected:
      self.assertTrue([x for x in found if x.startswith(line)], (line, found))


if __name__ == '__main__':
  absltest.main()
