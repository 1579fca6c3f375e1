"""Compares XL and ED with equations 3 and 4, written as loops."""

from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import cores

_B, _D, _H, _HEAD_DIM, _S, _M = 2, 8, 2, 3, 3, 4


def _layer_norm(layer, x):
  """Normalizes one vector."""
  normal = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
  return normal * layer.gamma.numpy() + layer.beta.numpy()


def _dense(layer, x):
  return np.asarray(layer.activation(x @ layer.kernel.numpy() + layer.bias.numpy()))


def _block(layer, memory, inputs, sees):
  """One layer with norms after the residuals, on one row's segment."""
  keys = np.concatenate([memory, inputs])
  attention, outputs = layer.attention, []
  for query in range(len(memory), len(keys)):
    q = np.split(_dense(attention._query, keys[query]), _H)
    visible = sees(query)
    k, v = np.split(_dense(attention._key_and_value, keys[visible]), 2, axis=1)
    heads = []
    for h in range(_H):
      columns = slice(h * _HEAD_DIM, (h + 1) * _HEAD_DIM)
      weights = np.exp(k[:, columns] @ q[h] / np.sqrt(_HEAD_DIM))
      heads.append(weights / weights.sum() @ v[:, columns])
    attended = _dense(attention._output, np.concatenate(heads))
    y = _layer_norm(layer._attention_norm, keys[query] + attended)
    outputs.append(_layer_norm(
        layer._mlp_norm, y + _dense(layer._outputs, _dense(layer._hidden, y))))
  return np.array(outputs)


class SegmentTransformerTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.parameters('xl', 'same_layer')
  @pytest.mark.medium
  def test_an_unroll_agrees_with_the_equations(self, recurrence):
    random = np.random.RandomState(0)
    core = cores.SegmentTransformer(
        2, _D, _H, _HEAD_DIM, mlp_dim=6, segment_length=_S, recurrence=recurrence,
        memory_length=_M)
    core.build(tf.TensorShape([None, None, _D]))
    for variable in core.trainable_variables:
      variable.assign_add(0.3 * random.randn(*variable.shape))
    inputs = random.randn(_B, 3 * _S, _D).astype(np.float32)
    is_first = np.zeros((_B, 3 * _S), bool)
    is_first[0, 0] = is_first[1, 4] = True  # At a segment's start, and within one.

    outputs, _ = core(inputs, tf.constant(is_first), core.initial_state(_B))

    for b in range(_B):
      episode = np.cumsum(is_first[b])
      remembered = np.zeros((len(core.blocks), 0, _D))
      for start in range(0, 3 * _S, _S):
        first = max(start - _M, 0)  # The first step that the segment sees.

        def sees(query, first=first, episode=episode):
          return [key for key in range(query + 1)
                  if episode[first + key] == episode[first + query]]

        streams = [inputs[b, start:start + _S]]
        for layer, memory in zip(core.blocks, remembered[:, first:]):
          streams.append(_block(layer, memory, streams[-1], sees))
        kept = streams[1:] if recurrence == 'same_layer' else streams[:-1]
        remembered = np.concatenate([remembered, kept], axis=1)
        self.assertAllClose(
            outputs[b, start:start + _S], streams[-1], atol=1e-4, rtol=1e-4)

  def test_attention_weights_from_an_empty_state(self):
    core = cores.SegmentTransformer(1, _D, 1, 3, 4, segment_length=_S, recurrence='xl',
                                    memory_length=_M)
    inputs = tf.random.stateless_normal([_B, 2 * _S, _D], [0, 1])
    is_first = tf.zeros([_B, 2 * _S], tf.bool)
    core(inputs)
    found, expected = (core.attention_weights(inputs, is_first, state).weights
                       for state in (core.empty_state(_B), core.initial_state(_B)))
    self.assertAllClose(found, expected)


if __name__ == '__main__':
  tf.test.main()
