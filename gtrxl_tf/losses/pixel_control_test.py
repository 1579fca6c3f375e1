"""Compares pixel control with a reference and with its definition."""

import pathlib

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf.losses import pixel_control

GOLDEN = pathlib.Path(__file__).parents[2] / 'testdata' / 'golden' / 'vmpo.npz'
HEIGHT, WIDTH, NUM_ACTIONS = 2, 3, 4


class RewardsTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.parameters(False, True)
  def test_equal_the_reference(self, jit_compile):
    golden = np.load(GOLDEN)
    evaluate = tf.function(
        pixel_control.pixel_control_rewards, autograph=False, jit_compile=jit_compile)
    got = evaluate(tf.constant(golden['pixel_control/frames'].swapaxes(0, 1)),
                   cell_size=int(golden['pixel_control/cell_size']))
    self.assertAllClose(
        got, golden['pixel_control/rewards'].swapaxes(0, 1), rtol=1e-5, atol=1e-6)

  def test_bytes_are_divided_by_255(self):
    frames = np.random.RandomState(0).randint(256, size=[2, 5, 8, 12, 3])
    # A difference of unsigned bytes would wrap around where brightness falls.
    self.assertAllClose(
        pixel_control.pixel_control_rewards(frames.astype(np.uint8)),
        pixel_control.pixel_control_rewards((frames / 255).astype(np.float32)))

  def test_a_complete_change_is_one_and_stays_in_its_cell(self):
    frames = np.zeros([1, 3, 8, 12, 3], np.uint8)
    frames[0, 1:, :4, 8:] = 255
    got = pixel_control.pixel_control_rewards(frames)
    self.assertAllEqual(got[0], [[[0, 0, 1], [0, 0, 0]], np.zeros([2, 3])])

  @parameterized.parameters(([84, 84], 20, [4, 4]), ([11, 9], 4, [2, 2]),
                            ([6, 13], 4, [1, 3]))
  def test_incomplete_cells_are_cropped_on_both_sides(self, size, cell_size, cells):
    random = np.random.RandomState(0)
    frames = random.rand(1, 2, *size, 3).astype(np.float32)
    rows, columns = np.array(cells) * cell_size
    top, left = (size[0] - rows) // 2, (size[1] - columns) // 2
    inside = frames[:, :, top:top + rows, left:left + columns]
    got = pixel_control.pixel_control_rewards(frames, cell_size)
    self.assertEqual(got.shape, [1, 1, *cells])
    self.assertAllEqual(got, pixel_control.pixel_control_rewards(inside, cell_size))

  def test_bad_frames_are_refused(self):
    with self.assertRaisesRegex(ValueError, '^frames'):
      pixel_control.pixel_control_rewards(np.zeros([1, 2, 8, 8, 3], np.int32))
    with self.assertRaisesRegex(ValueError, '^frames'):
      pixel_control.pixel_control_rewards(np.zeros([2, 8, 8, 3]))
    with self.assertRaisesRegex(ValueError, '^frames'):
      pixel_control.pixel_control_rewards(np.zeros([1, 2, 8, 3, 3]))


def _unroll(batch_size=5, num_steps=9, seed=0):
  random = np.random.RandomState(seed)
  return dict(
      q_values=random.randn(
          batch_size, num_steps + 1, HEIGHT, WIDTH, NUM_ACTIONS).astype(np.float32),
      actions=random.randint(NUM_ACTIONS, size=[batch_size, num_steps]),
      rewards=random.rand(batch_size, num_steps, HEIGHT, WIDTH).astype(np.float32),
      is_last=random.rand(batch_size, num_steps + 1) < 0.2)


def _loop(q_values, actions, rewards, is_last, discount=0.9):
  """Loss and gradient by their definition, cell by cell, backwards, in float64."""
  batch_size, num_steps = actions.shape
  loss, gradient = np.zeros(batch_size), np.zeros(q_values.shape)
  for b, i, j in np.ndindex(batch_size, *rewards.shape[2:]):
    after = max(q_values[b, num_steps, i, j].astype(np.float64))
    for t in reversed(range(num_steps)):
      if is_last[b, t + 1]:
        after = 0.
      if is_last[b, t]:
        continue
      after = rewards[b, t, i, j] + discount * after
      error = q_values[b, t, i, j, actions[b, t]] - after
      loss[b] += error ** 2 / 2
      gradient[b, t, i, j, actions[b, t]] = error
  return loss, gradient


