"""Makes ppo.npz, the reference values of PPO and of generalized advantages.

  pip install rlax==0.1.9 && python testdata/golden/ppo.py

Nothing of gtrxl_tf is used. rlax has no masks: it is given only the valid steps of a
loss, and each episode's part of an unroll by itself. Arrays are `[T, B, ...]`.
"""

import pathlib

import distrax
import jax
import jax.numpy as jnp
import numpy as np
import rlax

T, B, A, D = 9, 6, 4, 3
CLIP_RATIO, ENTROPY_COST, GAMMA = 0.2, 0.01, 0.95
LAMBDAS = (0.0, 0.5, 0.95, 1.0)


def losses(policies, entropy, acting, actions, advantages, valid, normalize) -> dict:
  """Policy loss, entropy loss and clip fraction over the valid steps."""
  if normalize:
    advantages = jax.nn.standardize(advantages[valid], epsilon=1e-16)
  else:
    advantages = advantages[valid]
  ratios = jnp.exp(policies.log_prob(actions) - acting.log_prob(actions))[valid]
  return {
      'policy_loss': rlax.clipped_surrogate_pg_loss(ratios, advantages, CLIP_RATIO),
      'entropy_loss': -ENTROPY_COST * jnp.mean(entropy[valid]),
      'clip_fraction': jnp.mean(jnp.abs(ratios - 1) > CLIP_RATIO),
  }


def add_losses(found, name, make, online, acting, actions, random) -> None:
  """Adds inputs, losses and gradients of one kind of policy."""
  advantages = random.normal(size=(T, B)).astype(np.float32)
  valid = random.random((T, B)) < 0.7
  inputs = dict(actions=actions, advantages=advantages, valid=valid)
  inputs |= {f'online_{k}': v for k, v in online.items()}
  inputs |= {f'acting_{k}': v for k, v in acting.items()}
  found.update({f'{name}/{k}': v for k, v in inputs.items()})
  for case, mask, normalize in (
      ('all', np.ones((T, B), bool), False), ('valid', valid, False),
      ('normalized', valid, True)):

    def evaluate(parameters, mask=mask, normalize=normalize):
      policy = make(**parameters)
      terms = losses(policy, policy.entropy(), make(**acting), actions, advantages,
                     mask, normalize)
      return terms['policy_loss'] + terms['entropy_loss'], terms

    (_, terms), gradients = jax.value_and_grad(evaluate, has_aux=True)(online)
    found.update({f'{name}/{case}/{k}': v for k, v in terms.items()})
    found.update({f'{name}/{case}/grad_{k}': v for k, v in gradients.items()})


def add_returns(found, random) -> None:
  """Adds unrolls with episode ends, and their advantages and lambda-returns."""
  steps = 23
  shape = (steps + 1, B)
  is_last = random.random(shape) < 0.15
  is_last[:, 0] = False  # One unroll inside an episode.
  discounts = np.where(is_last & (random.random(shape) < 0.5), 0.0, 1.0)
  rewards, values = random.normal(size=(2, *shape)).astype(np.float32)
  found.update({'returns/rewards': rewards, 'returns/values': values,
                'returns/discounts': discounts.astype(np.float32),
                'returns/is_last': is_last, 'returns/gamma': GAMMA,
                'returns/lambdas': LAMBDAS})
  for i, td_lambda in enumerate(LAMBDAS):
    advantages, targets = np.full((2, steps, B), np.nan, np.float32)
    for b in range(B):
      first = 0
      for last in (*np.flatnonzero(is_last[:steps, b]), steps):
        if last > first:
          part = slice(first + 1, last + 1)
          r, d = rewards[part, b], (GAMMA * discounts[part, b]).astype(np.float32)
          advantages[first:last, b] = rlax.truncated_generalized_advantage_estimation(
              r, d, td_lambda, values[first:last + 1, b])
          targets[first:last, b] = rlax.lambda_returns(
              r, d, values[part, b], td_lambda)
        first = last + 1  # The row after an episode's last is the next one's first.
    found[f'returns/advantages{i}'], found[f'returns/targets{i}'] = advantages, targets


def main() -> None:
  random = np.random.default_rng(0)

  def normal(*size):
    return random.normal(size=size).astype(np.float32)

  found = {'clip_ratio': CLIP_RATIO, 'entropy_cost': ENTROPY_COST}
  acting = normal(T, B, A)
  add_losses(found, 'discrete', lambda logits: distrax.Categorical(logits),
             {'logits': acting + 0.3 * normal(T, B, A)}, {'logits': acting},
             random.integers(A, size=(T, B)), random)
  mean, scale = normal(T, B, D), np.exp(0.3 * normal(T, B, D))
  online = {'mean': mean + 0.1 * normal(T, B, D),
            'scale': scale * np.exp(0.1 * normal(T, B, D))}
  add_losses(found, 'continuous',
             lambda mean, scale: distrax.MultivariateNormalDiag(mean, scale),
             online, {'mean': mean, 'scale': scale}, mean + scale * normal(T, B, D),
             random)
  add_returns(found, random)
  np.savez(pathlib.Path(__file__).with_suffix('.npz'),
           **{name: np.asarray(value) for name, value in found.items()})


if __name__ == '__main__':
  main()
