"""Tests of job.py."""

import subprocess
import sys

from absl.testing import absltest
import pytest

from tools import job


def _row(seconds, steps, value):
  return {'seconds': seconds, 'environment_steps': steps, 'return': value}


class JobTest(absltest.TestCase):

  @pytest.mark.medium
  def test_cpu_seconds_of_a_tree_keep_those_of_a_process_that_ended(self):
    # The grandchild uses 1.5 s and is killed; its parent continues. /proc counts in
    # ticks of the system, so that a few hundredths may be missing.
    burn = ('import os, time\n'
            'while time.process_time() < 1.5: pass\n'
            'print(os.getpid(), flush=True)\n'
            'time.sleep(100)')
    wait = ('import subprocess, sys, time\n'
            f'p = subprocess.Popen([sys.executable, "-c", {burn!r}])\n'
            'sys.stdin.readline()\n'
            'p.kill()\n'
            'p.wait()\n'
            'print("gone", flush=True)\n'
            'time.sleep(100)')
    process = subprocess.Popen([sys.executable, '-c', wait], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    self.addCleanup(process.kill)
    process.stdout.readline()
    tree = job.CpuSeconds()
    before = tree.of(process.pid)
    self.assertGreater(before, 1)
    process.stdin.write('\n')
    process.stdin.flush()
    self.assertEqual(process.stdout.readline(), 'gone\n')
    self.assertGreaterEqual(tree.of(process.pid), before)

  def test_summary(self):
    # Two CPU seconds a second; the first row is written after 10 s, at 20 CPU s.
    samples = [job.Sample(t / 4, t / 2, max(0, int(t / 4 - 9))) for t in range(60)]
    rows = [_row(3 + i, 1000 * (i + 1), 20. * i) for i in range(5)]
    found = job.summary(rows, samples, informed=100)
    self.assertEqual(found['start_s'], 10)
    self.assertEqual(found['start_cpu_s'], 20)
    self.assertEqual(found['steps_per_cpu_s'], 500)
    # 60 is the first return of at least 50, with 4,000 steps of 1 / 500 CPU s each.
    self.assertEqual((found['steps_50'], found['cpu_s_50']), (4000, 8))
    self.assertEqual((found['steps_80'], found['cpu_s_80']), (5000, 10))
    self.assertEqual((found['steps_90'], found['cpu_s_90']), (None, None))
    self.assertEqual(found['return'], 80)

  def test_a_run_without_an_informed_policy_has_no_shares(self):
    samples = [job.Sample(t, 2 * t, t) for t in range(5)]
    rows = [_row(i, 100 * (i + 1), 1.) for i in range(4)]
    self.assertNotIn('steps_50', job.summary(rows, samples, informed=None))


if __name__ == '__main__':
  absltest.main()
