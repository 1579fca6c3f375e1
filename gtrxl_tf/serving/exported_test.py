"""Tests of exported.py: memories of clients, and damaged folders."""

import pathlib
import shutil
import subprocess
import sys

from absl.testing import absltest
from absl.testing import parameterized
import dm_env
from dm_env import specs
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import agents
from gtrxl_tf import networks
from gtrxl_tf.serving import exported
from gtrxl_tf.serving import policy_testing
from gtrxl_tf.settings import config

_NUM_CLIENTS, _NUM_STEPS = 5, 15

_IMPORTED = '''
import sys
from unittest import mock
for name in 'tensorflow', 'tensorflow.core', 'tensorflow.core.protobuf':
  sys.modules[name] = mock.MagicMock()
from gtrxl_tf.serving import server
print(*sys.modules)
'''


class ExportedPolicyTest(parameterized.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.folder = policy_testing.export_for_class(
        cls, policy_testing.make_policy('trxl', 0.7, False))

  @pytest.mark.medium
  def test_clients_do_not_see_each_other(self):
    policy = exported.ExportedPolicy(self.folder, _NUM_CLIENTS)
    shown = [policy_testing.draw(i, _NUM_STEPS) for i in range(_NUM_CLIENTS)]
    random, logits = np.random.RandomState(0), [[] for _ in shown]
    while any(len(x) < _NUM_STEPS for x in logits):
      who = [i for i in range(_NUM_CLIENTS)
             if len(logits[i]) < _NUM_STEPS and random.rand() < 0.6]
      if not who:
        continue
      random.shuffle(who)
      turns = []
      for i in who:
        first, reward, observation = shown[i][len(logits[i])]
        turns.append(exported.Turn(
            i, not logits[i], first, reward,
            {'observation': np.array(observation, np.float32)}))
      for i, answer in zip(who, policy.step(turns)):
        logits[i].append(answer.info['policy/logits'])
        self.assertEqual(answer.action['action'], answer.info['policy/logits'].argmax())
    for i, found in enumerate(logits):
      np.testing.assert_allclose(
          found, policy_testing.alone(self.folder, shown[i]), atol=1e-5, rtol=1e-5)

  @pytest.mark.medium
  def test_its_specs_and_memory_size(self):
    policy = exported.ExportedPolicy(self.folder, 2)
    self.assertEqual(policy.observation_spec.shape, [4])
    self.assertEqual(policy.action_spec.maximum, 3)
    # Keys and values of 2 layers, 2 heads, 5 steps and as many of the tail, and more.
    self.assertGreater(policy.row_bytes, 2 * 2 * 2 * (5 + 5) * 4 * 4)
    with self.assertRaisesRegex(
        config.ConfigError, r'the memories of 1000000000000 clients take [\d,]+ bytes, '
        r'[\d,]+ each: this machine has [\d,]+ left: expected fewer sessions$'):
      exported.ExportedPolicy(self.folder, 10**12)

  @pytest.mark.medium
  def test_an_environment_with_other_observations_is_refused(self):
    played = policy_testing.environment(1)
    spec, action_spec = played.observation_spec(), played.action_spec()
    exported.load(self.folder, specs=(spec, action_spec))
    for wrong, found in (
        (specs.Array([5], np.float32), r'observation is float32 of shape \[5\]'),
        (specs.Array([4], np.int32), r'observation is int32 of shape \[4\]'),
        ({'x': spec}, 'observation is missing')):
      with self.assertRaisesRegex(
          config.ConfigError, f'^{self.folder}: the policy of another environment: '
          rf'{found}: expected float32 of shape \[4\]$'):
        exported.load(self.folder, specs=(wrong, action_spec))
    with self.assertRaisesRegex(config.ConfigError, 'action is .* \\[2\\]: .* \\[\\] from 0$'):
      exported.load(self.folder, specs=(spec, specs.Array([2], np.float32)))

  @pytest.mark.medium
  def test_integers_are_those_of_the_environment(self):
    own = ({'level': specs.BoundedArray((), np.int32, 2, 6)},
           specs.BoundedArray((), np.int32, -1, 1))
    network = networks.CQLNetwork(own[1], networks.SpecTorso(own[0]))
    tf.keras.utils.set_random_seed(0)
    network.create_variables(own[0])
    folder = policy_testing.export_for_class(
        type(self), agents.CQLPolicy(network, *own))
    policy = exported.load(folder, specs=own)
    with self.assertRaisesRegex(config.ConfigError, 'action is int32 .* from 0: .* -1$'):
      exported.load(folder, specs=(own[0], specs.DiscreteArray(3)))
    time_step = dm_env.restart({'level': 2 + tf.range(5)})._replace(
        step_type=tf.zeros([5], tf.int32), reward=tf.zeros([5]), discount=tf.ones([5]))
    actions = policy.action(time_step, policy.get_initial_state(5)).action.numpy()
    self.assertContainsSubset(actions, [-1, 0, 1])
    self.assertGreater(len(set(actions)), 1)
    served = exported.ExportedPolicy(folder, 1)
    level = {'observation/level': np.int32(6)}
    answer, = served.step([exported.Turn(0, True, True, 0.0, level)])
    self.assertEqual(answer.action['action'], actions[4])

  @pytest.mark.medium
  def test_the_server_needs_no_tf_agents(self):
    modules = subprocess.run(
        [sys.executable, '-c', _IMPORTED], check=True, text=True,
        stdout=subprocess.PIPE).stdout.split()
    self.assertIn('gtrxl_tf.serving.exported', modules)
    for name in 'tf_agents', 'tensorflow_probability', 'reverb', 'gtrxl_tf.agents':
      self.assertNotIn(name, modules)


def _cut(path):
  path.write_bytes(path.read_bytes()[:-100])


def _flip(path):
  contents = bytearray(path.read_bytes())
  contents[len(contents) // 2] ^= 16
  path.write_bytes(contents)


_DATA = 'variables/variables.data-00000-of-00001'
_INDEX = 'variables/variables.index'


class DamageTest(parameterized.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.intact = policy_testing.export_for_class(
        cls, policy_testing.make_policy('memoryless'))

  def setUp(self):
    super().setUp()
    self.folder = pathlib.Path(self.create_tempdir().full_path) / 'policy'
    shutil.copytree(self.intact, self.folder)

  def assert_refused(self, message):
    with self.assertRaisesRegex(config.ConfigError, message) as caught:
      exported.ExportedPolicy(self.folder, 1)
    self.assertStartsWith(str(caught.exception), str(self.folder))
    self.assertNotIn('\n', str(caught.exception))

  @parameterized.product(
      file=('saved_model.pb', _DATA, _INDEX, 'policy_specs.pbtxt'),
      damage=(_cut, _flip, pathlib.Path.unlink))
  def test_damage_is_named(self, file, damage):
    damage(self.folder / file)
    expected = {_cut: r'is damaged: has \d+ bytes: expected \d+$',
                _flip: r'is damaged: its checksum is \w+: expected \w+$',
                pathlib.Path.unlink: 'is missing$'}[damage]
    self.assert_refused(f'/{file}: {expected}')

  @parameterized.parameters(
      '', '{', '[]', '{"files": {}}')
  def test_checksums_that_cannot_be_read(self, text):
    (self.folder / exported.CHECKSUMS).write_text(text)
    self.assert_refused('checksums.json: (damaged|was changed)')

  def test_other_folders(self):
    with self.assertRaisesRegex(config.ConfigError, '^/nowhere: does not exist'):
      exported.ExportedPolicy(pathlib.Path('/nowhere'), 1)
    shutil.rmtree(self.folder)
    tf.saved_model.save(tf.Module(), str(self.folder))
    self.assert_refused('has no checksums.json: expected the folder of an exported')


if __name__ == '__main__':
  absltest.main()
