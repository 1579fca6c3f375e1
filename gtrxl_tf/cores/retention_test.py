"""Compares each valve with its formula, written out in numpy."""

from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from gtrxl_tf.cores import retention

_B, _M, _D, _HEADS = 2, 3, 6, 2


def _sigmoid(x):
  return 1 / (1 + np.exp(-x))


def _attention(queries, keys, v):
  """Cross-attention, computed for one row, one head and one token at a time."""
  query, key, value = (
      x @ v[f'{name}_kernel'] + v[f'{name}_bias']
      for x, name in ((queries, 'query'), (keys, 'key'), (keys, 'value')))
  size = _D // _HEADS
  attended = np.zeros_like(query)
  for b in range(_B):
    for head in (slice(h * size, (h + 1) * size) for h in range(_HEADS)):
      for i in range(_M):
        scores = key[b, :, head] @ query[b, i, head] / np.sqrt(size)
        weights = np.exp(scores) / np.exp(scores).sum()
        attended[b, i, head] = weights @ value[b, :, head]
  return attended @ v['output_kernel'] + v['output_bias']


def _relu(x):
  return np.maximum(x, 0)


def _gate(m, h, c, v):
  r = _sigmoid(m @ v['w_r'] + h @ v['u_r'])
  z = _sigmoid(m @ v['w_z'] + h @ v['u_z'] - v['bias'])
  candidate = np.tanh(m @ v['w_g'] + (h * r) @ v['u_g'])
  return (1 - z) * m + z * candidate, c


def _gru(m, h, c, v):
  # The variant of cuDNN, Keras and PyTorch, in which r comes after the product.
  of_input = np.split(h @ v['kernel'] + v['bias'][0], 3, axis=-1)
  of_state = np.split(m @ v['recurrent_kernel'] + v['bias'][1], 3, axis=-1)
  z, r = (_sigmoid(of_input[i] + of_state[i]) for i in (0, 1))
  candidate = np.tanh(of_input[2] + r * of_state[2])
  return z * m + (1 - z) * candidate, c


def _lstm(m, h, c, v):
  gates = h @ v['kernel'] + m @ v['recurrent_kernel'] + v['bias']
  i, f, g, o = np.split(gates, 4, axis=-1)
  cell = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
  return _sigmoid(o) * np.tanh(cell), cell


_REFERENCES = {
    'none': lambda m, h, c, v: (h, c),
    'ca1': lambda m, h, c, v: (_attention(_relu(h), m, v), c),
    'ca2': lambda m, h, c, v: (_attention(m, _relu(h), v), c),
    'gate': _gate,
    'gru': _gru,
    'lstm': _lstm,
}


def _used_valve(name, *args):
  """A valve with variables moved from their initial values, and its arguments."""
  random = np.random.RandomState(0)
  valve = retention.RETENTION[name](*args)
  memory, candidate, cell = random.randn(3, _B, _M, _D).astype(np.float32)
  carry = cell if name == 'lstm' else ()
  valve(memory, candidate, carry)
  for variable in valve.variables:
    variable.assign_add(0.3 * random.randn(*variable.shape))
  return valve, memory, candidate, carry


class RetentionTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.parameters(*retention.RETENTION)
  def test_agrees_with_formula(self, name):
    valve, memory, candidate, carry = _used_valve(name, _HEADS, 'relu')
    variables = {v.name.split('/')[-1].split(':')[0]: v.numpy()
                 for v in valve.variables}
    expected, expected_carry = _REFERENCES[name](memory, candidate, carry, variables)
    actual, actual_carry = valve(memory, candidate, carry)
    self.assertAllClose(actual, expected, atol=1e-5, rtol=1e-5)
    self.assertAllClose(actual_carry, expected_carry, atol=1e-5, rtol=1e-5)

  @parameterized.parameters(
      ('relu', lambda x: np.where(x > 0, x, 0)),
      ('leaky_relu', lambda x: np.where(x > 0, x, 0.01 * x)),
      ('none', lambda x: x))
  def test_activation_is_applied_to_the_candidate(self, name, function):
    valve, memory, candidate, carry = _used_valve('ca2', _HEADS, name)
    plain = retention.RETENTION['ca2'](_HEADS, 'none')
    plain(memory, candidate, carry)
    plain.set_weights(valve.get_weights())
    self.assertAllClose(valve(memory, candidate, carry)[0],
                        plain(memory, function(candidate), carry)[0], atol=1e-6)

  def test_gate_initially_keeps_memory(self):
    random = np.random.RandomState(1)
    memory, candidate = 0.01 * random.randn(2, _B, _M, _D).astype(np.float32)
    kept, _ = retention.RETENTION['gate']()(memory, candidate, ())
    # z is initially about sigmoid(-2) = 0.119.
    self.assertAllClose(kept, 0.881 * memory, atol=5e-3)

  def test_only_the_lstm_has_a_carry(self):
    memory = tf.ones((_B, _M, _D))
    for name, valve in retention.RETENTION.items():
      carry = valve().initial_carry(memory)
      if name == 'lstm':
        self.assertAllEqual(carry, tf.zeros_like(memory))
      else:
        self.assertEqual(carry, ())


if __name__ == '__main__':
  tf.test.main()
