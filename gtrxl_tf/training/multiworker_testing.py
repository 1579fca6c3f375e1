"""One of several workers that train a tiny agent together, as a process; for tests.

  TF_CONFIG=... python -m gtrxl_tf.training.multiworker_testing AGENT FILE

Without TF_CONFIG it trains alone. Writes what it came to into FILE, an npz.
"""

import os
import sys

import numpy as np

from gtrxl_tf.training import devices
from gtrxl_tf.training import tiny_agents_testing


def main(name: str, path: str) -> None:
  together = 'TF_CONFIG' in os.environ
  strategy = devices.make_strategy('multiworker' if together else 'default')
  found = tiny_agents_testing.train(name, strategy)
  found['any_chief'] = devices.any_worker(devices.is_chief(strategy), strategy)
  np.savez(path, chief=devices.is_chief(strategy), **found)


if __name__ == '__main__':
  main(*sys.argv[1:])
