"""One of several workers that train a tiny agent together, as a process; for tests.

  TF_CONFIG=... python -m gtrxl_tf.training.multiworker_testing AGENT FILE

Without TF_CONFIG it trains alone. Writes what it came to into FILE, an npz.
"""

import os
import sys

import numpy as np
import tensorflow as tf

from gtrxl_tf.training import devices
from gtrxl_tf.training import learner as learner_lib
from gtrxl_tf.training import tiny_agents_testing

NUM_STEPS = 2


def train(name: str, strategy: tf.distribute.Strategy):
  """Metrics of steps, and all variables after them, by name."""
  make, batch = tiny_agents_testing.AGENTS[name]
  with strategy.scope():
    agent = make()
    # With 1e-8 a gradient of zero but for rounding would make a whole step.
    optimizer = tf.keras.optimizers.legacy.Adam(1e-2, epsilon=1e-4)
  learner = learner_lib.Learner(agent, optimizer, strategy, clip_norm=0.1)
  found = {}
  for seed in range(NUM_STEPS):
    metrics = learner.step(devices.share_out(batch(seed), strategy))
    carried = tf.nest.flatten(metrics.pop('carried', ()))
    metrics.update((f'carried_{i}', x) for i, x in enumerate(carried))
    found.update((f'{seed}_{name}', x.numpy()) for name, x in metrics.items())
  variables = (*agent.variables, *optimizer.variables())
  found.update((f'variable_{i}', x.numpy()) for i, x in enumerate(variables))
  return found


def main(name: str, path: str) -> None:
  together = 'TF_CONFIG' in os.environ
  strategy = devices.make_strategy('multiworker' if together else 'default')
  found = train(name, strategy)
  found['stops'] = devices.any_worker(devices.is_chief(strategy), strategy)
  np.savez(path, chief=devices.is_chief(strategy), **found)


if __name__ == '__main__':
  main(*sys.argv[1:])
