"""Tests of export.py: a program that imports only TensorFlow loads the SavedModel."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf import environments
from gtrxl_tf.agents import policy as policy_lib
from gtrxl_tf.environments import t_maze
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import torsos
from gtrxl_tf.serving import export
from gtrxl_tf.training import rollout as rollout_lib

_CORES = {
    'trxl': lambda: cores.TransformerXL(2, 8, 2, 4, memory_length=5),
    'lstm': lambda: cores.DeepLSTM(2, 8),
    'memoryless': lambda: cores.Memoryless(1, 8),
}
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


def _environment():
  # Episodes of 4 or 5 steps: some end and others begin.
  return environments.BatchedEnvironment(
      [t_maze.TMaze(corridor_length=3, penalty=1.0, seed=i)
       for i in range(max(_BATCH_SIZES))])


def _make_policy(core) -> policy_lib.ActorCriticPolicy:
  """A greedy policy of a network with random variables."""
  environment = _environment()
  network = actor_critic.ActorCritic(
      environment.action_spec(), torsos.VectorTorso((8,)), core(), head_units=8)
  network.create_variables(environment.observation_spec())
  random = np.random.RandomState(0)
  for variable in network.variables:
    variable.assign(1.5 * random.randn(*variable.shape))
  return policy_lib.ActorCriticPolicy(
      network, environment.observation_spec(), environment.action_spec(), greedy=True)


def _play(policy, folder: pathlib.Path):
  """Runs `policy`; writes its inputs, and returns its actions and logits."""
  rollout = rollout_lib.Rollout(
      _environment(), policy.action, policy.get_initial_state(max(_BATCH_SIZES)))
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


class ExportTest(parameterized.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    root = pathlib.Path(tempfile.mkdtemp())
    cls.addClassCleanup(shutil.rmtree, root)
    cls.folders, cls.expected = {}, {}
    for name, core in _CORES.items():
      cls.folders[name] = root / name
      cls.folders[name].mkdir()
      policy = _make_policy(core)
      cls.expected[name] = _play(policy, cls.folders[name])
      export.save_policy(policy, cls.folders[name] / 'policy')
    cls.modules = json.loads(
        _run('-c', _PROGRAM, *map(str, cls.folders.values())).splitlines()[-1])

  def test_only_tensorflow_is_needed(self):
    self.assertIn('tensorflow', self.modules)
    for name in ('gtrxl_tf', 'tf_agents', 'tensorflow_probability', 'reverb', 'gin'):
      self.assertNotIn(name, self.modules)

  @parameterized.product(name=list(_CORES), batch_size=_BATCH_SIZES)
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
    policy = _make_policy(_CORES['memoryless'])
    export.save_policy(policy, folder)
    (folder / 'old').write_text('')
    export.save_policy(policy, folder)
    self.assertFalse((folder / 'old').exists())
    self.assertLen(list(folder.parent.iterdir()), 1)
    self.assertTrue(tf.saved_model.contains_saved_model(str(folder)))


if __name__ == '__main__':
  absltest.main()
