"""Compares V-MPO's loss with a reference, and tests its properties."""

import pathlib

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf.losses import distributions
from gtrxl_tf.losses import vmpo

GOLDEN = pathlib.Path(__file__).parents[2] / 'testdata' / 'golden' / 'vmpo.npz'
SCALARS = ('total_loss', 'policy_loss', 'temperature_loss', 'kl_loss', 'alpha_loss')
EPSILON_TEMPERATURE = 0.1
EPSILONS = (0.02, 1e-4)


def _batch(batch_size=6, num_steps=8, seed=0, **replaced):
  """Steps under two KL constraints, as named inputs of `_evaluate`."""
  random = np.random.RandomState(seed)
  shape = [batch_size, num_steps]
  inputs = dict(
      log_probs=-random.gamma(2., size=shape),
      advantages=random.randn(*shape),
      temperature=np.array(0.7),
      kl_mean=random.gamma(1., 0.03, size=shape),
      kl_scale=random.gamma(1., 2e-4, size=shape),
      alpha_mean=np.array(1.3),
      alpha_scale=np.array(0.8))
  inputs = {k: v.astype(np.float32) for k, v in inputs.items()}
  return {**inputs, **replaced}


def _evaluate(inputs, valid_mask=None, top_fraction=0.5):
  """The loss of a `_batch`, and the gradient of total_loss in each of its inputs."""
  inputs = {k: tf.convert_to_tensor(v) for k, v in inputs.items()}
  with tf.GradientTape() as tape:
    tape.watch(inputs)
    loss = vmpo.vmpo_loss(
        inputs['log_probs'], inputs['advantages'], inputs['temperature'],
        EPSILON_TEMPERATURE,
        [(inputs['kl_mean'], inputs['alpha_mean'], EPSILONS[0]),
         (inputs['kl_scale'], inputs['alpha_scale'], EPSILONS[1])],
        valid_mask, top_fraction)
  gradients = tape.gradient(
      loss.total_loss, inputs, unconnected_gradients=tf.UnconnectedGradients.ZERO)
  return loss, gradients


class GoldenTest(tf.test.TestCase, parameterized.TestCase):
  """Agreement with rlax, whose batches are [T, B] instead of [B, T]."""

  def _check(self, case, golden, loss, gradients):
    for name in SCALARS:
      self.assertAllClose(
          getattr(loss, name), golden[f'{case}/{name}'], rtol=1e-5, atol=1e-6)
    self.assertAllClose(
        loss.weights, golden[f'{case}/weights'].swapaxes(0, 1), rtol=1e-5, atol=1e-7)
    for name, gradient in gradients.items():
      want = golden[f'{case}/grad_{name}']
      want = want.swapaxes(0, 1) if want.ndim else want
      self.assertAllClose(gradient, want, rtol=1e-4, atol=1e-6)

  @parameterized.parameters(False, True)
  def test_discrete(self, jit_compile):
    golden = np.load(GOLDEN)
    fixed = {k: golden[f'discrete/{k}'].swapaxes(0, 1)
             for k in ('target_logits', 'actions', 'advantages')}
    trained = {'online_logits': golden['discrete/online_logits'].swapaxes(0, 1),
               'temperature': golden['discrete/temperature'],
               'alpha': golden['discrete/alpha']}

    @tf.function(autograph=False, jit_compile=jit_compile)
    def evaluate(trained):
      with tf.GradientTape() as tape:
        tape.watch(trained)
        logits = trained['online_logits']
        loss = vmpo.vmpo_loss(
            distributions.categorical_log_prob(logits, fixed['actions']),
            fixed['advantages'], trained['temperature'],
            golden['discrete/epsilon_temperature'],
            [(distributions.categorical_kl(fixed['target_logits'], logits),
              trained['alpha'], golden['discrete/epsilon_alpha'])])
      return loss, tape.gradient(loss.total_loss, trained)

    self._check('discrete', golden, *evaluate(
        tf.nest.map_structure(tf.constant, trained)))

  @parameterized.parameters(False, True)
  def test_continuous(self, jit_compile):
    golden = np.load(GOLDEN)
    fixed = {k: golden[f'continuous/{k}'].swapaxes(0, 1)
             for k in ('target_mean', 'target_scale', 'actions', 'advantages')}
    trained = {k: golden[f'continuous/{k}'].swapaxes(0, 1)
               for k in ('online_mean', 'online_scale')}
    trained |= {k: golden[f'continuous/{k}']
                for k in ('temperature', 'alpha_mean', 'alpha_scale')}

    @tf.function(autograph=False, jit_compile=jit_compile)
    def evaluate(trained):
      with tf.GradientTape() as tape:
        tape.watch(trained)
        mean, scale = trained['online_mean'], trained['online_scale']
        kl_mean = distributions.gaussian_kl_mean(
            fixed['target_mean'], fixed['target_scale'], mean)
        kl_scale = distributions.gaussian_kl_scale(fixed['target_scale'], scale)
        loss = vmpo.vmpo_loss(
            distributions.gaussian_log_prob(mean, scale, fixed['actions']),
            fixed['advantages'], trained['temperature'],
            golden['continuous/epsilon_temperature'],
            [(kl_mean, trained['alpha_mean'],
              golden['continuous/epsilon_alpha_mean']),
             (kl_scale, trained['alpha_scale'],
              golden['continuous/epsilon_alpha_scale'])])
      return loss, tape.gradient(loss.total_loss, trained)

    self._check('continuous', golden, *evaluate(
        tf.nest.map_structure(tf.constant, trained)))


class EStepTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.parameters(0.1, 0.5, 0.77, 1.)
  def test_weights_are_a_softmax_over_the_top_of_the_valid_steps(self, fraction):
    batch = _batch()
    valid = np.random.RandomState(1).rand(6, 8) < 0.7
    loss, _ = _evaluate(batch, valid, fraction)
    ranked = np.sort(batch['advantages'][valid])[::-1]
    top = valid & (batch['advantages'] >= ranked[int(fraction * valid.sum()) - 1])
    want = np.where(top, np.exp(batch['advantages'] / batch['temperature']), 0)
    self.assertAllClose(loss.weights, want / want.sum())
    self.assertAllClose(tf.reduce_sum(loss.weights), 1)

  def test_the_number_of_the_top_is_not_rounded_down_twice(self):
    loss, _ = _evaluate(_batch(20, 19), top_fraction=0.65)
    self.assertEqual(np.sum(loss.weights > 0), 247)  # 0.65 x 380.

  def test_ties_with_the_last_of_the_top_are_kept(self):
    batch = _batch(1, 6, advantages=np.float32([[3, 2, 1, 1, 1, 0]]))
    loss, gradients = _evaluate(batch)
    self.assertAllEqual(loss.weights[0] > 0, [1, 1, 1, 1, 1, 0])
    # The temperature loss is over the same five steps.
    x = np.array([3, 2, 1, 1, 1]) / 0.7
    psi = np.exp(x) / np.exp(x).sum()
    self.assertAllClose(
        loss.temperature_loss, 0.7 * (EPSILON_TEMPERATURE + np.log(np.exp(x).mean())))
    self.assertAllClose(
        gradients['temperature'], EPSILON_TEMPERATURE - (psi * np.log(5 * psi)).sum())

  def test_equal_advantages_have_equal_weights(self):
    loss, gradients = _evaluate(_batch(2, 3, advantages=np.zeros([2, 3], np.float32)))
    self.assertAllClose(loss.weights, np.full([2, 3], 1 / 6))
    self.assertAllClose(gradients['temperature'], EPSILON_TEMPERATURE)

  def test_one_valid_step_takes_all_the_weight(self):
    valid = np.zeros([6, 8], bool)
    valid[4, 2] = True
    loss, _ = _evaluate(_batch(), valid)
    self.assertAllEqual(loss.weights, valid.astype(np.float32))

  @parameterized.parameters(1e-8, 1e-3, 1e6)
  def test_extreme_temperatures_stay_finite(self, temperature):
    loss, gradients = _evaluate(_batch(temperature=np.float32(temperature)))
    self.assertAllEqual(tf.math.is_finite(loss.total_loss), True)
    self.assertAllClose(tf.reduce_sum(loss.weights), 1)
    for gradient in gradients.values():
      self.assertAllEqual(tf.math.is_finite(gradient), tf.ones_like(gradient, tf.bool))

  @parameterized.parameters(False, True)
  def test_a_nan_among_valid_advantages_appears_in_the_loss(self, jit_compile):
    evaluate = tf.function(_evaluate, autograph=False, jit_compile=jit_compile)
    batch = _batch()
    batch['advantages'][2, 3] = np.nan
    loss, _ = evaluate(tf.nest.map_structure(tf.constant, batch))
    self.assertTrue(np.isnan(loss.total_loss))


