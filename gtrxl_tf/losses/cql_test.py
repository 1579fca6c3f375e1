"""Tests of cql.py."""

import math

from absl.testing import absltest
import numpy as np
import tensorflow as tf

from gtrxl_tf.losses import cql


class CQLLossTest(tf.test.TestCase):

  def test_equals_a_hand_computation(self):
    losses = cql.cql_loss(
        q_values=tf.constant([[[math.log(1.0), math.log(3.0)], [2.0, 2.0]]]),
        actions=tf.constant([[1, 0]]), targets=tf.constant([[0.0, 5.0]]), alpha=4.0,
        mask=tf.constant([[True, True]]))
    td_loss = 0.5 * (math.log(3) ** 2 + 3.0 ** 2) / 2
    conservative_loss = ((math.log(4) - math.log(3)) + math.log(2)) / 2
    self.assertAllClose(losses.td_loss, td_loss)
    self.assertAllClose(losses.conservative_loss, conservative_loss)
    self.assertAllClose(losses.total_loss, td_loss + 4 * conservative_loss)

  def test_its_gradient_lowers_the_actions_that_were_not_taken(self):
    q_values = tf.Variable([[1.0, 2.0, 4.0]])
    with tf.GradientTape() as tape:
      loss = cql.cql_loss(q_values, tf.constant([1]), tf.constant([5.0]), 0.5,
                          tf.constant([True])).total_loss
    policy = tf.nn.softmax(q_values)
    self.assertAllClose(tape.gradient(loss, q_values),
                        0.5 * policy + [[0, 2.0 - 5.0 - 0.5, 0]])

  def test_lists_and_arrays_are_taken_like_tensors(self):
    arguments = ([[[1., 2.], [3., 5.]]], [[0, 1]], [[1., 2.]])
    expected = cql.cql_loss(*map(tf.constant, arguments), 1.0, tf.constant([[True, False]]))
    for make in list, np.array:
      found = cql.cql_loss(*map(make, arguments), 1.0, make([[True, False]]))
      self.assertAllClose(found.total_loss, expected.total_loss)
    targets = cql.double_q_targets(
        [[1., 2.]], np.ones([1, 2]), [[[1., 2.], [3., 5.]]], [[[1., 2.], [3., 4.]]], 0.5)
    self.assertAllClose(targets, [[3., 2.]])
    self.assertAllEqual(cql.taken_values(np.eye(2), np.array([1, 1])), [0., 1.])
    self.assertAllEqual(cql.target_mask([[True, True]], [[1., 1.]]), [[True, False]])

  def test_steps_outside_the_mask_do_not_count(self):
    random = np.random.RandomState(0)
    q_values, targets = random.randn(2, 3, 4), random.randn(2, 3)
    actions, mask = random.randint(4, size=(2, 3)), np.array([[1, 1, 0], [1, 0, 0]])

    def compute(q, y):
      return cql.cql_loss(
          tf.constant(q), tf.constant(actions), tf.constant(y), 1.0,
          tf.constant(mask.astype(bool)))

    expected = compute(q_values, targets)
    q_values[mask == 0], targets[mask == 0] = np.nan, np.nan
    self.assertAllEqual(compute(q_values, targets), expected)

  def test_targets_equal_a_hand_computation(self):
    q_values = tf.constant([[[9.0, 9.0], [1.0, 2.0], [4.0, 3.0]]])
    target_q_values = tf.constant([[[9.0, 9.0], [10.0, 20.0], [30.0, 40.0]]])
    rewards = tf.constant([[1.0, 2.0, 3.0]])

    def targets(discounts):
      return cql.double_q_targets(
          rewards, tf.constant([discounts]), q_values, target_q_values, gamma=0.5)

    # The network selects the best action, and the target network evaluates it.
    self.assertAllClose(targets([1.0, 1.0, 0.0]), [[1 + 10, 2 + 15, 3]])
    self.assertAllClose(targets([1.0, 0.0, 0.0]), [[1 + 10, 2, 3]])

  def test_a_step_has_a_target_if_its_next_step_is_known(self):
    valid = np.array([[1, 1, 1], [1, 1, 1], [1, 1, 0], [1, 1, 0]], bool)
    discounts = tf.constant([[1, 1, 1], [1, 1, 0], [1, 1, 0], [1, 0, 0]], tf.float32)
    self.assertAllEqual(
        cql.target_mask(tf.constant(valid), discounts),
        np.array([[1, 1, 0], [1, 1, 1], [1, 0, 0], [1, 1, 0]], bool))

  def test_refuses_shapes_that_do_not_match(self):
    with self.assertRaisesRegex(ValueError, 'actions'):
      cql.cql_loss(tf.zeros([2, 3, 4]), tf.zeros([2, 4], tf.int32), tf.zeros([2, 3]),
                   1.0, tf.ones([2, 3], tf.bool))
    with self.assertRaisesRegex(ValueError, 'gamma: expected a number in'):
      cql.double_q_targets(tf.zeros([2, 3]), tf.zeros([2, 3]), tf.zeros([2, 3, 4]),
                           tf.zeros([2, 3, 4]), gamma=2.0)


if __name__ == '__main__':
  absltest.main()
