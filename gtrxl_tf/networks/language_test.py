from absl.testing import absltest
import numpy as np
import tensorflow as tf

from gtrxl_tf.environments import instructions
from gtrxl_tf.networks import language


class InstructionEncoderTest(tf.test.TestCase):

  def test_size_of_the_paper(self):
    encoder = language.InstructionEncoder()
    self.assertEqual(encoder(tf.ones([2, 5, 3], tf.int32)).shape, [2, 5, 64])
    self.assertEqual(encoder.count_params(), 1001 * 48 + 4 * 64 * (48 + 64 + 1))

  def test_does_not_see_padding(self):
    encoder = language.InstructionEncoder()
    self.assertAllClose(encoder(tf.constant([[3, 1, 4, 0, 0]])),
                        encoder(tf.constant([[3, 1, 4]])))

  def test_sees_the_order_of_words(self):
    encoder = language.InstructionEncoder()
    self.assertNotAllClose(encoder(tf.constant([[3, 1, 4]])),
                           encoder(tf.constant([[4, 1, 3]])))

  def test_an_empty_instruction_gives_zeros(self):
    outputs = language.InstructionEncoder()(tf.constant([[0, 0], [5, 0]]))
    self.assertAllEqual(outputs[0], tf.zeros([64]))
    self.assertGreater(tf.norm(outputs[1]), 0.)

  def test_accepts_every_id_of_its_vocabulary(self):
    encoder = language.InstructionEncoder(vocabulary_size=7, embedding_dim=2)
    ids = instructions.hash_instruction(
        'a b c d e f g h i j k l', 12, vocabulary_size=7)
    self.assertTrue(np.isfinite(encoder(ids[np.newaxis])).all())

  def test_runs_under_xla(self):
    encoder = language.InstructionEncoder()
    ids = tf.constant([[[3, 1, 4, 0], [0, 0, 0, 0]]])
    compiled = tf.function(encoder, autograph=False, jit_compile=True)
    self.assertAllClose(compiled(ids), encoder(ids))

  def test_xla_does_not_take_the_words_of_a_gradient_as_constants(self):
    encoder = language.InstructionEncoder(embedding_dim=2, units=3)
    ids = tf.ones([2, 5, 4], tf.int32)
    encoder(ids)

    def gradients(ids):
      with tf.GradientTape() as tape:
        total = tf.reduce_sum(encoder(ids))
      return [tf.convert_to_tensor(x)
              for x in tape.gradient(total, encoder.trainable_variables)]

    module = tf.function(gradients, autograph=False, jit_compile=True)
    self.assertRegex(module.experimental_get_compiler_ir(ids)(stage='hlo'),
                     r's32\[2,5,4\]\S* parameter\(')


if __name__ == '__main__':
  absltest.main()