class GradientsTest(tf.test.TestCase, parameterized.TestCase):

  def test_variables_are_read_once_and_before_their_gradients(self):
    variables = [tf.Variable(0.7), tf.Variable(3.)]

    @tf.function(autograph=False)
    def evaluate():
      batch = _batch()
      with tf.GradientTape() as tape:
        loss = vmpo.vmpo_loss(
            batch['log_probs'], batch['advantages'], variables[0],
            EPSILON_TEMPERATURE, [(batch['kl_mean'], variables[1], EPSILONS[0])])
      return tape.gradient(loss.total_loss, variables)

    def ancestors(operation):
      parents = {x.op for x in operation.inputs}
      return parents.union(*map(ancestors, parents))

    graph = evaluate.get_concrete_function()
    reads = {op for op in graph.graph.get_operations() if op.type == 'ReadVariableOp'}
    self.assertLen(reads, 2)
    self.assertLen({frozenset(reads & ancestors(gradient.op))
                    for gradient in graph.outputs} - {frozenset()}, 2)

  def test_advantages_get_none(self):
    _, gradients = _evaluate(_batch())
    self.assertAllEqual(gradients['advantages'], np.zeros([6, 8]))

  def test_without_constraints_only_policy_and_temperature_remain(self):
    batch = _batch()
    loss = vmpo.vmpo_loss(
        batch['log_probs'], batch['advantages'], batch['temperature'],
        EPSILON_TEMPERATURE, [])
    self.assertAllClose(loss.total_loss, loss.policy_loss + loss.temperature_loss)

  @parameterized.parameters(False, True)
  @pytest.mark.medium
  def test_compiled_equals_not_compiled(self, masked):
    valid = np.random.RandomState(1).rand(6, 8) < 0.6 if masked else None
    compiled = tf.function(_evaluate, autograph=False, jit_compile=True)
    got = compiled(tf.nest.map_structure(tf.constant, _batch()), valid)
    tf.nest.map_structure(self.assertAllClose, got, _evaluate(_batch(), valid))

  @parameterized.parameters(tf.bfloat16, tf.float16)
  def test_half_precision_is_computed_in_float32(self, dtype):
    half = {k: tf.cast(v, dtype) for k, v in _batch().items()}
    loss, _ = _evaluate(half)
    want, _ = _evaluate({k: tf.cast(v, tf.float32) for k, v in half.items()})
    for got, exact in zip(loss, want):
      self.assertEqual(got.dtype, tf.float32)
      self.assertAllEqual(got, exact)


# The trained parts of each kind of policy; each part has its own KL constraint.
PARTS = {'discrete': ('logits',), 'continuous': ('mean', 'scale'),
         'hybrid': ('mean', 'scale', 'logits')}
ALPHAS = {'mean': 1.3, 'scale': 0.8, 'logits': 5.}
BOUNDS = {'mean': 0.007, 'scale': 1e-4, 'logits': 0.02}


def _policy_batch(batch_size=6, num_steps=8, num_dimensions=3, num_choices=5):
  """Steps of a policy with all parts, as inputs of `_evaluate_policy`."""
  random = np.random.RandomState(0)
  shape = [batch_size, num_steps]
  target = {'mean': random.randn(*shape, num_dimensions),
            'scale': random.gamma(4., 0.2, size=[*shape, num_dimensions]),
            'logits': random.randn(*shape, num_choices)}
  online = {'mean': target['mean'] + 0.1 * random.randn(*shape, num_dimensions),
            'scale': target['scale'] * random.uniform(
                0.9, 1.1, size=[*shape, num_dimensions]),
            'logits': target['logits'] + 0.3 * random.randn(*shape, num_choices)}
  return tf.nest.map_structure(
      lambda x: x.astype(np.float32 if x.dtype.kind == 'f' else np.int32),
      dict(online=online, target=target, advantages=random.randn(*shape),
           motion=random.randn(*shape, num_dimensions),
           choice=random.randint(num_choices, size=shape)))