def _evaluate(unroll, **settings):
  """The loss of each unroll, and the gradient of their sum in the Q values."""
  unroll = tf.nest.map_structure(tf.convert_to_tensor, unroll)
  with tf.GradientTape() as tape:
    tape.watch(unroll['q_values'])
    loss = pixel_control.pixel_control_loss(**unroll, **settings)
  return loss, tape.gradient(loss, unroll['q_values'])


class LossTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.product(num_steps=[1, 2, 9, 95], discount=[0., 0.9, 1.])
  def test_loss_and_gradient_equal_the_definition(self, num_steps, discount):
    unroll = _unroll(num_steps=num_steps)
    loss, gradient = _evaluate(unroll, discount=discount)
    want_loss, want_gradient = _loop(**unroll, discount=discount)
    self.assertAllClose(loss, want_loss, rtol=1e-5, atol=1e-5)
    self.assertAllClose(gradient, want_gradient, rtol=1e-4, atol=1e-4)

  def test_an_episode_ends_where_its_frames_do(self):
    unroll = _unroll(1)
    unroll['is_last'][:] = False
    unroll['is_last'][0, 4] = True
    loss, gradient = _evaluate(unroll)
    # The change into the last frame counts; that to the next episode's first does not.
    for t, counts in [(3, True), (4, False), (5, True)]:
      rewards = unroll['rewards'].copy()
      rewards[0, t] += 1.
      moved, _ = _evaluate({**unroll, 'rewards': rewards})
      self.assertEqual(bool(moved[0] != loss[0]), counts)
    self.assertAllEqual(gradient[0, 4], np.zeros([HEIGHT, WIDTH, NUM_ACTIONS]))
    # Steps after the end have no influence on those before it.
    unroll['rewards'][0, 5:] += 1.
    unroll['q_values'][0, 5:] += 1.
    _, moved_gradient = _evaluate(unroll)
    self.assertAllEqual(moved_gradient[0, :4], gradient[0, :4])

  @parameterized.product(garbage=[1e30, np.nan, np.inf], jit_compile=[False, True])
  @pytest.mark.medium
  def test_values_at_last_steps_have_no_influence(self, garbage, jit_compile):
    unroll = _unroll()
    unroll['is_last'][0, -1] = True
    evaluate = tf.function(_evaluate, autograph=False, jit_compile=jit_compile)
    want = evaluate(tf.nest.map_structure(tf.constant, unroll))
    is_last = unroll['is_last']
    unroll['q_values'][is_last] = garbage
    unroll['rewards'][is_last[:, :-1]] = garbage
    unroll['actions'][is_last[:, :-1]] = -1
    got = evaluate(tf.nest.map_structure(tf.constant, unroll))
    tf.nest.map_structure(self.assertAllEqual, got, want)
    self.assertAllEqual(got[1][is_last], np.zeros(got[1][is_last].shape))

  @pytest.mark.medium
  def test_compiled_equals_not_compiled(self):
    unroll = tf.nest.map_structure(tf.constant, _unroll(num_steps=95))
    compiled = tf.function(_evaluate, autograph=False, jit_compile=True)
    tf.nest.map_structure(self.assertAllClose, compiled(unroll), _evaluate(unroll))

  def test_half_precision_is_computed_in_float32(self):
    half = _unroll()
    for name in ('q_values', 'rewards'):
      half[name] = tf.cast(half[name], tf.bfloat16)
    wide = {k: tf.cast(v, tf.float32) if k in ('q_values', 'rewards') else v
            for k, v in half.items()}
    loss, _ = _evaluate(half)
    self.assertEqual(loss.dtype, tf.float32)
    self.assertAllEqual(loss, _evaluate(wide)[0])

  @parameterized.parameters(
      ('actions', [5, 10]), ('rewards', [5, 9, 3, 2]), ('rewards', [5, 10, 2, 3]),
      ('is_last', [5, 9]))
  def test_shapes_that_differ_are_refused(self, name, shape):
    wrong = np.zeros(shape, _unroll()[name].dtype)
    with self.assertRaisesRegex(ValueError, f'^{name}: expected the shape .*of q_values'):
      _evaluate({**_unroll(), name: wrong})

  def test_other_bad_inputs_are_refused(self):
    with self.assertRaisesRegex(ValueError, r'^q_values: .*, got \(5, 10, 2, 3\)$'):
      _evaluate({**_unroll(), 'q_values': np.zeros([5, 10, 2, 3], np.float32)})
    with self.assertRaisesRegex(ValueError, '^discount'):
      _evaluate(_unroll(), discount=1.1)


if __name__ == '__main__':
  absltest.main()
