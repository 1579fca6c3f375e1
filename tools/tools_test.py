"""Runs the tools that have flags."""

import subprocess
import sys

from absl.testing import absltest
from absl.testing import parameterized
import pytest

from binaries import commands_testing

_ROOT = commands_testing.ROOT
_TOOLS = sorted(path.stem for path in (_ROOT / 'tools').glob('*.py')
                if path.read_text(encoding='utf-8').endswith('\n  program.run(main)\n'))


def _run(tool, *arguments):
  return subprocess.run([sys.executable, '-m', f'tools.{tool}', *arguments], cwd=_ROOT,
                        capture_output=True, text=True, check=False)


class ToolsTest(parameterized.TestCase):

  @parameterized.parameters(*_TOOLS)
  @pytest.mark.long
  def test_help(self, tool):
    done = _run(tool, '--help')
    self.assertEqual(done.returncode, 0, done.stderr)
    for flag in commands_testing.flags(_ROOT / f'tools/{tool}.py'):
      self.assertRegex(done.stdout, rf'(?m)^ +--(\[no\])?{flag}:')

  @parameterized.parameters(
      ('scaling', ['--gin_file=x', '--actors=1,0'],
       'Not started: --actors=1,0: expected numbers >= 1\n'),
      ('scaling', [], 'Not started: --gin_file is missing: expected python -m '
       'tools.scaling --gin_file=gin/gtrxl/t_maze_30_cpu.gin --actors=1,2,4,8 '
       "--gin_bindings='OnlineExperiment.environments_per_actor = 8'\n"),
      ('benchmark', ['--batches=0'], 'Not started: --batches=0: expected numbers >= 1\n'))
  @pytest.mark.medium
  def test_arguments_that_are_missing_or_wrong_are_one_line(
      self, tool, arguments, expected):
    done = _run(tool, *arguments)
    self.assertEqual((done.returncode, done.stdout, done.stderr), (2, '', expected))

  @parameterized.parameters(
      ('--url=http://localhost:1', 'http://localhost:1: Cannot connect'),
      ('--url=nonsense', 'nonsense: URL should be absolute'))
  @pytest.mark.medium
  def test_a_latency_of_no_server_is_one_line(self, flag, expected):
    done = _run('serving_latency', flag)
    self.assertEqual(done.returncode, 1)
    self.assertRegex(done.stderr, rf'^Stopped: {expected}.*\n$')

  @pytest.mark.long
  def test_traffic(self):
    done = _run(
        'scaling', '--gin_file=gin/gtrxl/t_maze_30_cpu.gin', '--traffic',
        '--gin_bindings=OnlineExperiment.environments_per_actor = 4')
    self.assertEqual(done.returncode, 0, done.stderr)
    rows = dict(line.strip('| ').split(' | ') for line in done.stdout.splitlines())
    self.assertLen(rows, 8)  # With titles.
    for what in ('an environment step, written', 'an unroll, sampled with its memory',
                 "CPU time of an actor's step in 4 environment(s)"):
      self.assertGreater(float(rows[what].split()[0]), 0, what)


if __name__ == '__main__':
  absltest.main()
