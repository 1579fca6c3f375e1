"""Tests of action_space.py."""

from absl.testing import absltest
from absl.testing import parameterized
from dm_env import specs
import numpy as np
import pytest
import tensorflow as tf
import tree

from gtrxl_tf import testing
from gtrxl_tf.networks import action_space
from gtrxl_tf.settings import config

_NUM = 20_000
_SPECS = (
    ('discrete', testing.DISCRETE), ('continuous', testing.CONTINUOUS),
    ('hybrid', testing.HYBRID),
    ('nested', {'a': [specs.DiscreteArray(2), specs.DiscreteArray(4)],
                'b': specs.BoundedArray((2, 3), np.float64, -1, 1),
                'c': specs.Array((), np.float32)}),
    ('integers', specs.BoundedArray((2, 1), np.int64, [[-1], [3]], [[0], [6]])),
    ('bits', specs.BoundedArray((3,), np.int8, 0, 1)),
    ('all', {'a': specs.DiscreteArray(2, np.int64),
             'b': specs.BoundedArray((2,), np.uint8, 1, [2, 4]),
             'c': specs.BoundedArray((), np.int32, -3, 1),
             'd': specs.BoundedArray((2,), np.float32, -1, 1)}))


def _space_and_policy(spec, num=_NUM):
  """A space, and `num` rows of the same policy."""
  space = action_space.ActionSpace(spec)
  outputs = np.random.RandomState(0).randn(1, space.num_outputs).astype(np.float32)
  return space, space.policy(tf.tile(outputs, [num, 1]))


class ActionSpaceTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.named_parameters(*_SPECS)
  def test_samples_fit_the_specs(self, spec):
    space, policy = _space_and_policy(spec, num=3)
    for sample in (space.sample(policy, [0, 1]), space.mode(policy)):
      tree.map_structure(
          lambda s, x: self.assertEqual((x.shape[1:], x.dtype), (s.shape, s.dtype)),
          space.sample_spec, sample)
      for row in range(3):
        tree.map_structure(lambda s, x: s.validate(x[row].numpy()), spec,
                           space.to_environment(sample))

  @parameterized.named_parameters(*_SPECS)
  @pytest.mark.medium
  def test_samples_are_drawn_from_the_policy(self, spec):
    # Monte Carlo: the mean of -log pi over samples is the entropy.
    space, policy = _space_and_policy(spec)
    for jit_compile in (False, True):
      sample = tf.function(space.sample, autograph=False, jit_compile=jit_compile)
      one, again, other = (
          sample(policy, tf.constant(s)) for s in ([0, 1], [0, 1], [5, 1]))
      tree.map_structure(self.assertAllEqual, one, again)
      self.assertNotAllEqual(tree.flatten(one)[-1], tree.flatten(other)[-1])
      log_prob = space.log_prob(policy, one)
      self.assertAllClose(
          -tf.reduce_mean(log_prob), space.entropy(policy)[0],
          atol=5 * np.std(log_prob) / np.sqrt(_NUM))

  def test_numbers_of_earlier_versions(self):
    space, policy = _space_and_policy(
        {'a': [specs.DiscreteArray(2), specs.DiscreteArray(4)],
         'b': specs.BoundedArray((2, 3), np.float64, -1, 1),
         'c': specs.DiscreteArray(7)}, num=1)
    sample = space.sample(policy, [3, 4])
    self.assertAllEqual([*sample['a'], sample['c']], [[0], [3], [1]])
    self.assertAllClose(tf.reshape(sample['b'], [6]), [
        0.05997365, 0.56940186, 0.70709872, -0.57802296, -0.44482183, 1.18032324])
    self.assertAllClose(space.log_prob(policy, sample), [-12.1485977])
    self.assertAllClose(space.entropy(policy), [8.43447876])

  def test_discrete_parts_are_drawn_independently(self):
    spec = [specs.DiscreteArray(2), specs.DiscreteArray(2)]
    space = action_space.ActionSpace(spec)
    one, other = space.sample(space.policy(tf.zeros([_NUM, 4])), [3, 4])
    self.assertAllClose(np.mean(one == other), 0.5, atol=0.02)

  def test_log_prob_is_a_sum_over_parts(self):
    tfp = pytest.importorskip('tensorflow_probability')
    space, policy = _space_and_policy(testing.HYBRID, num=5)
    sample = space.sample(policy, [0, 1])
    expected = (
        tfp.distributions.Categorical(policy.logits).log_prob(sample['grip'])
        + tfp.distributions.MultivariateNormalDiag(
            policy.mean, policy.scale).log_prob(sample['move']))
    self.assertAllClose(space.log_prob(policy, sample), expected)

  def test_samples_of_a_list_may_be_tuples(self):  # As Reverb returns them.
    space = action_space.ActionSpace([specs.DiscreteArray(3), specs.DiscreteArray(2)])
    sample = (tf.constant([1]), tf.constant([0]))
    self.assertAllEqual(
        space.encode(sample, tf.float32), space.encode(list(sample), tf.float32))

  def test_log_prob_is_that_of_the_sample_before_clipping(self):
    space = action_space.ActionSpace(testing.CONTINUOUS)
    policy = action_space.Policy(mean=tf.zeros([1, 2]), scale=tf.ones([1, 2]))
    self.assertAllClose(space.log_prob(policy, tf.constant([[3., 0.]])),
                        [-0.5 * 9 - np.log(2 * np.pi)])

  def test_to_environment_clips_and_rescales(self):
    space = action_space.ActionSpace(testing.CONTINUOUS)  # [-1, 1] and [0, 10].
    self.assertAllClose(
        space.to_environment(tf.constant([[0.5, 0.5], [-7., -7.], [7., 7.]])),
        [[0.5, 7.5], [-1, 0], [1, 10]])

  def test_from_environment_is_the_inverse(self):
    space = action_space.ActionSpace(testing.HYBRID)
    sample = {'grip': tf.constant([1, 0]), 'move': tf.constant([[0.5, -1.], [0., 1.]])}
    back = space.from_environment(space.to_environment(sample))
    tree.map_structure(self.assertAllClose, back, sample)

  def test_squared_error_is_that_of_the_mean(self):
    space = action_space.ActionSpace(testing.CONTINUOUS)
    policy = action_space.Policy(mean=tf.constant([[1., 2.]]), scale=tf.ones([1, 2]))
    self.assertAllClose(space.squared_error(policy, tf.constant([[0., 5.]])), [5.])

  def test_without_bounds_nothing_is_clipped(self):
    space = action_space.ActionSpace(specs.Array((1,), np.float32))
    self.assertAllEqual(space.to_environment(tf.constant([[-70.], [70.]])),
                        [[-70], [70]])

  @parameterized.parameters(np.float32, np.float64)
  def test_bounds_as_large_as_the_dtypes_are_none(self, dtype):
    most = np.finfo(dtype).max
    space = action_space.ActionSpace(
        specs.BoundedArray((3,), dtype, [-most, 2, -most], [most, most, -3]))
    sample = tf.constant([[0.5, 0.5, 0.5], [-70, -70, -70], [70, 70, 70]])
    actions = space.to_environment(sample)
    self.assertAllClose(actions, [[0.5, 2.5, -3], [-70, 2, -73], [70, 72, -3]])
    self.assertAllClose(
        space.from_environment(actions),
        [[0.5, 0.5, 0], [-70, 0, -70], [70, 70, 0]])
    with self.assertRaisesRegex(config.ConfigError, 'Mine.action_spec = .*finite'):
      space.check_bounded('Mine')

  def test_a_dimension_with_equal_bounds_is_constant(self):
    space = action_space.ActionSpace(
        specs.BoundedArray((2,), np.float32, [3, 0], [3, 10]))
    actions = space.to_environment(tf.constant([[-1., -1], [0, 0], [7, 7]]))
    self.assertAllEqual(actions, [[3, 0], [3, 5], [3, 10]])
    samples = space.from_environment(actions)
    self.assertAllEqual(samples, [[0, -1], [0, 0], [0, 1]])
    policy = space.policy(tf.zeros([3, 4]))
    self.assertAllClose(space.squared_error(policy, samples), [0.5, 0, 0.5])
    self.assertAllEqual(tf.math.is_finite(space.log_prob(policy, samples)), [True] * 3)
    space.check_bounded('Mine')

  def test_actions_of_float64_do_not_exceed_its_bounds(self):
    spec = specs.BoundedArray((2,), np.float64, [0.1, -0.3], [0.7, 0.1])
    actions = action_space.ActionSpace(spec).to_environment(
        tf.constant([[-9., -9.], [9., 9.]]))
    for action in actions.numpy():
      spec.validate(action)
    self.assertAllEqual(actions, [spec.minimum, spec.maximum])

  @parameterized.named_parameters(*_SPECS)
  def test_kl_of_equal_policies_is_zero(self, spec):
    space, policy = _space_and_policy(spec, num=2)
    divergences = space.kl(policy, policy)
    self.assertEqual(tuple(divergences), space.constraints)
    for kl in divergences.values():
      self.assertAllClose(kl, [0, 0], atol=1e-7)

  def test_kl_of_several_discrete_actions_is_their_sum(self):
    tfp = pytest.importorskip('tensorflow_probability')
    space = action_space.ActionSpace([specs.DiscreteArray(2), specs.DiscreteArray(3)])
    one, other = (
        space.policy(tf.constant(np.random.RandomState(s).randn(4, 5), tf.float32))
        for s in (0, 1))
    expected = sum(
        tfp.distributions.kl_divergence(tfp.distributions.Categorical(x),
                                        tfp.distributions.Categorical(y))
        for x, y in zip(*(tf.split(policy.logits, [2, 3], axis=-1)
                          for policy in (one, other))))
    self.assertAllClose(space.kl(one, other)['categorical'], expected)

  def test_encode(self):
    space = action_space.ActionSpace(testing.HYBRID)
    features = space.encode(
        {'grip': tf.constant([1]), 'move': tf.constant([[-3., 0.5]])}, tf.float32)
    self.assertAllClose(features, [[0, 1, -1, 0.5]])

  def test_encoded_actions_are_those_that_were_played(self):
    # Bounded, constant, without bounds, and with one bound each.
    space = action_space.ActionSpace(specs.BoundedArray(
        (5,), np.float32, [0, 3, -np.inf, 2, -np.inf], [10, 3, np.inf, np.inf, 2]))
    sample = tf.constant([[-3., -3, -3, -3, -3], [5, 5, 5, 5, 5]])
    features = space.encode(sample, tf.float32)
    self.assertAllEqual(features, [[-1, 0, -3, 0, -3], [1, 0, 5, 5, 0]])
    self.assertAllEqual(
        space.from_environment(space.to_environment(sample)), features)

  def test_integers_are_counted_from_their_minimum(self):
    space = action_space.ActionSpace(
        specs.BoundedArray((2,), np.int16, [5, -300], [7, -299]))
    self.assertEqual((space.num_discrete, space.num_outputs, space.is_discrete),
                     (5, 5, False))
    sample = tf.constant([[2, 0], [0, 1]])
    actions = space.to_environment(sample)
    self.assertEqual(actions.dtype, tf.int16)
    self.assertAllEqual(actions, [[7, -300], [5, -299]])
    self.assertAllEqual(space.from_environment(actions), sample)
    self.assertAllEqual(
        space.encode(sample, tf.float32), [[0, 0, 1, 1, 0], [1, 0, 0, 0, 1]])

  def test_one_integer_with_bounds_is_a_discrete_action(self):
    space = action_space.ActionSpace(specs.BoundedArray((), np.int64, 1, 3))
    self.assertTrue(space.is_discrete)
    policy = action_space.Policy(logits=tf.constant([[0., 0., 9.]]))
    self.assertAllEqual(space.mode(policy), [2])
    self.assertAllEqual(space.to_environment(space.mode(policy)), [3])

  def test_a_nest_of_one_integer_is_no_discrete_action(self):
    space = action_space.ActionSpace({'x': specs.DiscreteArray(3)})
    self.assertFalse(space.is_discrete)
    self.assertEqual(space.num_discrete, 3)

  def test_an_array_of_integers_equals_several_discrete_actions(self):
    array = action_space.ActionSpace(specs.BoundedArray((2,), np.int32, 0, [1, 2]))
    several = action_space.ActionSpace([specs.DiscreteArray(2), specs.DiscreteArray(3)])
    outputs = [tf.constant(np.random.RandomState(s).randn(4, 5), tf.float32)
               for s in (0, 1)]
    (one, other), (theirs, their_other) = (
        [space.policy(x) for x in outputs] for space in (array, several))
    sample, samples = (x.sample(one, [3, 4]) for x in (array, several))
    self.assertAllEqual(sample, tf.stack(samples, axis=-1))
    self.assertAllEqual(array.log_prob(one, sample), several.log_prob(theirs, samples))
    self.assertAllEqual(array.entropy(one), several.entropy(theirs))
    self.assertAllEqual(array.kl(one, other)['categorical'],
                        several.kl(theirs, their_other)['categorical'])
    self.assertAllEqual(array.mode(one), tf.stack(several.mode(theirs), axis=-1))

  @parameterized.parameters(np.int8, np.uint8, np.int16, np.int32, np.int64)
  def test_a_discrete_action_may_have_any_integer_type(self, dtype):
    space = action_space.ActionSpace(specs.DiscreteArray(3, dtype))
    policy = space.policy(tf.constant([[0., 1., 2.]]))
    sample = space.sample(policy, [3, 4])
    self.assertEqual(sample.dtype, space.sample_spec.dtype)
    self.assertAllEqual(space.log_prob(policy, sample).shape, [1])
    action = space.to_environment(space.mode(policy))
    self.assertEqual((action.numpy().dtype, action.numpy().tolist()), (dtype, [2]))
    self.assertAllEqual(space.from_environment(action), space.mode(policy))

  def test_the_scale_is_positive_for_any_outputs(self):
    space = action_space.ActionSpace(testing.CONTINUOUS)
    policy = space.policy(tf.constant([[0., 0., -1e9, 1e9]]))
    self.assertAllGreater(policy.scale, 0)
    self.assertAllEqual(tf.math.is_finite(policy.scale), [[True, True]])

  def test_refuses_other_specs(self):
    for spec in specs.Array((3,), np.int32), specs.StringArray(()):
      with self.assertRaisesRegex(config.ConfigError, r"action_spec\['keys'\] ="):
        action_space.ActionSpace({'keys': spec})
    with self.assertRaisesRegex(
        config.ConfigError, 'action_spec = .*integers of at most 65536 values'):
      action_space.ActionSpace(specs.BoundedArray((3,), np.int32, 0, 2 ** 16))
    with self.assertRaisesRegex(config.ConfigError, 'action_spec = .*an action$'):
      action_space.ActionSpace({})
    for spec in specs.Array((0,), np.float32), specs.BoundedArray((0, 2), np.int32, 0, 1):
      with self.assertRaisesRegex(
          config.ConfigError, r"action_spec\['b'\] = .*at least one number$"):
        action_space.ActionSpace({'a': specs.DiscreteArray(3), 'b': spec})


