"""Tests of session.py and of launch/checking.py: training and checks called from Python."""

import contextlib
import functools
import io
import pathlib
import threading

from absl.testing import absltest
import dm_env
from dm_env import specs
import gymnasium
import numpy as np
import pytest

import gtrxl_tf
from gtrxl_tf import datasets
from gtrxl_tf import environments
from gtrxl_tf.launch import train
from gtrxl_tf.settings import config
from gtrxl_tf.settings import gin_files
from gtrxl_tf.training import metrics_csv

_SMALL = {'OnlineExperiment.unroll_length': 4, 'OnlineExperiment.batch_size': 8,
          'OnlineExperiment.environments_per_actor': 8,
          'OnlineExperiment.num_minibatches': 1, 'Experiment.log_period': 1,
          'Experiment.evaluation_episodes': 8, 'OnlineExperiment.num_evaluations': 2}


class Task(gymnasium.Env):
  """Rewards the action that the first observation names, two steps later."""
  metadata = {'render_modes': ['rgb_array']}
  render_mode = 'rgb_array'
  observation_space = gymnasium.spaces.Box(0., 1., (2,))
  action_space = gymnasium.spaces.Discrete(2, start=5)

  def reset(self, *, seed=None, options=None):
    super().reset(seed=seed)
    self.sign, self.time = int(self.np_random.integers(2)), 0
    return np.eye(2, dtype=np.float32)[self.sign], {}

  def step(self, action):
    self.time += 1
    ends = self.time == 3
    return np.zeros(2, np.float32), float(ends and action - 5 == self.sign), ends, False, {}

  def render(self):
    return np.full([8, 8, 3], 80 * self.time, np.uint8)


def _train(environment, folder, steps=64, settings=(), **kwargs):
  return gtrxl_tf.train(environment, core='lstm', steps=steps, root_dir=folder,
                        settings={**_SMALL, **dict(settings)}, **kwargs)


class SessionTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = self.create_tempdir().full_path
    self.printed = self.enter_context(contextlib.redirect_stdout(io.StringIO()))

  @pytest.mark.medium
  def test_a_class_of_no_module_is_trained_continued_and_used(self):
    task = type('Own', (Task,), {'__module__': '__main__'})
    rows = []
    run = _train(task, self.folder, on_row=lambda row: rows.append(row) or len(rows) < 2)
    self.assertFalse(run.done)
    self.assertLen(rows, 2)
    # An interrupted run has a policy, too.
    self.assertIn(run.policy().act(np.zeros(2)), (5, 6))
    run = _train(task, self.folder)
    self.assertTrue(run.done)
    self.assertEqual(len(run.metrics), run.metrics[-1]['learner_step'])
    played = run.evaluate(episodes=10)
    self.assertEqual((len(played.returns), set(played.lengths)), (10, {3}))
    self.assertEqual(run.plot(), pathlib.Path(self.folder, 'curve.png'))
    self.assertTrue(run.film().exists())
    edited = type('Own', (Task,), {'__module__': '__main__', 'step': lambda self, x: x})
    with self.assertRaisesRegex(config.ConfigError, 'Own was edited'):
      _train(edited, self.folder)
    with self.assertRaisesRegex(config.ConfigError, 'unroll_length'):
      _train(task, self.folder, settings={'OnlineExperiment.unroll_length': 5})
    with self.assertRaisesRegex(config.ConfigError, 'other processes can import'):
      _train(task, self.folder, num_actors=1)

  @pytest.mark.long
  def test_a_thread_trains_what_the_command_continues(self):
    def begin():
      _train('TMaze', self.folder, on_row=lambda row: False)
    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
    with gin_files.own_gin():
      code = train.train([f'{self.folder}/config.gin'], [], self.folder)
    self.assertEqual(code, 0)
    self.assertIn('Going on from learner step 1', self.printed.getvalue())
    self.assertTrue(gtrxl_tf.Run(self.folder).done)

  @pytest.mark.long
  def test_recorded_episodes_are_learned_from(self):
    maze = environments.TMaze(corridor_length=8, seed=0)
    data = datasets.Specs(maze.observation_spec(), maze.action_spec())
    with datasets.EpisodeWriter(f'{self.folder}/data', data, 'TMaze') as writer:
      for _ in range(40):
        seen, actions = [maze.reset()], []
        while not seen[-1].last():
          actions.append(maze.informed_action())
          seen.append(maze.step(actions[-1]))
        writer.write([datasets.from_dm_env(
            seen, actions, data, float(maze.episode_success()))])
    run = gtrxl_tf.train(
        functools.partial(environments.TMaze, corridor_length=8), core='rate', steps=2,
        dataset=f'{self.folder}/data', root_dir=f'{self.folder}/run', settings={
            'DecisionPolicy.target_return': 1.0, 'Experiment.evaluation_episodes': 4})
    self.assertTrue(run.done)
    self.assertIn(run.policy().act(maze.reset().observation), range(4))
    run = gtrxl_tf.train(
        gin_files=['rate/t_maze_30_cpu.gin', 'rate/models/rate.gin'],
        root_dir=f'{self.folder}/files', settings={
            'OfflineExperiment.dataset': f'{self.folder}/data',
            'OfflineExperiment.learner_steps': 1, 'Experiment.evaluation_episodes': 4,
            'Experiment.tasks': {'corridor_length': (8,)}})
    self.assertTrue(run.done)
    with self.assertRaisesRegex(config.ConfigError, 'core.* without environment'):
      gtrxl_tf.train(core='lstm', gin_files=['numpad_2x2_cpu.gin'], root_dir=self.folder)

  @pytest.mark.long
  def test_the_best_policy_is_kept_beside_the_last(self):
    run = _train(Task, self.folder, steps=96, settings={
        'OnlineExperiment.num_evaluations': 4, 'Adam.learning_rate': 0.1})
    folder = pathlib.Path(self.folder)
    rows = metrics_csv.read_metrics(folder / 'evaluations.csv')
    self.assertEqual([row['environment_steps'] > 0 for row in rows], [True] * 4)
    best = max(rows[::-1], key=lambda row: row['return'])
    self.assertEqual((folder / 'best').exists(),
                     best['learner_step'] != run.metrics[-1]['learner_step'])

  @pytest.mark.long
  def test_cores_are_compared(self):
    text = gtrxl_tf.compare(Task, cores=['lstm', 'memoryless'], seeds=1, steps=64,
                            root_dir=self.folder, settings=_SMALL)
    self.assertIn('memoryless', text)
    self.assertTrue(pathlib.Path(self.folder, 'comparison.png').exists())


class CheckEnvTest(absltest.TestCase):

  def found(self, environment):
    self.shown = []
    return gtrxl_tf.check_env(environment, seconds=0.3, show=self.shown.append)

  @pytest.mark.medium
  def test_a_good_environment_is_described(self):
    self.assertEqual(self.found(Task), [])
    text = '\n'.join(self.shown)
    for line in ('observation: float32 [2], 0 to 1, embedded as numbers',
                 'action: int32 [], 5 to 6', 'episodes of 3 steps'):
      self.assertIn(line, text)

  @pytest.mark.medium
  def test_each_fault_has_a_line(self):
    class Unseeded(Task):
      def reset(self, *, seed=None, options=None):
        return np.random.random(2).astype(np.float32), {}

      def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}

    class Wrong(Task):
      def step(self, action):
        return np.full(2, np.nan, np.float32), 0.0, False, False, {}

    class Endless(dm_env.Environment):
      def __init__(self, seed):
        del seed

      def observation_spec(self):
        return specs.Array([1], np.float32)

      def action_spec(self):
        return specs.DiscreteArray(2)

      def reset(self):
        return dm_env.restart(np.zeros(1, np.float32))

      def step(self, action):
        return dm_env.transition(0.001, np.full(1, 5000, np.float32))

    self.assertRegex('\n'.join(self.found(Unseeded)), 'seed differ(.|\n)*every reward was 0')
    self.assertRegex('\n'.join(self.found(Wrong)), 'finite')
    self.assertRegex('\n'.join(self.found(Endless)), '5000(.|\n)*StepLimit(.|\n)*ScaleReward')
    self.assertRegex(self.found('NoSuchTask-v0')[0], 'NoSuchTask')


if __name__ == '__main__':
  absltest.main()
