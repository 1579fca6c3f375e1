"""Pixel control, an auxiliary task: maximize the change in cells of the image.

The task is that of UNREAL (Jaderberg et al., 2017, arXiv 1611.05397), section 3.1.
"Stabilizing Transformers for Reinforcement Learning" adds its loss to that of V-MPO on
DMLab-30 with a cost of 2e-3 (Table 8).
"""

import tensorflow as tf

from gtrxl_tf.losses import returns
from gtrxl_tf.losses import shapes


def pixel_control_rewards(frames: tf.Tensor, cell_size: int = 4) -> tf.Tensor:
  """Returns how much each cell changed from one frame to the next.

  The change is the mean absolute difference over a cell's pixels and channels. Rows and
  columns that do not fill a cell are cropped, half of them on either side, as in
  UNREAL, which uses the central 80x80 of 84x84 pixels.

  Args:
    frames: [B, T + 1, H, W, C]: uint8 from 0 to 255, or floats from 0 to 1.
    cell_size: height and width of a cell in pixels.

  Returns:
    [B, T, H // cell_size, W // cell_size] float32 in [0, 1]: at t the change from frame
    t to frame t + 1, which follows the action taken at t. If t is an episode's last
    step, the two frames belong to different episodes and `pixel_control_loss` ignores
    the change.
  """
  frames = tf.convert_to_tensor(frames)
  if not (frames.dtype == tf.uint8 or frames.dtype.is_floating):
    raise ValueError(f'frames: expected uint8 or floats, got {frames.dtype.name}')
  shapes.check('frames', frames, [None] * 5)
  height, width = (frames.shape[i] // cell_size for i in (2, 3))
  if not height or not width:
    raise ValueError(f'frames: expected at least {cell_size}x{cell_size} pixels, '
                     f'got {frames.shape}')
  top, left = (frames.shape[i] % cell_size // 2 for i in (2, 3))
  largest = 255. if frames.dtype == tf.uint8 else 1.
  frames = tf.cast(frames[:, :, top:top + height * cell_size,
                          left:left + width * cell_size], tf.float32) / largest
  change = tf.reduce_mean(tf.abs(frames[:, 1:] - frames[:, :-1]), axis=-1)
  cells = tf.reshape(
      change, [-1, change.shape[1], height, cell_size, width, cell_size])
  return tf.reduce_mean(cells, axis=[3, 5])


def pixel_control_loss(
    q_values: tf.Tensor,
    actions: tf.Tensor,
    rewards: tf.Tensor,
    is_last: tf.Tensor,
    discount: float = 0.9,
) -> tf.Tensor:
  """Returns the loss of Q-learning in every cell, with returns to the unroll's end.

    loss = sum 1/2 (Q(s_t, a_t) - G_t)^2
    G_t = r_t + gamma G_{t+1},  G_T = max_a Q(s_T, a)

  The loss is the *sum* over steps and cells, as in trfl, and the paper's cost applies
  to that sum: for 95 steps of 18x24 cells it is 41040 times the mean.

  The change to an episode's last frame counts. The return ends there, both at a
  termination and at a time limit; their difference matters for the task's rewards but
  not for an auxiliary one. No action is taken at the last step, and its loss is zero.

  Args:
    q_values: [B, T + 1, h, w, A], Q of each action in each cell. Gradients flow to
      the Q values of the actions taken; G_t is constant. Q values of actions that are
      not allowed are far below all others, so that the maximum is never one of them.
    actions: [B, T] integers in [0, A), taken at steps 0 to T - 1.
    rewards: [B, T, h, w] from `pixel_control_rewards`.
    is_last: [B, T + 1] bool, true at an episode's last step. Values of the other
      arguments there, even NaN, have no influence.
    discount: gamma per step, in [0, 1]. 0.9 in UNREAL.

  Returns:
    [B] float32, the loss of each unroll.
  """
  if not 0 <= discount <= 1:
    raise ValueError(f'discount: expected a number in [0, 1], got {discount!r}')
  q_values = tf.cast(q_values, tf.float32)
  actions = tf.convert_to_tensor(actions)
  rewards = tf.cast(rewards, tf.float32)
  is_last = tf.cast(is_last, tf.bool)
  shapes.check('q_values', q_values, [None] * 5)
  batch_size, num_rows, height, width, num_actions = q_values.shape
  num_steps = None if num_rows is None else num_rows - 1
  shapes.check('actions', actions, [batch_size, num_steps], 'q_values')
  shapes.check('rewards', rewards, [batch_size, num_steps, height, width], 'q_values')
  shapes.check('is_last', is_last, [batch_size, num_rows], 'q_values')

  # Zero values at ends replace zero discounts, and let no NaN through.
  end = is_last[..., tf.newaxis, tf.newaxis]
  values = tf.where(end, 0., tf.reduce_max(tf.stop_gradient(q_values), axis=-1))
  targets = returns.n_step_returns(
      rewards=tf.pad(rewards, [[0, 0], [1, 0], [0, 0], [0, 0]]),
      discounts=tf.ones_like(is_last, tf.float32),
      values=values, is_last=is_last, gamma=discount)
  # No gather, since the action at a last step may be outside [0, A).
  taken = tf.one_hot(actions, num_actions)[:, :, tf.newaxis, tf.newaxis]
  q_taken = tf.reduce_sum(taken * q_values[:, :-1], axis=-1)
  error = tf.where(end[:, :-1], 0., q_taken - targets)
  return 0.5 * tf.reduce_sum(tf.square(error), axis=[1, 2, 3])
