"""Compares the recurrent layers with those of Keras."""

import numpy as np
import tensorflow as tf

from gtrxl_tf import cores

_B, _T, _D, _H = 2, 7, 3, 5


def _used(core):
  """A core's variables, moved from their initial values, with inputs and a state."""
  random = np.random.RandomState(0)
  inputs = random.randn(_B, _T, _D).astype(np.float32)
  core(inputs, tf.zeros([_B, _T], tf.bool), core.initial_state(_B))
  for variable in core.variables:
    variable.assign_add(0.3 * random.randn(*variable.shape))
  state = tf.constant(random.randn(*core.initial_state(_B).shape), tf.float32)
  variables = {v.name.split('/')[-1].split(':')[0]: v.numpy() for v in core.variables}
  return variables, inputs, state


class RecurrentTest(tf.test.TestCase):

  def assert_agrees(self, core, inputs, state, keras_layer, weights):
    keras_layer.build(inputs.shape)
    keras_layer.set_weights(weights)
    expected, *rows = keras_layer(
        inputs, initial_state=tf.unstack(state[:, 0], axis=1))
    outputs, final = core(inputs, tf.zeros([_B, _T], tf.bool), state)
    self.assertAllClose(outputs, expected, atol=1e-5, rtol=1e-5)
    self.assertAllClose(final[:, 0], tf.stack(rows, axis=1), atol=1e-5, rtol=1e-5)

  def test_lstm(self):
    core = cores.DeepLSTM(1, _H)
    v, inputs, state = _used(core)
    self.assert_agrees(
        core, inputs, state,
        tf.keras.layers.LSTM(_H, return_sequences=True, return_state=True),
        [v['kernel'], v['recurrent_kernel'], v['bias']])

  def test_gru(self):
    core = cores.DeepGRU(1, _H)
    v, inputs, state = _used(core)
    # Ours has the reset gate first, and a second bias only for the candidate.
    def swap(x):
      return np.concatenate(
          [x[..., _H:2 * _H], x[..., :_H], x[..., 2 * _H:]], axis=-1)
    recurrent_bias = np.concatenate([np.zeros(2 * _H), v['candidate_bias']])
    self.assert_agrees(
        core, inputs, state,
        tf.keras.layers.GRU(_H, return_sequences=True, return_state=True),
        [swap(v['kernel']), swap(v['recurrent_kernel']),
         np.stack([swap(v['bias']), recurrent_bias])])


if __name__ == '__main__':
  tf.test.main()
