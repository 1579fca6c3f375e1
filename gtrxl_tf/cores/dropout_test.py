"""Dropout drops the given share, as a function of the inputs alone."""

from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf.cores import dropout

_B, _T, _D = 2, 6, 8
_CORES = {
    'rate': lambda **settings: cores.RATE(
        2, _D, 2, 3, mlp_dim=5, num_memory_tokens=2, cache_length=4, segment_length=3,
        retention_heads=2, **settings),
    'xl': lambda **settings: cores.TransformerXL(
        2, _D, 2, 3, memory_length=4, **settings),
    'segments': lambda **settings: cores.SegmentTransformer(
        2, _D, 2, 3, 5, segment_length=3, recurrence='same_layer', memory_length=4,
        **{'dropout': 0.0, 'attention_dropout': 0.0, **settings}),
}


def _inputs(seed):
  return tf.constant(np.random.RandomState(seed).randn(_B, _T, _D), tf.float32)


def _make(name, **settings):
  tf.keras.utils.set_random_seed(0)
  core = _CORES[name](**settings)
  core.build(tf.TensorShape([None, None, _D]))
  return core


def _run(core, inputs, **kwargs):
  return core(inputs, tf.zeros((_B, _T), tf.bool), core.initial_state(_B), **kwargs)[0]


class DropTest(tf.test.TestCase, parameterized.TestCase):

  def test_a_rate_of_one_drops_all_with_a_gradient_of_zero(self):
    x = _inputs(0)
    with tf.GradientTape() as tape:
      tape.watch(x)
      dropped = dropout.drop(x, 1.0, dropout.make_key(x), 0)
    self.assertAllEqual(dropped, tf.zeros_like(x))
    self.assertAllEqual(
        tape.gradient(dropped, x, unconnected_gradients='zero'), tf.zeros_like(x))

  @parameterized.parameters(tf.float32, tf.bfloat16)
  def test_drops_a_share_and_keeps_the_mean(self, dtype):
    key = dropout.make_key(_inputs(0))
    x = tf.ones((1000, 100), dtype)
    dropped = tf.cast(dropout.drop(x, 0.05, key, 0), tf.float32)
    self.assertAllClose(np.mean(dropped == 0), 0.05, atol=0.004)
    self.assertAllClose(np.mean(dropped), 1, atol=0.006)

  def test_a_last_bit_of_the_inputs_changes_the_whole_mask(self):
    x = _inputs(0).numpy()
    near = x.copy()
    near[1, 2, 3] = np.nextafter(x[1, 2, 3], np.float32(9))
    masks = [dropout.drop(tf.ones((1000,)), 0.5, dropout.make_key(y), 0) == 0
             for y in (x, x.copy(), near)]
    self.assertAllEqual(masks[0], masks[1])
    self.assertAllClose(np.mean(masks[0] == masks[2]), 0.5, atol=0.1)

  def test_each_place_has_its_own_mask(self):
    key = dropout.make_key(_inputs(0))
    masks = [dropout.drop(tf.ones((1000,)), 0.5, k, number) == 0
             for k in (key, dropout.fold(key, 0)) for number in (0, 1)]
    for i in range(4):
      for j in range(i):
        self.assertAllClose(np.mean(masks[i] == masks[j]), 0.5, atol=0.06)

  def test_inputs_of_the_same_numbers_have_keys_of_their_own(self):
    random = np.random.default_rng(0)
    keys = {tuple(dropout.make_key(tf.one_hot(random.integers(5, size=[2, 6]), 5)).numpy())
            for _ in range(20)}
    self.assertLen(keys, 20)

  def test_without_a_key_nothing_is_dropped(self):
    x = _inputs(0)
    self.assertIs(dropout.drop(x, 0.5, dropout.fold(None, 3), 0), x)


class CoresTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.product(
      name=list(_CORES), setting=['dropout', 'attention_dropout'])
  @pytest.mark.medium
  def test_drops_only_in_training(self, name, setting):
    core, plain = _make(name, **{setting: 0.3}), _make(name)
    inputs = _inputs(0)
    self.assertAllEqual(_run(core, inputs), _run(plain, inputs))
    trained = _run(core, inputs, training=True)
    self.assertNotAllClose(trained, _run(plain, inputs), atol=1e-2)
    self.assertEqual(len(core.variables), len(plain.variables))
    # The same inputs give the same masks; other inputs, however close, do not.
    self.assertAllEqual(_run(core, inputs, training=True), trained)
    other = _run(core, inputs + 1e-5, training=True)
    self.assertNotAllClose(other, trained, atol=1e-2)

  @parameterized.parameters(False, True)
  @pytest.mark.long
  def test_an_enclosing_layer_may_set_training(self, jit_compile):
    core = cores.TransformerXL(1, _D, 2, 3, memory_length=4, dropout=0.3)

    class Enclosing(tf.keras.layers.Layer):

      def call(self, inputs):
        return _run(core, inputs)

    enclosing = Enclosing()

    @tf.function(autograph=False, jit_compile=jit_compile)
    def run(x):
      return [enclosing(x, training=training) for training in (True, True, False)]

    first, second, acting = run(_inputs(0))
    self.assertAllEqual(first, second)
    self.assertNotAllClose(first, acting, atol=1e-2)
    self.assertAllClose(acting, _run(core, _inputs(0)), atol=1e-5)

  @parameterized.parameters(*_CORES)
  @pytest.mark.medium
  def test_gradients_are_finite(self, name):
    core = _make(name, dropout=0.2, attention_dropout=0.2)
    with tf.GradientTape() as tape:
      loss = tf.reduce_sum(tf.sin(_run(core, _inputs(0), training=True)))
    for gradient in tape.gradient(loss, core.trainable_variables):
      self.assertAllEqual(
          tf.math.is_finite(gradient), tf.ones_like(gradient, tf.bool))

  @parameterized.parameters(*_CORES)
  @pytest.mark.long
  def test_a_rate_of_zero_does_not_change_the_graph(self, name):
    core = _make(name)
    kinds = []
    for training in (True, False):
      function = tf.function(
          lambda x, training=training: _run(core, x, training=training),
          autograph=False)
      graph = function.get_concrete_function(_inputs(0)).graph
      kinds.append(sorted(op.type for op in graph.get_operations()))
    self.assertEqual(*kinds)
    self.assertFalse([kind for kind in kinds[0] if 'Random' in kind])


if __name__ == '__main__':
  tf.test.main()
