"""Each gate computes the paper's equation."""

from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from gtrxl_tf.cores import gates

_D = 5


def _sigmoid(x):
  return 1 / (1 + np.exp(-x))


def _parts(variable, count):
  return np.split(variable.numpy(), count, axis=1)


def _expected(name, gate, x, y):
  """Section 3.2, written out. Matrices act on rows: `x W` for the paper's `W x`."""
  b = gate.bias.numpy() if hasattr(gate, 'bias') else None
  if name == 'residual':
    return x + y
  if name == 'sigtanh':
    w, u = _parts(gate.kernel, 2)
    return x + _sigmoid(y @ w - b) * np.tanh(y @ u)
  if name == 'gru':
    w_r, w_z, w_g = _parts(gate.kernel, 3)
    u_r, u_z = _parts(gate.recurrent_kernel, 2)
    u_g = gate.candidate_kernel.numpy()
    r = _sigmoid(y @ w_r + x @ u_r)
    z = _sigmoid(y @ w_z + x @ u_z - b)
    return (1 - z) * x + z * np.tanh(y @ w_g + (r * x) @ u_g)
  w = gate.kernel.numpy()
  if name == 'input':
    return _sigmoid(x @ w) * x + y
  if name == 'output':
    return x + _sigmoid(x @ w - b) * y
  carry = _sigmoid(x @ w + b)
  return carry * x + (1 - carry) * y


class GatesTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.product(name=list(gates.GATES), bias=(0.0, 2.0))
  def test_equation(self, name, bias):
    random = np.random.RandomState(0)
    x, y = random.randn(2, 3, 4, _D).astype(np.float32)
    gate = gates.GATES[name](bias)
    self.assertAllClose(gate(x, y), _expected(name, gate, x, y), atol=1e-5, rtol=1e-5)

  @parameterized.parameters('output', 'highway', 'sigtanh', 'gru')
  def test_large_bias_is_the_identity(self, name):
    x, y = np.random.RandomState(0).randn(2, 3, _D).astype(np.float32)
    self.assertAllClose(gates.GATES[name](50.0)(x, y), x)

  @parameterized.parameters(
      ('residual', 0), ('input', _D**2), ('output', _D**2 + _D),
      ('highway', _D**2 + _D), ('sigtanh', 2 * _D**2 + _D), ('gru', 6 * _D**2 + _D))
  def test_number_of_parameters(self, name, expected):
    gate = gates.GATES[name]()
    gate(np.ones((1, _D), np.float32), np.ones((1, _D), np.float32))
    self.assertEqual(sum(int(tf.size(v)) for v in gate.variables), expected)

  @parameterized.parameters(*gates.GATES)
  def test_a_gate_alone_takes_float32_in_mixed_precision(self, name):
    x, y = np.random.RandomState(0).randn(2, 3, _D).astype(np.float32)
    self.addCleanup(tf.keras.mixed_precision.set_global_policy, 'float32')
    tf.keras.mixed_precision.set_global_policy('mixed_bfloat16')
    gate = gates.GATES[name]()
    self.assertEqual(gate(x, y).dtype, tf.bfloat16)
    self.assertAllClose(gate(x, y), _expected(name, gate, x, y), atol=0.05)


if __name__ == '__main__':
  tf.test.main()
