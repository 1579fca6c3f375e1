"""MERLIN's memory: a matrix that a predictor writes and reads, and a policy reads.

"Unsupervised Predictive Memory in a Goal-Directed Agent" (Wayne et al., 2018, arXiv
1803.10760). `networks.Predictor` has its losses.
"""

from typing import NamedTuple, Optional, Tuple

import tensorflow as tf

from gtrxl_tf import nests
from gtrxl_tf.cores import core
from gtrxl_tf.cores import recurrent
from gtrxl_tf.settings import config


class MERLINState(NamedTuple):
  """State between steps, for N rows, R + 1 reads, L layers."""
  memory: tf.Tensor     # [B, N, 2 Z]; no gradient flows through this and the next two.
  usage: tf.Tensor      # [B, N]; -1 where a row is empty.
  trace: tf.Tensor      # [B, N], the factor with which a row will add the next latent.
  reads: tf.Tensor      # [B, R + 1, 2 Z], the last ones, the policy's at the end.
  predictor: tf.Tensor  # [B, L, 2, H], the state of the predictor's LSTM.
  policy: tf.Tensor     # [B, L, 2, H], the state of the policy's LSTM.


class Beliefs(NamedTuple):
  """What the core infers at each step of an unroll, for the predictor's losses."""
  context: tf.Tensor    # [B, T, C], from the steps before: the prior's input.
  mean: tf.Tensor       # [B, T, Z], the posterior's means: the latents.
  log_scale: tf.Tensor  # [B, T, Z], logarithms of the posterior's deviations.


def read(memory: tf.Tensor, keys: tf.Tensor, strengths: tf.Tensor
         ) -> Tuple[tf.Tensor, tf.Tensor]:
  """Reads by content: the weights of head k are `softmax_n(b_k cos(key_k, row_n))`.

  A row of zeros has the cosine 0.

  Args:
    memory: `[B, N, W]`.
    keys: `[B, K, W]`.
    strengths: b, `[B, K]`, positive.

  Returns:
    The weighted means of rows, `[B, K, W]`, and the weights `[B, K, N]`.
  """
  products = tf.matmul(
      tf.math.l2_normalize(keys, axis=-1), memory, transpose_b=True)
  # Cheaper than scaling rows to length 1: memory is larger than all else in a step.
  lengths = tf.sqrt(tf.reduce_sum(tf.square(memory), axis=-1) + 1e-12)
  cosines = products / tf.expand_dims(lengths, axis=1)
  weights = tf.nn.softmax(tf.expand_dims(strengths, -1) * cosines)
  return tf.matmul(weights, memory), weights


def write(memory: tf.Tensor, usage: tf.Tensor, trace: tf.Tensor, latent: tf.Tensor,
          weights: tf.Tensor, trace_decay: float, usage_decay: float
          ) -> Tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
  """Writes a latent into the first half of one row and the second half of others.

  The row is the first empty one, or else the one of least usage, which is cleared:

    row_n = [z_n, (1 - trace_decay) sum_{i >= 1} trace_decay^(i-1) z_{n+i}]

  where z_n is the latent that the row was taken for, and the sum runs over the latents
  written later, as long as the row stays. Usage is a sum of the weights of reads that
  decays at every step; a row that is written begins with 1.

  Args:
    memory: `[B, N, 2 Z]`.
    usage: `[B, N]`, see `MERLINState`.
    trace: `[B, N]`, see `MERLINState`.
    latent: `[B, Z]`.
    weights: `[B, K, N]`, of those reads since the last write that count as usage.
    trace_decay: in [0, 1].
    usage_decay: in [0, 1].

  Returns:
    The new memory, usage and trace.
  """
  usage = tf.where(
      usage < 0, usage, usage_decay * usage + tf.reduce_sum(weights, axis=1))
  written = tf.one_hot(
      tf.argmin(usage, axis=1, output_type=tf.int32), usage.shape[1])
  kept = 1 - written
  trace = kept * trace
  rows = tf.expand_dims(tf.stack([written, trace], axis=-1), -1)  # [B, N, 2, 1]
  added = rows * tf.reshape(latent, [-1, 1, 1, latent.shape[1]])
  added = tf.reshape(added, [-1, memory.shape[1], memory.shape[2]])
  return (tf.expand_dims(kept, -1) * memory + added, kept * usage + written,
          trace_decay * trace + (1 - trace_decay) * written)