def _evaluate_policy(kind, batch, valid_mask=None):
  """The loss of a kind of policy, its gradients, and the divergence of each part."""
  trained = {k: tf.convert_to_tensor(batch['online'][k]) for k in PARTS[kind]}
  trained |= {f'alpha_{k}': tf.constant(ALPHAS[k]) for k in PARTS[kind]}
  trained['temperature'] = tf.constant(0.7)
  target = batch['target']
  with tf.GradientTape() as tape:
    tape.watch(trained)
    log_probs, kls = 0., {}
    if 'mean' in trained:
      log_probs += distributions.gaussian_log_prob(
          trained['mean'], trained['scale'], batch['motion'])
      kls['mean'] = distributions.gaussian_kl_mean(
          target['mean'], target['scale'], trained['mean'])
      kls['scale'] = distributions.gaussian_kl_scale(target['scale'], trained['scale'])
    if 'logits' in trained:
      log_probs += distributions.categorical_log_prob(
          trained['logits'], batch['choice'])
      kls['logits'] = distributions.categorical_kl(target['logits'], trained['logits'])
    loss = vmpo.vmpo_loss(
        log_probs, batch['advantages'], trained['temperature'], EPSILON_TEMPERATURE,
        [(kl, trained[f'alpha_{k}'], BOUNDS[k]) for k, kl in kls.items()], valid_mask)
  return loss, tape.gradient(loss.total_loss, trained), kls


class PoliciesTest(tf.test.TestCase, parameterized.TestCase):
  """One, two and three constraints: discrete, continuous and hybrid policies."""

  @parameterized.parameters(*PARTS)
  def test_policy_does_not_change_when_all_advantages_rise_by_the_same(self, kind):
    batch = _policy_batch()
    loss, gradients, _ = _evaluate_policy(kind, batch)
    risen, risen_gradients, _ = _evaluate_policy(
        kind, {**batch, 'advantages': batch['advantages'] + 100})
    self.assertAllClose(risen.weights, loss.weights, rtol=1e-4)
    self.assertAllClose(risen.temperature_loss - loss.temperature_loss, 100)
    for name, gradient in gradients.items():
      self.assertAllClose(risen_gradients[name], gradient, rtol=1e-3, atol=1e-5)

  @parameterized.parameters(*PARTS)
  def test_nothing_changes_when_the_batch_is_doubled(self, kind):
    batch = _policy_batch()
    loss, gradients, _ = _evaluate_policy(kind, batch)
    doubled_loss, doubled_gradients, _ = _evaluate_policy(
        kind, tf.nest.map_structure(lambda x: np.concatenate([x, x]), batch))
    for name in SCALARS:
      self.assertAllClose(getattr(doubled_loss, name), getattr(loss, name))
    for name, gradient in gradients.items():
      doubled = doubled_gradients[name]
      self.assertAllClose(sum(tf.split(doubled, 2)) if doubled.shape.rank else doubled,
                          gradient)

  @parameterized.product(kind=list(PARTS), masked=[False, True])
  def test_each_alphas_gradient_is_its_bound_minus_its_mean_kl(self, kind, masked):
    valid = np.random.RandomState(1).rand(6, 8) < (0.6 if masked else 2.)
    _, gradients, kls = _evaluate_policy(kind, _policy_batch(), valid)
    self.assertLen(kls, len(PARTS[kind]))
    for part, kl in kls.items():
      self.assertAllClose(gradients[f'alpha_{part}'],
                          BOUNDS[part] - kl.numpy()[valid].mean(), rtol=1e-5, atol=1e-7)

  def test_hybrid_with_a_single_choice_equals_continuous(self):
    batch = _policy_batch(num_choices=1)
    loss, gradients, _ = _evaluate_policy('hybrid', batch)
    want_loss, want_gradients, _ = _evaluate_policy('continuous', batch)
    for name in ('policy_loss', 'temperature_loss', 'kl_loss', 'weights'):
      self.assertAllEqual(getattr(loss, name), getattr(want_loss, name))
    for name, want in want_gradients.items():
      self.assertAllEqual(gradients[name], want)
    # The choice only leaves a satisfied constraint, whose alpha falls to its minimum.
    self.assertAllEqual(gradients['logits'], np.zeros([6, 8, 1]))
    self.assertAllEqual(gradients['alpha_logits'], np.float32(BOUNDS['logits']))
    self.assertAllClose(loss.alpha_loss - want_loss.alpha_loss,
                        ALPHAS['logits'] * BOUNDS['logits'])

  def test_hybrid_with_the_targets_gaussian_equals_discrete(self):
    batch = _policy_batch()
    batch['online'] |= {k: batch['target'][k] for k in ('mean', 'scale')}
    loss, gradients, _ = _evaluate_policy('hybrid', batch)
    want_loss, want_gradients, _ = _evaluate_policy('discrete', batch)
    for name in ('temperature_loss', 'kl_loss', 'weights'):
      self.assertAllEqual(getattr(loss, name), getattr(want_loss, name))
    for name, want in want_gradients.items():
      self.assertAllEqual(gradients[name], want)
    # The Gaussian has no divergence but still learns from the advantages.
    for name in ('mean', 'scale'):
      self.assertAllEqual(gradients[f'alpha_{name}'], np.float32(BOUNDS[name]))
    density = distributions.gaussian_log_prob(
        batch['online']['mean'], batch['online']['scale'], batch['motion'])
    self.assertAllClose(loss.policy_loss - want_loss.policy_loss,
                        -tf.reduce_sum(loss.weights * density), rtol=1e-5)


class MaskTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.product(
      garbage=[1e30, np.nan, np.inf, -np.inf], jit_compile=[False, True])
  @pytest.mark.medium
  def test_values_at_masked_steps_have_no_influence(self, garbage, jit_compile):
    valid = np.random.RandomState(1).rand(6, 8) < 0.6
    evaluate = tf.function(_evaluate, autograph=False, jit_compile=jit_compile)
    batch = tf.nest.map_structure(tf.constant, _batch())
    spoilt = {k: tf.where(valid, v, garbage) if v.shape.rank else v
              for k, v in batch.items()}
    want, got = evaluate(batch, valid), evaluate(spoilt, valid)
    tf.nest.map_structure(self.assertAllEqual, got, want)
    for name in ('log_probs', 'kl_mean', 'kl_scale'):
      self.assertAllEqual(got[1][name][~valid], np.zeros((~valid).sum()))

  def test_masked_steps_equal_absent_steps(self):
    batch = _batch()
    valid = np.ones([6, 8], bool)
    valid[:, 5:] = False
    loss, gradients = _evaluate(batch, valid)
    short, short_gradients = _evaluate(
        {k: v[:, :5] if v.ndim else v for k, v in batch.items()})
    for name in SCALARS:
      self.assertAllClose(getattr(loss, name), getattr(short, name))
    self.assertAllClose(loss.weights[:, :5], short.weights)
    self.assertAllClose(gradients['kl_mean'][:, :5], short_gradients['kl_mean'])
    for name in ('temperature', 'alpha_mean', 'alpha_scale'):
      self.assertAllClose(gradients[name], short_gradients[name])

  @parameterized.parameters(False, True)
  def test_no_valid_step_gives_zeros(self, jit_compile):
    evaluate = tf.function(_evaluate, autograph=False, jit_compile=jit_compile)
    batch = {k: tf.fill(v.shape, np.nan) if v.ndim else tf.constant(v)
             for k, v in _batch().items()}
    result = evaluate(batch, np.zeros([6, 8], bool))
    for tensor in tf.nest.flatten(result):
      self.assertAllEqual(tensor, tf.zeros_like(tensor))

  def test_mask_may_be_numbers(self):
    valid = np.random.RandomState(1).rand(6, 8) < 0.6
    tf.nest.map_structure(
        self.assertAllEqual, _evaluate(_batch(), valid.astype(np.float32)),
        _evaluate(_batch(), valid))


class BadInputTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.parameters(0, -0.5, 1.01, float('nan'))
  def test_top_fraction(self, fraction):
    with self.assertRaisesRegex(ValueError, f'^top_fraction: .* got {fraction}$'):
      _evaluate(_batch(), top_fraction=fraction)

  @parameterized.parameters(
      ('advantages', [8, 6], 'advantages'), ('temperature', [3], 'temperature'),
      ('kl_mean', [8, 6], r'kl_constraints\[0\], kl'),
      ('kl_scale', [8, 6], r'kl_constraints\[1\], kl'),
      ('alpha_mean', [3], r'kl_constraints\[0\], alpha'))
  def test_shapes(self, name, shape, argument):
    with self.assertRaisesRegex(ValueError, f'^{argument}: expected the shape '):
      _evaluate(_batch(**{name: np.zeros(shape, np.float32)}))
    with self.assertRaisesRegex(ValueError, '^valid_mask'):
      _evaluate(_batch(), np.ones([6], bool))

  def test_constraints(self):
    batch = _batch()
    with self.assertRaisesRegex(ValueError, r'^kl_constraints\[0\]'):
      vmpo.vmpo_loss(
          batch['log_probs'], batch['advantages'], 1., 0.1, (batch['kl_mean'], 1., 0.1))


if __name__ == '__main__':
  absltest.main()