class MaskTest(tf.test.TestCase, parameterized.TestCase):
  """Tests masks of policies of two integers, with 3 and 2 values, and a float."""

  def setUp(self):
    super().setUp()
    self.space = action_space.ActionSpace(
        {'a': specs.BoundedArray((2,), np.int32, 0, [2, 1]),
         'b': specs.Array((), np.float32)})
    self.outputs = tf.constant(np.random.RandomState(0).randn(1, 7), tf.float32)

  def masked(self, mask, outputs=None):
    policy = self.space.policy(self.outputs if outputs is None else outputs)
    return self.space.masked(policy, tf.constant([mask]))

  @parameterized.parameters(np.int8, bool, np.int64)
  def test_an_action_that_is_not_allowed_has_no_probability(self, dtype):
    policy = self.masked(np.asarray([0, 7, 1, 1, 0]).astype(dtype))
    self.assertAllEqual(tf.nn.softmax(policy.logits[:, :3])[0, 0], 0)
    self.assertAllEqual(tf.nn.softmax(policy.logits[:, 3:])[0], [1, 0])
    self.assertAllEqual(policy.mean, self.space.policy(self.outputs).mean)
    many = tf.nest.map_structure(lambda x: tf.repeat(x, _NUM, axis=0), policy)
    sample = self.space.sample(many, [0, 1])['a'].numpy()
    self.assertEqual(set(sample[:, 0]), {1, 2})
    self.assertEqual(set(sample[:, 1]), {0})

  @parameterized.parameters(tf.float32, tf.bfloat16)
  def test_everything_is_finite_and_as_without_the_action(self, dtype):
    with tf.GradientTape() as tape:
      tape.watch(self.outputs)
      outputs = tf.cast(tf.cast(self.outputs, dtype), tf.float32)
      policy = self.masked([0, 1, 1, 1, 0], outputs)
      other = self.masked([0, 1, 1, 1, 0], outputs + [[5., 1, 0, 1, 0, 0, 0]])
      sample = {'a': tf.constant([[1, 0]]), 'b': tf.constant([0.5])}
      results = [self.space.log_prob(policy, sample), self.space.entropy(policy),
                 self.space.kl(other, policy)['categorical']]
      loss = tf.add_n(results)
    gradient = tape.gradient(loss, self.outputs)
    self.assertAllEqual(tf.math.is_finite(gradient), tf.ones_like(gradient, tf.bool))
    self.assertAllEqual(gradient[0, 0], 0)
    self.assertAllEqual(gradient[0, 3:5], [0, 0])
    fewer = action_space.ActionSpace({'a': specs.DiscreteArray(2),
                                      'b': specs.Array((), np.float32)})
    kept = tf.gather(outputs, [1, 2, 5, 6], axis=1)
    of_fewer = fewer.policy(kept)
    sample['a'] = tf.constant([0])
    self.assertAllClose(results, [
        fewer.log_prob(of_fewer, sample), fewer.entropy(of_fewer),
        fewer.kl(fewer.policy(kept + [[1., 0, 0, 0]]), of_fewer)['categorical']])

  def test_a_mask_that_allows_nothing_allows_everything(self):
    plain = self.space.policy(self.outputs)
    self.assertAllEqual(self.masked([0, 0, 0, 0, 0]).logits, plain.logits)
    self.assertAllEqual(self.masked([0, 0, 0, 1, 0]).logits[:, :4], plain.logits[:, :4])
    self.assertIs(self.space.masked(plain, None), plain)

  @parameterized.parameters(
      (testing.CONTINUOUS, specs.Array((2,), bool), 'no action is discrete'),
      (testing.DISCRETE, specs.Array((2,), bool), r'expected bools or integers \[3\]'),
      (testing.DISCRETE, specs.Array((3,), np.float32), 'expected bools or integers'))
  def test_refuses_masks_that_do_not_fit(self, action_spec, spec, message):
    space = action_space.ActionSpace(action_spec)
    with self.assertRaisesRegex(
        config.ConfigError, r"observation_spec\['action_mask'\] = .*" + message):
      space.check_mask({'action_mask': spec, 'x': specs.Array((), np.float32)})
    space.check_mask({'x': specs.Array((), np.float32)})


if __name__ == '__main__':
  absltest.main()
