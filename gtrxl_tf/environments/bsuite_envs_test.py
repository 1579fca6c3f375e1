"""Tests of bsuite.py."""

from absl.testing import absltest
from absl.testing import parameterized
from dm_env import test_utils

from gtrxl_tf.environments import bsuite
from gtrxl_tf.settings import config


def _make(test, name, seed=0):
  try:
    return bsuite.Bsuite(name, seed=seed)
  except config.ConfigError as error:
    test.skipTest(str(error))


class BsuiteContractTest(test_utils.EnvironmentTestMixin, absltest.TestCase):

  def make_object_under_test(self):
    return _make(self, 'memory_len/3')


class BsuiteTest(parameterized.TestCase):

  @parameterized.parameters(('memory_len/0', 1), ('memory_len/22', 100))
  def test_remembering_the_bit_gives_the_right_action(self, name, length):
    environment = _make(self, name)
    for _ in range(10):
      time_step = environment.reset()
      bit = int(time_step.observation[0, 2] > 0)
      num_steps = 0
      while not time_step.last():
        time_step = environment.step(bit)
        num_steps += 1
      self.assertEqual((time_step.reward, num_steps), (1.0, length + 1))

  def test_the_seed_decides_the_episodes(self):
    def bits(seed):
      environment = _make(self, 'memory_size/16', seed)
      return environment.reset().observation[0, 2:].tolist()

    self.assertLen(bits(1), 40)
    self.assertEqual(bits(1), bits(1))
    self.assertNotEqual(bits(1), bits(2))

  def test_refuses_an_id(self):
    _make(self, 'memory_len/0')
    with self.assertRaisesRegex(config.ConfigError, "^Bsuite.name = 'memory_len'"):
      bsuite.Bsuite('memory_len')


if __name__ == '__main__':
  absltest.main()
