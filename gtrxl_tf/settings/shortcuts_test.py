"""Tests of shortcuts.py and of what gin_files.py defines."""

import functools

from absl.testing import absltest
import gin
import numpy as np

from gtrxl_tf import cores
from gtrxl_tf import environments
from gtrxl_tf.agents import ppo
from gtrxl_tf.launch import configurables  # noqa: F401 (for gin)
from gtrxl_tf.settings import config
from gtrxl_tf.settings import differences
from gtrxl_tf.settings import gin_files
from gtrxl_tf.settings import shortcuts


class Task:
  """An environment that no other process can import."""

  def __init__(self, length=3):
    self.length = length


Task.__module__ = '__main__'


class ShortcutsTest(absltest.TestCase):

  def given(self, *args, settings=None, **kwargs):
    with gin_files.own_gin():
      files, lines = shortcuts.gin(*args, **kwargs)
      config.parse(files, [*lines, *shortcuts.lines(settings or {})])
      return differences.given()

  def test_names_are_files_and_lines(self):
    found = self.given('CartPole-v1', 'lstm', 'r2d2', 5000)
    with gin_files.own_gin():
      config.parse(['gymnasium_cpu.gin', 'cores/lstm.gin', 'agents/r2d2.gin'], [
          "GymnasiumEnvironment.name = 'CartPole-v1'",
          'OnlineExperiment.environment_steps = 5000'])
      self.assertEqual(found, differences.given())

  def test_objects_are_what_they_were_made_with(self):
    found = self.given(
        functools.partial(environments.TMaze, corridor_length=7),
        cores.DeepLSTM(num_layers=1, hidden_dim=8), ppo.PPOAgent, settings={
            'Adam.learning_rate': np.float64(0.01), 'Experiment.optimizer': '@Adam()',
            'Experiment.wrappers': [environments.ClipReward]})
    self.assertContainsSubset({
        'Experiment.environment': '@given/TMaze', 'given/TMaze.corridor_length': '7',
        'ActorCritic.core': '@given/DeepLSTM()', 'given/DeepLSTM.num_layers': '1',
        'given/DeepLSTM.hidden_dim': '8', 'Adam.learning_rate': '0.01',
        'Experiment.agent': '@PPO', 'Experiment.wrappers': '[@ClipReward]'}.items(),
        found.items())

  def test_the_callers_gin_stays_as_it_was(self):
    gin.clear_config()
    config.parse([], ['Experiment.seed = 7'])
    before, locked = gin.config_str(), gin.config_is_locked()
    self.given('Numpad')
    self.assertEqual((gin.config_str(), gin.config_is_locked()), (before, locked))
    gin.clear_config()

  def test_an_edited_class_is_found(self):
    with gin_files.own_gin():
      shortcuts.gin(Task)
      text = gin_files.header()
      self.assertEqual((gin_files.defined(), gin_files.edited(text)), (['Task'], []))
    again = type('Task', (), {'__init__': lambda self: None, '__module__': '__main__'})
    with gin_files.own_gin():
      shortcuts.gin(again)
      self.assertEqual(gin_files.edited(text), ['Task'])

  def test_what_cannot_be_a_setting_is_refused(self):
    for args, kwargs, expected in (
        (('CartPole-v1', 'lstmm'), {}, "core = 'lstmm'.*lstm_large"),
        (('CartPole-v1', None, 'pp'), {}, "agent = 'pp'.*ppo"),
        (('CartPole-v1',), {'settings': {'Adam.learning_rate': object()}}, 'expected'),
        (('CartPole-v1',), {'settings': {'Adam.learning_rat': 1}}, 'learning_rate'),
        ((functools.partial(Task, 3),), {}, 'by their names')):
      with self.assertRaisesRegex(config.ConfigError, expected):
        self.given(*args, **kwargs)


if __name__ == '__main__':
  absltest.main()
