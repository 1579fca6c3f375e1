"""Tests of export.py: a program that imports only TensorFlow loads the SavedModel."""

import json
import os
import pathlib
import re
import subprocess
import sys

from absl.testing import absltest
from absl.testing import parameterized
import dm_env
from dm_env import specs
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf import testing
from gtrxl_tf.agents import policy as policy_lib
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import torsos
from gtrxl_tf.serving import export
from gtrxl_tf.serving import exported
from gtrxl_tf.serving import policy_testing
from gtrxl_tf.settings import config
from gtrxl_tf.training import rollout as rollout_lib

_NUM_STEPS, _BATCH_SIZES = 12, (3, 1)

# Runs every policy on the inputs in `seen.npz` and writes its actions.
_PROGRAM = """
import json, pathlib, sys
import numpy as np
import tensorflow as tf

for folder in map(pathlib.Path, sys.argv[1:]):
  policy = tf.saved_model.load(str(folder / 'policy'))
  step, start = policy.signatures['action'], policy.signatures['get_initial_state']
  seen = np.load(folder / 'seen.npz')
  for batch_size in BATCH_SIZES:
    memory = start(batch_size=tf.constant(batch_size))
    done = []
    for t in range(len(seen['reward'])):
      time_step = {'0/' + name: tf.constant(seen[name][t, :batch_size])
                   for name in ('step_type', 'reward', 'discount', 'observation')}
      memory = {'1/' + name: value for name, value in memory.items()}
      out = step(**time_step, **memory)
      memory = {name.removeprefix('state/'): value for name, value in out.items()
                if name.startswith('state/')}
      done.append((out['action'].numpy(), out['info/policy/logits'].numpy()))
    actions, logits = map(np.stack, zip(*done))
    np.savez(folder / f'done_{batch_size}.npz', actions=actions, logits=logits)
print(json.dumps([name for name in sys.modules if '.' not in name]))
""".replace('BATCH_SIZES', repr(_BATCH_SIZES))


def _play(policy, folder: pathlib.Path):
  """Runs `policy`; writes its inputs, and returns its actions and logits."""
  num = max(_BATCH_SIZES)
  rollout = rollout_lib.Rollout(
      policy_testing.environment(num), policy.action, policy.get_initial_state(num))
  seen, done = zip(*(rollout.step() for _ in range(_NUM_STEPS)))
  np.savez(folder / 'seen.npz', **{
      name: np.stack([getattr(s, name) for s in seen])
      for name in ('step_type', 'reward', 'discount', 'observation')})
  return np.stack([d.action for d in done]), np.stack(
      [d.info.policy.logits for d in done])


def _run(*arguments) -> str:
  return subprocess.run(
      [sys.executable, *arguments], check=True, text=True, stdout=subprocess.PIPE,
      cwd='/', env={**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '3'}).stdout


