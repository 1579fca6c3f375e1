"""Tests of runs in which one process acts and learns in turns."""

# pylint: disable=protected-access

import functools
import math
import os
import pathlib
import subprocess
import sys
import textwrap

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf.agents import ppo
from gtrxl_tf.agents import r2d2
from gtrxl_tf.agents import vmpo
from gtrxl_tf.environments import t_maze
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import torsos
from gtrxl_tf.replay import prioritized
from gtrxl_tf.settings import config
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import run_folder
from gtrxl_tf.training import trainer as training_lib
from gtrxl_tf.training.online import experiment as experiment_lib
from gtrxl_tf.training.online import placement
from gtrxl_tf.training.online import trainer as trainer_lib

_T, _E, _BATCHES = 6, 2, 8
_ROOT = pathlib.Path(__file__).parents[3]
_AGENTS = {
    'vmpo': dict(agent=functools.partial(vmpo.VMPOAgent, target_update_period=2),
                 max_head_start=3),
    'ppo': dict(agent=ppo.PPOAgent, batches_per_weights=1, num_epochs=2),
    'r2d2': dict(
        agent=functools.partial(r2d2.R2D2Agent, burn_in=2, publish_period=1),
        replay=prioritized.Replay(
            min_unrolls=3 * _E, unrolls_per_step=2 * _E, overlap=2),
        exploration=r2d2.EpsilonGreedy())}


def _experiment(**settings):
  return experiment_lib.OnlineExperiment(**{**dict(
      environment=lambda seed: t_maze.TMaze(3, seed=seed),
      network=lambda action_spec: actor_critic.ActorCritic(
          action_spec, torsos.VectorTorso((4,)),
          cores.TransformerXL(1, 4, 2, 2, memory_length=3), head_units=4),
      unroll_length=_T, batch_size=2 * _E, environments_per_actor=_E, num_actors=0,
      environment_steps=_BATCHES * 2 * _E * _T, log_period=1), **settings})


class TurnsTest(parameterized.TestCase):

  def train(self, folder=None, should_stop=lambda: False, **settings):
    """Trains; returns the rows of metrics without times, and all final weights."""
    folder = run_folder.RunFolder(folder or self.create_tempdir().full_path)
    self.trainer = trainer = trainer_lib.OnlineTrainer(
        _experiment(**settings), training_lib.Process(
            folder, tf.distribute.get_strategy(), should_stop))
    trainer.train()
    rows = [{name: value for name, value in row.items()
             if 'second' not in name and name != 'learner_idle'}
            for row in metrics_csv.read_metrics(folder.metrics)]
    weights = np.concatenate(
        [v.numpy().ravel() for v in trainer._agent.acting_network.variables])
    return rows, weights

  @parameterized.parameters(*_AGENTS)
  @pytest.mark.medium
  def test_runs_of_one_seed_are_equal(self, agent):
    settings = _AGENTS[agent]
    (rows, weights), (again, same) = (self.train(**settings) for _ in range(2))
    self.assertGreaterEqual(len(rows), _BATCHES // 2)
    self.assertFalse(any(math.isnan(row['loss']) for row in rows))
    np.testing.assert_equal(rows, again)
    np.testing.assert_array_equal(weights, same)

  @pytest.mark.long
  def test_an_interrupted_run_continues_with_other_episodes(self):
    folder = self.create_tempdir().full_path
    calls = iter(range(10**6))  # One for each row of the environments, and more.
    first, _ = self.train(folder, lambda: next(calls) > 3 * 2 * _T, **_AGENTS['ppo'])
    self.assertBetween(len(first), 1, _BATCHES - 1)
    rows, _ = self.train(folder, **_AGENTS['ppo'])
    self.assertEqual(rows[:len(first)], first)
    self.assertGreaterEqual(rows[-1]['environment_steps'], _BATCHES * 2 * _E * _T)
    self.assertEqual(rows[-1]['unrolls_stale'] + rows[-1]['unrolls_duplicate'], 0)

  def test_what_needs_processes_is_refused(self):
    for settings in dict(evaluator=True), dict(inference=placement.Inference()):
      with self.assertRaisesRegex(config.ConfigError, 'num_actors = 0.*' + next(
          iter(settings))):
        _experiment(**settings)

  @pytest.mark.long
  def test_it_needs_neither_fork_nor_locks_nor_ports_nor_shared_memory(self):
    program = f'''
        import os, signal, socket, sys

        def refuse(*_, **__):
          raise AssertionError('the system has no such thing')

        sys.modules['fcntl'] = None
        for module, name in ((os, 'fork'), (os, 'memfd_create'), (signal, 'SIGHUP')):
          delattr(module, name)
        socket.socket.bind = socket.socket.listen = refuse
        sys.platform = 'other'
        from gtrxl_tf.launch import train
        code = train.train(
            [{str(_ROOT / 'gin/gtrxl/action_recall_cpu.gin')!r}],
            ['ActionRecall.delay = 2', 'OnlineExperiment.num_actors = {{}}'.format(n),
             'OnlineExperiment.environment_steps = 4000'], f'run_{{n}}')
        print('code', code)
    '''
    lines = {}
    for n in 0, 1:
      done = subprocess.run(
          [sys.executable, '-c', f'n = {n}\n' + textwrap.dedent(program)], check=True,
          cwd=self.create_tempdir().full_path, text=True, stdout=subprocess.PIPE,
          stderr=subprocess.STDOUT, env={**os.environ, 'PYTHONPATH': str(_ROOT)})
      lines[n] = done.stdout.splitlines()
    self.assertIn('code 0', lines[0])
    self.assertRegex('\n'.join(lines[1]), 'num_actors = 1: expected 0 on other')
    self.assertIn('code 2', lines[1])


if __name__ == '__main__':
  absltest.main()
