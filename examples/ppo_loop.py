"""A PPO loop of your own around a memory core: CartPole without velocities.

Nothing but the core is of this library. With positions alone, an agent must remember the
last observations to balance the pole.

  python examples/ppo_loop.py --core=gtrxl   # Or lstm, or none for no memory.
"""

import argparse

import gymnasium
import numpy as np
import tensorflow as tf

from gtrxl_tf import cores

ENVS, STEPS, EPOCHS, DISCOUNT, LAMBDA, CLIP = 16, 64, 4, 0.99, 0.95, 0.2
CORES = {'gtrxl': lambda: cores.TransformerXL(1, 64, 4, 16, mlp_dim=64, memory_length=16),
         'lstm': lambda: cores.DeepLSTM(num_layers=1, hidden_dim=64),
         'none': lambda: cores.Memoryless(num_layers=1, hidden_dim=64)}


def main(argv=None) -> float:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--core', choices=CORES, default='gtrxl')
  parser.add_argument('--steps', type=int, default=250_000)
  parser.add_argument('--seed', type=int, default=0)
  args = parser.parse_args(argv)
  tf.keras.utils.set_random_seed(args.seed)
  envs = gymnasium.make_vec('CartPole-v1', ENVS)
  torso, core = tf.keras.layers.Dense(64, 'tanh'), CORES[args.core]()
  core.build([None, None, 64])
  policy, value = tf.keras.layers.Dense(2), tf.keras.layers.Dense(1)
  optimizer = tf.keras.optimizers.Adam(1e-3)

  @tf.function(jit_compile=True)
  def act(seen, first, cache, noise):  # One step of each environment.
    outputs, cache = core.step(torso(seen), first, cache)
    return tf.argmax(policy(outputs) + noise, axis=-1), cache  # A sample (Gumbel).

  @tf.function
  def unroll(seen, first, state):  # All steps at once, [ENVS, STEPS + 1, ...].
    outputs, state = core(torso(seen), first, state)
    return tf.nn.log_softmax(policy(outputs)), value(outputs)[..., 0], state

  @tf.function
  def learn(seen, first, state, action, old, advantage, target, valid):
    with tf.GradientTape() as tape:
      logits, values, _ = unroll(seen, first, state)
      chosen = tf.gather(logits[:, :-1], action, axis=-1, batch_dims=2)
      ratio = tf.exp(chosen - old)
      gain = tf.minimum(ratio * advantage, tf.clip_by_value(ratio, 1 - CLIP, 1 + CLIP) * advantage)
      entropy = -tf.reduce_sum(tf.exp(logits) * logits, axis=-1)[:, :-1]
      loss = -gain - 0.01 * entropy + 0.5 * tf.square(values[:, :-1] - target)
      loss = tf.reduce_sum(loss * valid) / tf.reduce_sum(valid)
    variables = sum((x.trainable_variables for x in (torso, core, policy, value)), [])
    gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, variables), 0.5)
    optimizer.apply_gradients(zip(gradients, variables))

  observation, _ = envs.reset(seed=args.seed)
  seen, first = observation[:, [0, 2]].astype('f'), np.ones(ENVS, bool)
  state, random = core.initial_state(ENVS), np.random.default_rng(args.seed)
  totals, returns, done = np.zeros(ENVS), [], np.zeros(ENVS, bool)
  for iteration in range(args.steps // (ENVS * STEPS)):
    rows, cache = [], core.cache(state)
    for _ in range(STEPS):
      noise = random.gumbel(size=(ENVS, 2)).astype('f')
      action, cache = act(seen, first, cache, noise)
      action, valid, before = action.numpy(), ~done, (seen, first)
      observation, reward, ended, cut, _ = envs.step(action)  # After an end it resets.
      first, done, seen = done, ended | cut, observation[:, [0, 2]].astype('f')
      rows.append((*before, action, reward.astype('f'), ended, done, valid))
      totals = totals * valid + reward
      returns += totals[done].tolist()
    *columns, action, reward, ended, done_after, valid = (
        np.stack(x, axis=1) for x in zip(*rows))
    all_seen, all_first = (np.concatenate([x, last[:, None]], axis=1)
                           for x, last in zip(columns, (seen, first)))
    logits, values, _ = (x.numpy() if tf.is_tensor(x) else x
                         for x in unroll(all_seen, all_first, state))
    old = np.take_along_axis(logits[:, :-1], action[..., None], axis=-1)[..., 0]
    advantage, following = np.zeros_like(reward), 0.0
    for t in reversed(range(STEPS)):  # Generalized advantage estimation.
      delta = reward[:, t] + DISCOUNT * values[:, t + 1] * ~ended[:, t] - values[:, t]
      advantage[:, t] = following = delta + DISCOUNT * LAMBDA * ~done_after[:, t] * following
    target = advantage + values[:, :-1]
    advantage = (advantage - advantage[valid].mean()) / (advantage[valid].std() + 1e-6)
    for _ in range(EPOCHS):
      learn(all_seen, all_first, state, action, old, advantage, target, valid.astype('f'))
    *_, state = unroll(all_seen[:, :-1], all_first[:, :-1], state)
    if iteration % 20 == 19:
      print(f'{(iteration + 1) * ENVS * STEPS:8,} steps, return {np.mean(returns[-50:]):.1f}', flush=True)
  return float(np.mean(returns[-50:]))


if __name__ == '__main__':
  main()
