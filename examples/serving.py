"""Uses an exported policy, which needs only TensorFlow and not this library.

A run exports its policy to `policy/`. This program loads that of `own_environment.py`
and serves four waiters at once. Each row of the batch has its own memory, which the
policy takes and returns; nothing has to be reset between episodes.

  python examples/serving.py --policy=runs/own_environment/policy

With the policy of the run with seed 0, the mean return in 200 episodes is 1.00.
"""

import argparse
from typing import Any, Sequence

import dm_env
import own_environment
import tensorflow as tf


def as_batch(time_steps: Sequence[dm_env.TimeStep]) -> dm_env.TimeStep:
  """The time steps of several environments as one, with tensors `[B, ...]`."""
  observations = [time_step.observation for time_step in time_steps]
  return dm_env.TimeStep(
      step_type=tf.constant([int(x.step_type) for x in time_steps], tf.int32),
      reward=tf.constant([x.reward or 0.0 for x in time_steps]),
      discount=tf.constant([1.0 if x.discount is None else x.discount
                            for x in time_steps]),
      observation=tf.nest.map_structure(lambda *x: tf.stack(x), *observations))


def play(policy: Any, num_environments: int, num_steps: int, seed: int) -> float:
  """Steps a policy in environments; returns the mean return of an episode."""
  environments = [own_environment.Orders(seed=seed + i) for i in range(num_environments)]
  time_steps = [environment.reset() for environment in environments]
  memory = policy.get_initial_state(batch_size=num_environments)
  total, num_episodes = 0.0, 0
  for _ in range(num_steps):
    step = policy.action(as_batch(time_steps), memory)
    memory = step.state
    time_steps = [environment.step(int(action))
                  for environment, action in zip(environments, step.action)]
    total += sum(x.reward or 0.0 for x in time_steps)
    num_episodes += sum(x.last() for x in time_steps)
  return total / num_episodes


def main(argv: Sequence[str] | None = None) -> None:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--policy', required=True, help='folder of an exported policy')
  parser.add_argument('--short', action='store_true', help='two episodes each')
  parser.add_argument('--seed', type=int, default=0)
  args = parser.parse_args(argv)
  policy = tf.saved_model.load(args.policy)
  # An episode of `Orders` has six steps, and one more begins the next.
  result = play(policy, 4, 13 if args.short else 7 * 50 - 1, args.seed)
  print(f'mean return {result:.2f}')


if __name__ == '__main__':
  main()