@config.configurable
class MERLIN(core.Core):
  """MERLIN's memory-based predictor and the recurrent part of its policy.

  At each step, with the input e_t and memory M:

    z_t     = posterior mean, of e_t, h_{t-1} and m_{t-1}
    h'_t    = LSTM of z_t and m'_{t-1}: the policy's
    h_t     = LSTM of z_t and m_{t-1}: the predictor's
    m'_t    = one read of M with a key computed from h'_t
    m_t     = R reads of M with keys computed from h_t
    M       = M with z_t written
    outputs = z_t, h'_t and m'_t

  The policy only reads, and its reads do not count as usage. Written latents are
  constants: no gradient flows through memory. The record of a step is the complete
  state, of more than `2 N Z` floats (1.6 MB with the defaults). Replay keeps one before
  each unroll, and an actor one for each step of an unroll and each environment.

  `networks.Predictor` adds the predictor's losses; the policy's losses then change
  nothing before z_t. Without it the policy's losses train all of the core, which is
  the paper's baseline RL-MEM.

    >>> merlin = MERLIN(num_rows=4, latent_dim=3, num_layers=1, hidden_dim=8)
    >>> inputs, is_first = tf.zeros([1, 5, 8]), tf.zeros([1, 5], tf.bool)
    >>> outputs, state = merlin(inputs, is_first, merlin.initial_state(1))
    >>> outputs.shape, state.memory.shape
    (TensorShape([1, 5, 17]), TensorShape([1, 4, 6]))

  We did not have the paper's text. These parts are the paper's, as its public
  implementations (in ALF, and yosider's) confirm: cosines, softplus strengths and a
  softmax; three read heads for the predictor and one for the policy; a posterior with
  two tanh layers of 2 Z; writes after reads, to rows in order as long as there are
  empty ones, then to the one of least usage. Only yosider's has code for rows of two
  halves, the second with the trace of later latents; this code is switched off there.

  These are choices of this library:

  - LSTMs have two layers, whose outputs are concatenated.
  - Latents in memory and policy are means of the posterior instead of samples, so that
    acting and learning compute the same. Decoders see samples.
  - The posterior is not computed as the prior plus a difference, and the action enters
    the prior (see `networks.Predictor`) instead of the predictor's LSTM: an unroll then
    computes priors for all steps at once.
  - Usage decays, as in "One-shot Learning with Memory-Augmented Neural Networks"
    (Santoro et al., 2016). Without decay a full memory would replace only its newest
    row, the one of least usage.
  - Memory, reads and writes are float32 in any precision policy.

  Args:
    num_rows: N.
    latent_dim: Z.
    num_reads: R, read heads of the predictor.
    num_layers: L, the layers of each LSTM.
    hidden_dim: H, the units of each layer.
    trace_decay: gamma of the trace in the second half of rows.
    usage_decay: factor of usage at each step.

  The default sizes are those of the authors' next agent, RMA ("Optimizing Agent
  Behavior over Long Time Scales by Transporting Value", Hung et al., 2019), whose code
  is public. The default of `trace_decay` is RMA's discount. The paper's own values
  could not be checked. The default of `usage_decay` is from Santoro et al. (2016).
  """

  def __init__(self, num_rows: config.PositiveInt = 1000,
               latent_dim: config.PositiveInt = 200,
               num_reads: config.PositiveInt = 3,
               num_layers: config.NumLayers = 2,
               hidden_dim: config.PositiveInt = 256,
               trace_decay: config.UnitInterval = 0.96,
               usage_decay: config.UnitInterval = 0.99,
               name: Optional[str] = None):
    super().__init__(name=name)
    self.latent_dim = latent_dim
    self.context_dim = num_layers * hidden_dim + num_reads * 2 * latent_dim
    self._num_rows = num_rows
    self._num_reads = num_reads
    self._decays = trace_decay, usage_decay
    self.predictor, self.policy = (
        recurrent.DeepLSTM(num_layers, hidden_dim, 'concat', name=name)
        for name in ('predictor', 'policy'))
    width = 2 * latent_dim
    dense = tf.keras.layers.Dense
    self.evidence = dense(width, name='evidence')
    self.context = dense(width, use_bias=False, name='context')
    self.hidden = dense(width, 'tanh', name='hidden')
    self.posterior = dense(width, name='posterior')
    self.keys = dense(num_reads * (width + 1), name='keys')
    self.policy_keys = dense(width + 1, name='policy_keys')

  def build(self, input_shape) -> None:
    width, outputs = 2 * self.latent_dim, self.predictor.output_size
    for layer, inputs in (
        (self.evidence, input_shape[-1]), (self.context, self.context_dim),
        (self.hidden, width), (self.posterior, width),
        (self.predictor, self.latent_dim + self._num_reads * width),
        (self.policy, self.latent_dim + width),
        (self.keys, outputs), (self.policy_keys, outputs)):
      core.build_layer(layer, tf.TensorShape([None, None, inputs]))
    super().build(input_shape)

  @property
  def output_size(self) -> int:
    return 3 * self.latent_dim + self.policy.output_size

  def initial_state(self, batch_size) -> MERLINState:
    rows, width = (batch_size, self._num_rows), 2 * self.latent_dim
    return MERLINState(
        memory=tf.zeros((*rows, width)), usage=-tf.ones(rows), trace=tf.zeros(rows),
        reads=tf.zeros((batch_size, self._num_reads + 1, width)),
        predictor=self.predictor.initial_state(batch_size),
        policy=self.policy.initial_state(batch_size))

  def infer(self, inputs: tf.Tensor, is_first: tf.Tensor, state: MERLINState
            ) -> Tuple[tf.Tensor, MERLINState, Beliefs]:
    """Unrolls as a call does, for training with the predictor's losses.

    No gradient flows from the outputs into what the predictor computes.

    Returns:
      Outputs, the state after the last step, and beliefs.
    """
    state = self._fitted_state(state, inputs.shape[0])
    return self._infer(tf.cast(inputs, self.compute_dtype), tf.cast(is_first, tf.bool),
                       state, predicts=True)

  def _unroll(self, inputs, is_first, state, training=None
              ) -> Tuple[tf.Tensor, MERLINState]:
    outputs, state, _ = self._infer(inputs, is_first, state, predicts=False)
    return outputs, state

  def _infer(self, inputs, is_first, state, predicts):
    # Not tf.scan, which would keep the memory matrix of every step as an output.
    length, batch_size = inputs.shape[1], inputs.shape[0]
    steps = [core.swap_time_and_batch(x) for x in (self.evidence(inputs), is_first)]
    steps = [tf.TensorArray(x.dtype, length, element_shape=x.shape[1:]).unstack(x)
             for x in steps]
    sizes = [self.output_size, self.context_dim, self.latent_dim, self.latent_dim]
    results = [tf.TensorArray(tf.float32, length, element_shape=[batch_size, size])
               for size in sizes]
    state = state._replace(
        **{name: tf.stop_gradient(getattr(state, name)) for name in state._fields[:3]})

    def body(t, state, results):
      outputs, state, beliefs = self._advance(
          *(x.read(t) for x in steps), state, predicts)
      return t + 1, state, [
          array.write(t, x) for array, x in zip(results, (outputs, *beliefs))]

    _, state, results = tf.while_loop(
        lambda t, *_: t < length, body, (0, state, results), parallel_iterations=1,
        maximum_iterations=length)
    outputs, *beliefs = (core.swap_time_and_batch(x.stack()) for x in results)
    return tf.cast(outputs, inputs.dtype), state, Beliefs(*beliefs)

  def _step(self, inputs, is_first, cache):
    outputs, state, _ = self._advance(self.evidence(inputs), is_first, cache, False)
    return tf.cast(outputs, inputs.dtype), state

  def _advance(self, evidence: tf.Tensor, is_first: tf.Tensor, state: MERLINState,
               predicts: bool) -> Tuple[tf.Tensor, MERLINState, Beliefs]:
    """Takes a step; all results are float32.

    Args:
      evidence: the input's share of the posterior's first layer, `[B, 2 Z]`.
      is_first: `[B]`.
      state: the state before the step.
      predicts: whether the latent is a constant for the policy.
    """
    state = nests.where(
        is_first, self.initial_state(tf.shape(is_first)[0]), state)
    no_first = tf.zeros_like(is_first)
    reads, policy_read = tf.split(state.reads, [self._num_reads, 1], axis=1)
    reads, policy_read = _flat(reads), _flat(policy_read)
    context = tf.concat([_flat(tf.unstack(state.predictor, axis=2)[0]), reads], -1)
    belief = tf.tanh(evidence + self.context(context))
    belief = tf.cast(self.posterior(self.hidden(belief)), tf.float32)
    latent, log_scale = tf.split(belief, 2, axis=-1)

    seen = tf.stop_gradient(latent) if predicts else latent
    policy_outputs, policy = self.policy.step(
        tf.concat([seen, policy_read], axis=-1), no_first, state.policy)
    outputs, predictor = self.predictor.step(
        tf.concat([latent, reads], axis=-1), no_first, state.predictor)
    reads, weights = self._read(
        tf.stop_gradient(state.memory), self.keys(outputs),
        self.policy_keys(policy_outputs))
    memory, usage, trace = (tf.stop_gradient(x) for x in write(
        state.memory, state.usage, state.trace, latent, weights[:, :-1],
        *self._decays))
    features = tf.concat(
        [seen, tf.cast(policy_outputs, tf.float32),
         tf.unstack(reads, axis=1)[-1]], axis=-1)
    return (features, MERLINState(memory, usage, trace, reads, predictor, policy),
            Beliefs(context, latent, log_scale))

  def _read(self, memory, keys, policy_keys):
    """Calls `read` with the key layers' outputs, each `[B, K (2 Z + 1)]`."""
    width = 2 * self.latent_dim
    heads = [tf.reshape(tf.cast(x, tf.float32), [-1, x.shape[-1] // (width + 1),
                                                 width + 1])
             for x in (keys, policy_keys)]
    keys, strengths = tf.split(tf.concat(heads, axis=1), [width, 1], axis=-1)
    return read(memory, keys, tf.nn.softplus(tf.squeeze(strengths, -1)))


def _flat(x: tf.Tensor) -> tf.Tensor:
  """Reshapes `[B, K, W]` to `[B, K W]`."""
  return tf.reshape(x, [-1, x.shape[1] * x.shape[2]])