@pytest.mark.medium
class ExportTest(parameterized.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.folders, cls.expected = {}, {}
    for name in policy_testing.CORES:
      policy = policy_testing.make_policy(name)
      cls.folders[name] = policy_testing.export_for_class(cls, policy).parent
      cls.expected[name] = _play(policy, cls.folders[name])
    cls.modules = json.loads(
        _run('-c', _PROGRAM, *map(str, cls.folders.values())).splitlines()[-1])

  def test_only_tensorflow_is_needed(self):
    self.assertIn('tensorflow', self.modules)
    for name in ('gtrxl_tf', 'tf_agents', 'tensorflow_probability', 'reverb', 'gin'):
      self.assertNotIn(name, self.modules)

  @parameterized.product(name=list(policy_testing.CORES), batch_size=_BATCH_SIZES)
  def test_it_acts_as_the_policy_does(self, name, batch_size):
    actions, logits = self.expected[name]
    self.assertGreater(len(np.unique(actions)), 1)
    done = np.load(self.folders[name] / f'done_{batch_size}.npz')
    np.testing.assert_array_equal(done['actions'], actions[:, :batch_size])
    np.testing.assert_allclose(
        done['logits'], logits[:, :batch_size], atol=1e-5, rtol=1e-5)

  def test_its_signatures_can_be_read(self):
    text = _run('-m', 'tensorflow.python.tools.saved_model_cli', 'show', '--dir',
                str(self.folders['trxl'] / 'policy'), '--all')
    signatures = {
        part.split("'")[0]: set(re.findall(r"(?:inputs|outputs)\['([^']*)'\]", part))
        for part in text.split("signature_def['")[1:]}
    layers = [f'core/{name}/{i}' for i in range(2) for name in (
        'keys', 'values', 'tail_keys', 'tail_values')]
    memory = [*layers, 'core/valid', 'core/tail_valid', 'core/count', 'core/record',
              'previous_action']
    self.assertEqual(signatures['get_initial_state'], {'batch_size', *memory})
    self.assertEqual(signatures['action'], {
        '0/step_type', '0/reward', '0/discount', '0/observation',
        *('1/' + name for name in memory), 'action', 'info/policy/logits',
        *('state/' + name for name in memory)})

  def test_an_export_replaces_the_one_before(self):
    folder = pathlib.Path(self.create_tempdir().full_path) / 'policy'
    policy = policy_testing.make_policy('memoryless')
    export.save_policy(policy, folder)
    (folder / 'old').write_text('')
    export.save_policy(policy, folder)
    self.assertFalse((folder / 'old').exists())
    self.assertLen(list(folder.parent.iterdir()), 1)
    self.assertTrue(tf.saved_model.contains_saved_model(str(folder)))

  @pytest.mark.long
  def test_a_folder_of_something_else_is_refused(self):
    folder = pathlib.Path(self.create_tempdir().full_path)
    (folder / 'checkpoints').mkdir()
    with self.assertRaisesRegex(config.ConfigError, 'is not an exported policy'):
      export.save_policy(None, folder)
    self.assertTrue((folder / 'checkpoints').exists())

  def test_an_export_that_fails_leaves_nothing(self):
    path = pathlib.Path(self.create_tempdir().full_path) / 'policy'
    path.symlink_to(path)
    with self.assertRaises(NotADirectoryError):
      export.save_policy(policy_testing.make_policy('memoryless'), path)
    self.assertEqual(os.listdir(path.parent), ['policy'])

  @parameterized.parameters(
      ('observation', dict(observation=[[0., 0, 0, 0], [0, np.nan, 0, 0]])),
      ('observation', dict(observation=[[-np.inf, 0, 0, 0], [0, 0, 0, 0]])),
      ('reward', dict(reward=[0., np.nan])),
      ('reward', dict(reward=[np.inf, 0.])))
  def test_it_refuses_what_is_not_finite(self, name, changes):
    with self.assertRaisesRegex(
        tf.errors.InvalidArgumentError, f'{name}: expected finite numbers'):
      self._answer(**changes)

  def test_the_first_step_needs_no_reward(self):
    expected = self._answer(reward=[0., 0.5])
    self.assertAllFinite(expected)
    np.testing.assert_array_equal(self._answer(reward=[np.nan, 0.5]), expected)

  def assertAllFinite(self, values):  # pylint: disable=invalid-name
    self.assertTrue(np.isfinite(values).all())

  def _answer(self, **changes):
    """The logits for the first step of an episode and for another episode's second."""
    policy = tf.saved_model.load(str(self.folders['lstm'] / 'policy'))
    shown = dict(step_type=[0, 1], reward=[0., 0.], discount=[1., 1.],
                 observation=np.zeros([2, 4], np.float32))
    time_step = dm_env.TimeStep(**{
        name: tf.constant(value, tf.int32 if name == 'step_type' else tf.float32)
        for name, value in {**shown, **changes}.items()})
    return policy.action(time_step, policy.get_initial_state(2)).info.policy.logits


class SamplingTest(absltest.TestCase):
  """A policy that samples, and observes a dictionary."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    spec = {'mask': specs.Array((2,), np.int8), 'place': specs.Array((2,), np.float32)}
    network = actor_critic.ActorCritic(
        specs.DiscreteArray(2), torsos.VectorTorso((4,)), cores.Memoryless(1, 4),
        head_units=4)
    network.create_variables(spec)
    tf.random.set_seed(0)
    cls._policy = policy_lib.ActorCriticPolicy(network, spec, specs.DiscreteArray(2))
    cls._folder = policy_testing.export_for_class(cls, cls._policy)

  def _actions(self, repeats):
    policy = tf.saved_model.load(str(self._folder))
    if repeats:
      policy.metadata['repeats'].assign(True)
    time_step = testing.restart(
        {'mask': tf.zeros([50, 2], tf.int8), 'place': tf.zeros([50, 2])}, 50)
    return [policy.action(time_step, policy.get_initial_state(50)).action.numpy().tolist()
            for _ in range(2)]

  @pytest.mark.medium
  def test_each_program_draws_its_own_samples(self):
    self.assertNotEqual(self._actions(False), self._actions(False))

  @pytest.mark.medium
  def test_samples_repeat_where_asked(self):
    first, second = self._actions(True)
    self.assertNotEqual(first, second)
    self.assertEqual(self._actions(True), [first, second])
    self.assertEqual(
        exported.load(self._folder).metadata['repeats'].numpy(), True)

  @pytest.mark.medium
  def test_the_error_names_the_part(self):
    policy = tf.saved_model.load(str(self._folder))
    time_step = testing.restart({'mask': tf.zeros([1, 2], tf.int8),
                            'place': tf.constant([[0., np.nan]])}, 1)
    with self.assertRaisesRegex(tf.errors.InvalidArgumentError, 'observation/place'):
      policy.action(time_step, policy.get_initial_state(1))


if __name__ == '__main__':
  absltest.main()
