"""Tests for instructions."""

from absl.testing import absltest
import numpy as np

from gtrxl_tf.environments import instructions

IDS = [924, 841, 79, 456, 380, 0, 0]  # The ids of 'pick up the red ball'.


class HashInstructionTest(absltest.TestCase):

  def test_ids_never_change(self):
    ids = instructions.hash_instruction('pick up the red ball', max_words=7)
    self.assertEqual(ids.dtype, np.int32)
    self.assertSequenceEqual(ids.tolist(), IDS)

  def test_same_word_same_id(self):
    ids = instructions.hash_instruction('  the\tball the\nred ball', max_words=5)
    self.assertEqual(ids[0], ids[2])
    self.assertEqual(ids[1], ids[4])
    self.assertLen(set(ids), 3)

  def test_drops_words_after_max_words(self):
    self.assertSequenceEqual(
        instructions.hash_instruction('pick up the red ball', max_words=2).tolist(),
        IDS[:2])

  def test_empty_instruction_is_all_padding(self):
    self.assertSequenceEqual(
        instructions.hash_instruction('', max_words=3).tolist(),
        [instructions.PADDING] * 3)

  def test_ids_are_in_the_vocabulary_and_never_padding(self):
    words = ' '.join(map(str, range(1000)))
    ids = instructions.hash_instruction(words, max_words=1000, vocabulary_size=10)
    self.assertEqual(set(ids), set(range(1, 11)))


if __name__ == '__main__':
  absltest.main()
