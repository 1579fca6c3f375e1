"""Compares Mamba and MambaDM with their formulas, evaluated step by step in numpy."""

import math

from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf.cores import keras
from gtrxl_tf.cores import mamba

_B, _D, _N, _W = 2, 4, 3, 4
_E = 2 * _D


def _softplus(x):
  return np.log1p(np.exp(x))


def _silu(x):
  return x / (1 + np.exp(-x))


def _norm(x, v):
  return v['gamma'] * (x - x.mean()) / np.sqrt(x.var() + 1e-5) + v['beta']


def _mlp(x, v):
  hidden = x @ v['mlp_hidden']['kernel'] + v['mlp_hidden']['bias']
  gelu = np.array([h * (1 + math.erf(h / math.sqrt(2))) / 2 for h in hidden])
  return gelu @ v['mlp_outputs']['kernel'] + v['mlp_outputs']['bias']


def _scan_step(x, hidden, v):
  """Output `[E]` and states of one step of a state space, from `[E]` and `[N, E]`."""
  selected = x @ v['selection_kernel']  # dt is of rank 1 here.
  dt = _softplus(selected[:1] @ v['dt_kernel'] + v['dt_bias'])
  b, c = selected[1:1 + _N], selected[1 + _N:]
  hidden, y = hidden.copy(), np.zeros(_E)
  for e in range(_E):
    for n in range(_N):
      decay = np.exp(-dt[e] * np.exp(v['a_log'][n, e]))
      hidden[n, e] = decay * hidden[n, e] + dt[e] * b[n] * x[e]
    y[e] = c @ hidden[:, e] + v['skip'][e] * x[e]
  return y, hidden


def _mixer(inputs, is_first, state, v, local_length=None):
  """Outputs `[T, D]` and the state of one row, from `[T, D]`, `[T]` and a state."""
  hidden, seen, *more = state
  local, count = more or (None, 0)
  seen, outputs = list(seen), []
  for t, row in enumerate(inputs):
    if is_first[t]:
      seen, hidden, count = [np.zeros(_E)] * (_W - 1), np.zeros([_N, _E]), 0
    projected = row @ v['in_kernel']
    x, z = projected[:_E], projected[_E:]
    seen = [*seen, x]
    x = _silu(sum(v['conv_kernel'][i] * seen[i] for i in range(_W)) + v['conv_bias'])
    seen = seen[1:]
    y, hidden = _scan_step(x, hidden, v)
    if local_length:
      local = np.zeros([_N, _E]) if count == 0 else local
      local_y, local = _scan_step(x, local, v['local'])
      y, count = y + local_y, (count + 1) % local_length
    outputs.append((y * _silu(z)) @ v['out_kernel'])
  state = hidden, np.array(seen), local, count
  return np.array(outputs), state if local_length else state[:2]


def _core(inputs, is_first, state, v, local_length=None):
  """A core with one layer, for one row of the batch."""
  block = v['block_0']
  normed = np.array([_norm(x, block['mixer_norm']) for x in inputs])
  mixed, state = _mixer(normed, is_first, state, block['mixer'], local_length)
  outputs = []
  for x in inputs + mixed:
    if 'mlp_norm' in block:
      x = x + _mlp(_norm(x, block['mlp_norm']), block)
    outputs.append(_norm(x, v['norm']))
  return np.array(outputs), state


def _variables(core):
  """A core's variables in float64, nested by the parts of their names."""
  tree = {}
  for variable in core.variables:
    *path, name = keras.variable_name(variable).split(':')[0].split('/')
    node = tree
    for part in path:
      node = node.setdefault(part, {})
    node[name] = variable.numpy().astype(np.float64)
  return tree.get(core.name, tree)


def _loop(x, dt, a, b, c, resets, hidden):
  """`selective_scan` as a loop over steps."""
  outputs = []
  for t in range(x.shape[1]):
    hidden = tf.where(resets[:, t, tf.newaxis, tf.newaxis] > 0, 0., hidden)
    hidden = (tf.exp(tf.einsum('be,ne->bne', dt[:, t], a)) * hidden
              + tf.einsum('bn,be->bne', b[:, t], dt[:, t] * x[:, t]))
    outputs.append(tf.einsum('bn,bne->be', c[:, t], hidden))
  return tf.stack(outputs, axis=1), hidden


class MambaTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.parameters(
      (1, None), (3, 0), (10, 5), (1, None, 3), (3, 0, 2), (10, 5, 3), (10, 5, 1))
  @pytest.mark.medium
  def test_agrees_with_the_formulas(self, length, mlp_dim, local_length=None):
    random = np.random.RandomState(length)
    sizes = dict(
        num_layers=1, model_dim=_D, state_dim=_N, conv_width=_W, mlp_dim=mlp_dim)
    core = (cores.MambaDM(**sizes, local_length=local_length) if local_length
            else cores.Mamba(**sizes))
    inputs = random.randn(_B, length, _D).astype(np.float32)
    is_first = np.zeros([_B, length], bool)
    is_first[0, length // 2] = is_first[1, -2:] = True
    state = tf.nest.map_structure(
        lambda x: (tf.constant(random.randn(*x.shape), x.dtype) if x.dtype.is_floating
                   else tf.constant(random.randint(local_length, size=x.shape), x.dtype)),
        core.initial_state(_B))
    core(inputs, is_first, state)
    for variable in core.variables:
      variable.assign_add(0.3 * random.randn(*variable.shape))
    outputs, final = core(inputs, is_first, state)
    for i in range(_B):
      expected, after = _core(
          inputs[i], is_first[i], [x[i, 0].numpy() for x in state], _variables(core),
          local_length)
      self.assertAllClose(outputs[i], expected, atol=1e-4, rtol=1e-4)
      for actual, x in zip(final, after, strict=True):
        self.assertAllClose(actual[i, 0], x, atol=1e-4, rtol=1e-4)

  @parameterized.parameters(1, 4, 11)
  @pytest.mark.medium
  def test_gradient_of_the_scan(self, length):
    random = np.random.RandomState(length)
    def normal(*shape):
      return tf.constant(random.randn(*shape), tf.float32)
    resets = tf.constant(random.rand(_B, length) < 0.2, tf.float32)
    arguments = dict(
        x=normal(_B, length, _E), dt=tf.exp(normal(_B, length, _E)),
        a=-tf.exp(normal(_N, _E)), b=normal(_B, length, _N),
        c=normal(_B, length, _N), hidden=normal(_B, _N, _E))

    def gradients(scan):
      with tf.GradientTape() as tape:
        tape.watch(arguments)
        y, hidden = scan(resets=resets, **arguments)
        loss = tf.reduce_sum(tf.sin(y)) + tf.reduce_sum(tf.sin(hidden))
      return tape.gradient(loss, arguments)

    actual = tf.function(gradients, autograph=False)(mamba.selective_scan)
    self.assertAllClose(actual, gradients(_loop), atol=1e-4, rtol=1e-4)

  @parameterized.parameters(cores.Mamba, cores.MambaDM)
  def test_a_reset_clears_any_state(self, make):
    core = make(1, _D)
    inputs = np.random.RandomState(0).randn(_B, 3, _D).astype(np.float32)
    is_first = np.eye(1, 3, dtype=bool).repeat(_B, axis=0)
    expected, _ = core(inputs, is_first, core.initial_state(_B))
    state = core.initial_state(_B)
    outputs, _ = core(inputs, is_first, state._replace(
        hidden=tf.fill(state.hidden.shape, float('nan'))))
    self.assertAllEqual(outputs, expected)

  def test_initial_values(self):
    core = cores.Mamba()
    core.build(tf.TensorShape([None, None, 128]))
    mixer = _variables(core)['block_0']['mixer']
    logs = np.sort(np.log10(_softplus(mixer['dt_bias'])))
    self.assertAllClose(logs, np.linspace(-3, -1, logs.size), atol=0.3)
    self.assertAllClose(
        np.exp(mixer['a_log']), np.tile(np.arange(1, 17)[:, np.newaxis], [1, 256]))

  @parameterized.parameters(
      (cores.Mamba, None, 248_960), (cores.Mamba, 0, 116_992),
      # The second state space: selection 256 x 40, steps 8 x 256 + 256, A 16 x 256, D.
      (cores.MambaDM, 0, 116_992 + 10_240 + 2_304 + 4_096 + 256))
  def test_number_of_parameters(self, make, mlp_dim, expected):
    core = make(mlp_dim=mlp_dim)
    core.build(tf.TensorShape([None, None, 128]))
    self.assertEqual(
        sum(v.shape.num_elements() for v in core.trainable_variables), expected)


if __name__ == '__main__':
  tf.test.main()
