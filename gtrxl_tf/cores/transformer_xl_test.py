"""Compares TrXL, TrXL-I and GTrXL with the paper's equations, written as loops."""

from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf.cores import transformer_xl

_B, _T, _M, _L, _H = 3, 6, 4, 2, 2
_D, _HEAD_DIM = 5, 3  # An odd width has one sine more than cosines.


def _sigmoid(x):
  return 1 / (1 + np.exp(-x))


def _relu(x):
  return np.maximum(x, 0)


def _layer_norm(layer, x):
  """Normalizes one vector."""
  normal = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
  return normal * layer.gamma.numpy() + layer.beta.numpy()


def _sinusoids(distance):
  angles = distance / 10000 ** (np.arange(0, _D, 2) / _D)
  return np.concatenate([np.sin(angles), np.cos(angles)])[:_D]


def _gru_gate(layer, x, y):
  """The equations of section 3.2."""
  w_r, w_z, w_g = np.split(layer.kernel.numpy(), 3, axis=1)
  u_r, u_z = np.split(layer.recurrent_kernel.numpy(), 2, axis=1)
  r = _sigmoid(y @ w_r + x @ u_r)
  z = _sigmoid(y @ w_z + x @ u_z - layer.bias.numpy())
  h = np.tanh(y @ w_g + (r * x) @ layer.candidate_kernel.numpy())
  return (1 - z) * x + z * h


def _attend(layer, inputs, query, visible):
  """Equations 16 to 21, without the residual, for the input with index `query`."""
  def project(x, name, h):
    return (x @ getattr(layer, f'{name}_kernel').numpy()[:, h]
            + getattr(layer, f'{name}_bias').numpy()[h])
  attended = layer.output_bias.numpy()
  for h in range(_H):
    q = project(inputs[query], 'query', h)
    scores, values = [], []
    for key in visible:
      k = project(inputs[key], 'key', h)
      r = project(_sinusoids(query - key), 'relative', h)
      u, v = layer.content_bias_u.numpy()[h], layer.position_bias_v.numpy()[h]
      scores.append((q @ k + q @ r + u @ k + v @ r) / np.sqrt(_HEAD_DIM))
      values.append(project(inputs[key], 'value', h))
    weights = np.exp(scores) / np.exp(scores).sum()
    attended = attended + (weights @ values) @ layer.output_kernel.numpy()[h]
  return attended


def _block(layer, variant, memory, inputs, sees):
  """One layer on one row: equations 2 to 4 (`trxl`), 5 to 8 or 23 to 26."""
  def mlp(x):
    hidden, outputs = layer._mlp.layers
    x = _relu(x @ hidden.kernel.numpy() + hidden.bias.numpy())
    return x @ outputs.kernel.numpy() + outputs.bias.numpy()

  stream = np.concatenate([memory, inputs])
  seen = stream
  if variant != 'trxl':
    seen = np.array([_layer_norm(layer.attention_norm, x) for x in stream])
  outputs = []
  for query in range(len(memory), len(stream)):
    e = stream[query]
    attended = _attend(layer.attention, seen, query, sees(query))
    if variant == 'trxl':
      y = _layer_norm(layer.attention_norm, e + attended)
      outputs.append(_layer_norm(layer.mlp_norm, y + mlp(y)))
    elif variant == 'trxl_i':
      y = e + _relu(attended)
      outputs.append(y + _relu(mlp(_layer_norm(layer.mlp_norm, y))))
    else:
      y = _gru_gate(layer.attention_gate, e, _relu(attended))
      outputs.append(_gru_gate(
          layer.mlp_gate, y, _relu(mlp(_layer_norm(layer.mlp_norm, y)))))
  return np.array(outputs)


class TransformerXLTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.parameters('trxl', 'trxl_i', 'gtrxl')
  @pytest.mark.medium
  def test_an_unroll_from_memory_agrees_with_the_equations(self, variant):
    random = np.random.RandomState(0)
    core = cores.TransformerXL(
        _L, _D, _H, _HEAD_DIM, mlp_dim=7, memory_length=_M, variant=variant,
        use_bias=True)
    core.build(tf.TensorShape([None, None, 4]))
    for variable in core.trainable_variables:
      variable.assign_add(0.3 * random.randn(*variable.shape))
    inputs = random.randn(_B, _T, 4).astype(np.float32)
    memory = random.randn(_B, _M, _L, _D).astype(np.float32)
    # The first row's memory is full, the other rows' memories are not. New episodes
    # begin within the second row's unroll, and at the start and within the third row's.
    valid = np.arange(_M) >= np.array([[0], [1], [3]])
    is_first = np.zeros((_B, _T), bool)
    is_first[1, 2] = is_first[2, [0, 4]] = True

    outputs, state = core(
        inputs, tf.constant(is_first), transformer_xl.XLState(memory, valid))

    for b in range(_B):
      episode = np.concatenate(
          [np.where(valid[b], 0, -1), np.cumsum(is_first[b])])

      def sees(query, episode=episode):
        return [key for key in range(query - _M, query + 1)
                if episode[key] == episode[query]]

      stream = inputs[b] @ core.embedding.kernel.numpy() + core.embedding.bias.numpy()
      for i, layer in enumerate(core.blocks):
        layer_memory = np.concatenate([memory[b, :, i], stream])[-_M:]
        self.assertAllClose(
            state.memory[b, :, i], layer_memory, atol=1e-4, rtol=1e-4)
        stream = _block(layer, variant, memory[b, :, i], stream, sees)
      self.assertAllClose(outputs[b], stream, atol=1e-4, rtol=1e-4)
      self.assertAllEqual(state.valid[b], episode[-_M:] == episode[-1])


if __name__ == '__main__':
  tf.test.main()
