"""Compares MERLIN with its formulas, evaluated step by step in numpy."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf.cores import merlin

_B, _N, _Z, _R, _L, _H, _D = 2, 3, 4, 2, 2, 5, 6
_TRACE, _USAGE = 0.8, 0.9
_TOLERANCE = dict(atol=1e-5, rtol=1e-5)


def _cosine(x, y):
  return x @ y / np.sqrt((x @ x) * (y @ y)) if np.any(y) else 0.


def _read(memory, key, strength):
  """A read `[W]` and its weights `[N]`, from `[N, W]`, `[W]` and a number."""
  scores = np.exp([strength * _cosine(key, row) for row in memory])
  weights = scores / scores.sum()
  return sum(weight * row for weight, row in zip(weights, memory)), weights


class _Memory:
  """The memory of one row of the batch as a list of what was written when."""

  def __init__(self):
    self.latents = []          # All that were written.
    self.taken = [None] * _N   # The latent that each row was taken for.
    self.usage = np.zeros(_N)

  def write(self, latent, weights):
    """Writes `[Z]` after reads with the weights `[K, N]`."""
    used = np.array([x is not None for x in self.taken])
    self.usage = np.where(used, _USAGE * self.usage + np.sum(weights, axis=0), 0)
    row = int(np.argmin(self.usage)) if used.all() else int(np.argmin(used))
    self.taken[row], self.usage[row] = len(self.latents), 1.
    self.latents.append(latent)

  def matrix(self):
    rows = np.zeros([_N, 2 * _Z])
    for row, taken in enumerate(self.taken):
      if taken is not None:
        later = self.latents[taken + 1:]
        rows[row] = np.concatenate([self.latents[taken], sum(
            (1 - _TRACE) * _TRACE ** i * z for i, z in enumerate(later)) + np.zeros(_Z)])
    return rows


class MemoryTest(tf.test.TestCase, parameterized.TestCase):

  def test_reads_equal_the_formula(self):
    random = np.random.RandomState(0)
    memory = random.randn(_B, _N, 8).astype(np.float32)
    memory[1, 2] = 0
    keys = random.randn(_B, 4, 8).astype(np.float32)
    strengths = np.exp(random.randn(_B, 4)).astype(np.float32)
    reads, weights = merlin.read(memory, keys, strengths)
    for b, k in np.ndindex(_B, 4):
      expected = _read(memory[b], keys[b, k], strengths[b, k])
      self.assertAllClose(reads[b, k], expected[0], **_TOLERANCE)
      self.assertAllClose(weights[b, k], expected[1], **_TOLERANCE)

  @parameterized.parameters(1, 3, 12)
  def test_writes_equal_the_formula(self, num_writes):
    random = np.random.RandomState(num_writes)
    state = cores.MERLIN(_N, _Z).initial_state(_B)[:3]
    expected = [_Memory() for _ in range(_B)]
    for _ in range(num_writes):
      latent = random.randn(_B, _Z).astype(np.float32)
      weights = random.dirichlet(np.full(_N, 0.3), [_B, _R + 1]).astype(np.float32)
      state = merlin.write(*state, latent, weights, _TRACE, _USAGE)
      for one, *written in zip(expected, latent, weights):
        one.write(*written)
      for b, one in enumerate(expected):
        self.assertAllClose(state[0][b], one.matrix(), **_TOLERANCE)
        self.assertAllClose(
            np.maximum(state[1][b], 0), one.usage, **_TOLERANCE)
    if num_writes > _N:  # The rows were not replaced in turn, and not all at once.
      self.assertNotEqual(*(sorted(one.taken) for one in expected))

  def test_the_least_read_row_is_replaced_and_its_trace_ends(self):
    state = cores.MERLIN(_N, _Z).initial_state(1)[:3]
    for value in range(_N):
      state = merlin.write(
          *state, tf.fill([1, _Z], float(value)), tf.zeros([1, 1, _N]), _TRACE, 1.0)
    weights = tf.constant([[[0.5, 0.1, 0.4]]])
    memory, usage, trace = merlin.write(
        *state, tf.fill([1, _Z], 9.), weights, _TRACE, 1.0)
    self.assertAllClose(memory[0, 1], [9.] * _Z + [0.] * _Z)
    self.assertAllClose(usage[0], [1.5, 1., 1.4])
    self.assertAllClose(
        trace[0], [(1 - _TRACE) * _TRACE ** 3, 1 - _TRACE, (1 - _TRACE) * _TRACE])


def _sigmoid(x):
  return 1 / (1 + np.exp(-x))


def _lstm(core, inputs, state):
  """Outputs `[L H]` and state `[L, 2, H]` of a `DeepLSTM` after one step."""
  outputs, states = [], []
  for layer, (output, cell) in zip(core.layers, state):
    stream = np.concatenate([*outputs[-1:], inputs])
    i, f, g, o = np.split(
        stream @ layer.kernel.numpy() + output @ layer.recurrent_kernel.numpy()
        + layer.bias.numpy(), 4)
    cell = _sigmoid(f) * cell + _sigmoid(i) * np.tanh(g)
    outputs.append(_sigmoid(o) * np.tanh(cell))
    states.append([outputs[-1], cell])
  return np.concatenate(outputs), np.array(states)


def _dense(layer, x):
  return x @ layer.kernel.numpy() + (layer.bias.numpy() if layer.use_bias else 0)


def _unroll(core, inputs, is_first):
  """Outputs, contexts, means and log scales of one row, from `[T, D]` and `[T]`."""
  results = []
  for t, x in enumerate(inputs):
    if is_first[t] or not t:
      memory, outputs = _Memory(), np.zeros(_L * _H)
      reads, policy_read = np.zeros([_R, 2 * _Z]), np.zeros(2 * _Z)
      predictor = policy = np.zeros([_L, 2, _H])
    context = np.concatenate([outputs, reads.reshape(-1)])
    hidden = np.tanh(_dense(core.evidence, x) + _dense(core.context, context))
    mean, log_scale = np.split(
        _dense(core.posterior, np.tanh(_dense(core.hidden, hidden))), 2)
    policy_outputs, policy = _lstm(
        core.policy, np.concatenate([mean, policy_read]), policy)
    outputs, predictor = _lstm(
        core.predictor, np.concatenate([mean, reads.reshape(-1)]), predictor)
    heads = [*_dense(core.keys, outputs).reshape(_R, -1),
             _dense(core.policy_keys, policy_outputs)]
    found = [_read(memory.matrix(), head[:-1], np.log1p(np.exp(head[-1])))
             for head in heads]
    reads = np.array([read for read, _ in found[:-1]])
    policy_read = found[-1][0]
    memory.write(mean, [weights for _, weights in found[:-1]])
    results.append((np.concatenate([mean, policy_outputs, policy_read]),
                    context, mean, log_scale))
  return [np.array(x) for x in zip(*results)]


def _core():
  core = cores.MERLIN(_N, _Z, _R, _L, _H, _TRACE, _USAGE)
  core.build(tf.TensorShape([None, None, _D]))
  random = np.random.RandomState(1)
  for variable in core.trainable_variables:
    variable.assign_add(0.5 * random.randn(*variable.shape))
  return core


def _inputs(length):
  random = np.random.RandomState(2)
  is_first = np.zeros([_B, length], bool)
  is_first[1, length // 3] = True
  return random.randn(_B, length, _D).astype(np.float32), is_first


class CoreTest(tf.test.TestCase):

  @pytest.mark.medium
  def test_agrees_with_the_formulas_also_when_rows_are_replaced(self):
    core, (inputs, is_first) = _core(), _inputs(4 * _N)
    outputs, _, beliefs = core.infer(inputs, is_first, core.initial_state(_B))
    for b in range(_B):
      expected = _unroll(core, inputs[b], is_first[b])
      for actual, one in zip((outputs, *beliefs), expected):
        self.assertAllClose(actual[b], one, atol=1e-4, rtol=1e-4)
    self.assertAllClose(core(inputs, is_first), outputs)

  @pytest.mark.medium
  def test_the_policy_reads_memory_without_writing(self):
    core, (inputs, is_first) = _core(), _inputs(4 * _N)
    outputs, state, beliefs = core.infer(inputs, is_first, core.initial_state(_B))
    for variable in (*core.policy.variables, *core.policy_keys.variables):
      variable.assign(-variable)
    others, other_state, other_beliefs = core.infer(
        inputs, is_first, core.initial_state(_B))
    self.assertNotAllClose(outputs, others)
    self.assertAllEqual(state.memory, other_state.memory)
    self.assertAllEqual(beliefs.context, other_beliefs.context)

  @pytest.mark.long
  def test_keras_trains_it_compiled_by_xla(self):
    core, (inputs, _) = _core(), _inputs(3)
    model = tf.keras.Sequential([core, tf.keras.layers.Dense(1)])
    model.compile('sgd', 'mse', jit_compile=True)
    history = model.fit(inputs, np.ones([_B, 3, 1]), verbose=0)  # Its batch is unknown.
    self.assertGreater(history.history['loss'][0], 0)

  @pytest.mark.medium
  def test_the_policys_losses_end_at_the_latents_of_a_predictor(self):
    core, (inputs, is_first) = _core(), _inputs(8)
    state = core.initial_state(_B)
    own = [*core.policy.trainable_variables, *core.policy_keys.trainable_variables]
    others = [x for x in core.trainable_variables
              if not any(x is variable for variable in own)]

    def moved(unroll):
      with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.sin(unroll(inputs, is_first, state)[0]))
      gradients = tape.gradient(
          loss, [*own, *others], unconnected_gradients='zero')
      return [bool(tf.reduce_any(x != 0)) for x in gradients]

    self.assertEqual(
        moved(core.infer), [True] * len(own) + [False] * len(others))
    self.assertEqual(moved(core), [True] * (len(own) + len(others)))


if __name__ == '__main__':
  absltest.main()
