"""Tests of action_space.py."""

from absl.testing import absltest
from absl.testing import parameterized
from dm_env import specs
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
import tree

from gtrxl_tf import config
from gtrxl_tf import testing
from gtrxl_tf.networks import action_space

_NUM = 20_000
_SPECS = (
    ('discrete', testing.DISCRETE), ('continuous', testing.CONTINUOUS),
    ('hybrid', testing.HYBRID),
    ('nested', {'a': [specs.DiscreteArray(2), specs.DiscreteArray(4)],
                'b': specs.BoundedArray((2, 3), np.float64, -1, 1),
                'c': specs.Array((), np.float32)}))


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
  def test_samples_are_drawn_from_the_policy(self, spec):
    # Monte Carlo: the mean of -log pi over samples is the entropy.
    space, policy = _space_and_policy(spec)
    for jit_compile in (False, True):
      sample = tf.function(space.sample, jit_compile=jit_compile)
      one, again, other = (
          sample(policy, tf.constant(s)) for s in ([0, 1], [0, 1], [5, 1]))
      tree.map_structure(self.assertAllEqual, one, again)
      self.assertNotAllEqual(tree.flatten(one)[-1], tree.flatten(other)[-1])
      log_prob = space.log_prob(policy, one)
      self.assertAllClose(
          -tf.reduce_mean(log_prob), space.entropy(policy)[0],
          atol=5 * np.std(log_prob) / np.sqrt(_NUM))

  def test_discrete_parts_are_drawn_independently(self):
    spec = [specs.DiscreteArray(2), specs.DiscreteArray(2)]
    space = action_space.ActionSpace(spec)
    one, other = space.sample(space.policy(tf.zeros([_NUM, 4])), [3, 4])
    self.assertAllClose(np.mean(one == other), 0.5, atol=0.02)

  def test_log_prob_is_a_sum_over_parts(self):
    space, policy = _space_and_policy(testing.HYBRID, num=5)
    sample = space.sample(policy, [0, 1])
    expected = (
        tfp.distributions.Categorical(policy.logits).log_prob(sample['grip'])
        + tfp.distributions.MultivariateNormalDiag(
            policy.mean, policy.scale).log_prob(sample['move']))
    self.assertAllClose(space.log_prob(policy, sample), expected)

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

  @parameterized.named_parameters(*_SPECS)
  def test_kl_of_equal_policies_is_zero(self, spec):
    space, policy = _space_and_policy(spec, num=2)
    divergences = space.kl(policy, policy)
    self.assertEqual(tuple(divergences), space.constraints)
    for kl in divergences.values():
      self.assertAllClose(kl, [0, 0], atol=1e-7)

  def test_kl_of_several_discrete_actions_is_their_sum(self):
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

  def test_the_scale_is_positive_for_any_outputs(self):
    space = action_space.ActionSpace(testing.CONTINUOUS)
    policy = space.policy(tf.constant([[0., 0., -1e9, 1e9]]))
    self.assertAllGreater(policy.scale, 0)
    self.assertAllEqual(tf.math.is_finite(policy.scale), [[True, True]])

  def test_refuses_other_specs(self):
    with self.assertRaisesRegex(
        config.ConfigError, r"action_spec\['keys'\] = .*expected a DiscreteArray or"):
      action_space.ActionSpace({'keys': specs.BoundedArray((3,), np.int32, 0, 1)})


if __name__ == '__main__':
  absltest.main()
