"""Tests of attention_memory.py."""

from absl.testing import absltest
from absl.testing import parameterized

from tools import attention_memory

_SIZE = dict(batch_size=256, width=512, num_heads=64)  # Table S3.
_GB = 4 * 4 / 1e9  # A number in each of four layers.


class AttentionMemoryTest(parameterized.TestCase):

  @parameterized.parameters((125, 9.27), (50, 1.76), (25, 0.56), (10, 0.16))
  def test_without_memory(self, length, expected):
    found = _GB * attention_memory.count(length=length, **_SIZE)
    self.assertAlmostEqual(found, expected, delta=0.005)

  @parameterized.parameters((25, 50, 1.53), (10, 10, 0.28))
  def test_with_memory(self, length, memory_length, expected):
    found = _GB * attention_memory.count(
        length=length, memory_length=memory_length, **_SIZE)
    self.assertAlmostEqual(found, expected, delta=0.005)


if __name__ == '__main__':
  absltest.main()
