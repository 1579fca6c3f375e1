"""Makes r2d2.npz, the reference values of R2D2's loss and priorities.

  pip install rlax==0.1.9 && python testdata/golden/r2d2.py

Nothing of gtrxl_tf is used. The TD errors are rlax's
`transformed_n_step_q_learning` with its `SIGNED_HYPERBOLIC_PAIR`, in float64. rlax has
no time limits: it is given each episode's part of a sequence by itself. Priorities and
importance weights, which rlax does not have, are plain NumPy. Arrays are `[T, B, ...]`.
"""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import rlax

jax.config.update('jax_enable_x64', True)

T, B, A = 23, 6, 4
GAMMA, ETA, BETA = 0.97, 0.9, 0.6
N_STEPS = (1, 3, 5)


def td_errors(q, target_q, actions, rewards, discounts, is_last, n_step) -> jax.Array:
  """[T, B], 0 where no action is taken."""
  columns = []
  for b in range(B):
    column, first = [0.0] * T, 0
    for last in (*np.flatnonzero(is_last[:T, b]), T):
      if last > first:
        now, then = slice(first, last), slice(first + 1, last + 1)
        found = rlax.transformed_n_step_q_learning(
            q[now, b], actions[now, b], target_q[then, b],
            jnp.argmax(q[then, b], axis=-1), rewards[then, b],
            GAMMA * discounts[then, b], min(n_step, int(last - first)),
            tx_pair=rlax.SIGNED_HYPERBOLIC_PAIR)
        column[first:last] = list(found)
      first = last + 1  # The row after an episode's last is the next one's first.
    columns.append(jnp.stack([jnp.asarray(x, jnp.float64) for x in column]))
  return jnp.stack(columns, axis=1)


def main() -> None:
  random = np.random.default_rng(0)
  is_last = random.random((T + 1, B)) < 0.15
  is_last[:, 0] = False  # One sequence inside an episode.
  discounts = np.where(is_last & (random.random((T + 1, B)) < 0.5), 0.0, 1.0)
  q, target_q = 3 * random.normal(size=(2, T + 1, B, A))
  rewards = 10 * random.normal(size=(T + 1, B))
  actions = random.integers(A, size=(T, B))
  probabilities = random.random(B)
  weights = (20 * probabilities) ** -BETA
  weights /= weights.max()
  valid = ~is_last[:T]
  found = dict(
      q=q, target_q=target_q, actions=actions, rewards=rewards, discounts=discounts,
      is_last=is_last, probabilities=probabilities, table_size=20, weights=weights,
      gamma=GAMMA, eta=ETA, beta=BETA, n_steps=N_STEPS)
  for i, n_step in enumerate(N_STEPS):
    def loss(q, n_step=n_step):
      errors = td_errors(q, target_q, actions, rewards, discounts, is_last, n_step)
      return 0.5 * jnp.sum(weights * errors ** 2) / valid.sum(), errors

    (total, errors), gradient = jax.value_and_grad(loss, has_aux=True)(jnp.asarray(q))
    sizes = np.abs(errors)
    mean = sizes.sum(axis=0) / valid.sum(axis=0)
    found.update({
        f'loss{i}': total, f'td_errors{i}': errors, f'grad_q{i}': gradient,
        f'priorities{i}': ETA * sizes.max(axis=0) + (1 - ETA) * mean})
  np.savez(pathlib.Path(__file__).with_suffix('.npz'),
           **{name: np.asarray(value) for name, value in found.items()})


if __name__ == '__main__':
  main()
