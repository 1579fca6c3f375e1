"""Tests of acting.py: policies that take an environment's own observations."""

import pathlib
import shutil
import subprocess
import sys
import tempfile

from absl.testing import absltest
from absl.testing import parameterized
from dm_env import specs
import numpy as np
import portpicker
import pytest
import tensorflow as tf

from gtrxl_tf import agents
from gtrxl_tf import cores
from gtrxl_tf import networks
from gtrxl_tf.environments import instructions
from gtrxl_tf.serving import acting
from gtrxl_tf.serving import export

_SPEC = {'goal': specs.BoundedArray([4], np.int32, 0, 1000, 'goal'),
         'kind': specs.BoundedArray([], np.int32, 2, 6, 'kind'),
         'action_mask': specs.BoundedArray([3], np.int8, 0, 1, 'action_mask')}
_ACTION = {'move': specs.BoundedArray([], np.int32, 5, 7, 'move'),
           'push': specs.BoundedArray([2], np.float32, -1, 1, 'push')}


def _write(folder, observation_spec, action_spec):
  tf.keras.utils.set_random_seed(0)
  network = networks.ActorCritic(
      action_spec, core=cores.TransformerXL(1, 8, 1, 8, memory_length=4), head_units=8)
  network.create_variables(observation_spec)
  export.save_policy(agents.ActorCriticPolicy(
      network, observation_spec, action_spec, greedy=True), pathlib.Path(folder))


def _seen(kind=3, text='go to the red door'):
  return {'goal': text, 'kind': kind, 'mission': 'is left out'}


class ActingTest(parameterized.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.folder = tempfile.mkdtemp()
    cls.addClassCleanup(shutil.rmtree, cls.folder)
    _write(f'{cls.folder}/policy', _SPEC, _ACTION)
    _write(f'{cls.folder}/plain', specs.Array([2], np.float32), specs.DiscreteArray(3))

  @pytest.mark.medium
  def test_actions_are_the_environments_own(self):
    policy = acting.load_policy(self.folder)  # The folder of a run.
    for mask, move in ([1, 0, 0], 5), ([0, 0, 1], 7):
      action = policy.act(_seen(), mask=mask)
      self.assertIsInstance(action['move'], int)
      self.assertEqual((action['move'], action['push'].shape), (move, (2,)))

  @pytest.mark.medium
  def test_a_batch_acts_like_each_alone(self):
    rows = np.random.default_rng(0).normal(size=[5, 3, 2]).astype(np.float32)
    together = acting.load_policy(f'{self.folder}/plain')
    found = np.stack([together.act(row, first=[t == 2, False, False] if t else None)
                      for t, row in enumerate(rows)])
    for i in range(3):
      alone = acting.load_policy(f'{self.folder}/plain')
      for t, row in enumerate(rows):
        if i == 0 and t == 2:
          alone.reset()
        self.assertEqual(alone.act(row[i]), found[t, i])

  @pytest.mark.medium
  def test_a_text_is_read_as_in_training(self):
    policy = acting.load_policy(self.folder)
    by_text = policy.act(_seen(), mask=[1, 1, 1])
    policy.reset()
    ids = instructions.hash_instruction('go to the red door', 4)
    by_ids = policy.act(_seen(text=ids), mask=[1, 1, 1])
    np.testing.assert_array_equal(by_text['push'], by_ids['push'])

  @parameterized.parameters(
      (dict(_seen(), kind=1), 'observation/kind: expected integers from 2 to 6'),
      (dict(_seen(), kind=0.5), 'observation/kind: expected int32 .* got float64'),
      ({'kind': 3}, 'observation: goal is missing'), (3, 'expected an object with .*goal'))
  @pytest.mark.medium
  def test_a_wrong_observation_is_named(self, observation, expected):
    policy = acting.load_policy(self.folder)
    with self.assertRaisesRegex(ValueError, expected):
      policy.act(observation, mask=[1, 1, 1] if isinstance(observation, dict) else None)

  @pytest.mark.medium
  def test_numbers_that_are_not_finite_and_other_batches_are_refused(self):
    policy = acting.load_policy(f'{self.folder}/plain')
    with self.assertRaisesRegex(ValueError, 'NaN'):
      policy.act([np.nan, 0])
    policy.act(np.zeros([3, 2]))
    with self.assertRaisesRegex(ValueError, 'of 2 .*expected 3'):
      policy.act(np.zeros([2, 2]))
    policy.reset()
    self.assertEqual(policy.act(np.zeros([2, 2])).shape, (2,))

  @pytest.mark.medium
  def test_a_server_acts_like_the_policy(self):
    port = portpicker.pick_unused_port()
    with subprocess.Popen(
        [sys.executable, '-m', 'binaries.serve', f'--policy_dir={self.folder}/policy',
         f'--port={port}'], stdout=subprocess.PIPE, text=True,
        cwd=pathlib.Path(__file__).parents[2]) as server:
      try:
        server.stdout.readline()  # Once it listens.
        served, own = map(acting.load_policy, (f'http://localhost:{port}', self.folder))
        observation = {'goal': np.ones([2, 4], np.int32), 'kind': [2, 6],
                       'action_mask': np.ones([2, 3], np.int8)}
        for reward in 0.0, [1.0, 0.5]:
          found, expected = (x.act(observation, reward) for x in (served, own))
          np.testing.assert_array_equal(found['move'], expected['move'])
          np.testing.assert_allclose(found['push'], expected['push'], rtol=1e-5)
        served.close()
      finally:
        server.terminate()


if __name__ == '__main__':
  absltest.main()
