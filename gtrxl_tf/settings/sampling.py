"""Hyperparameters that are sampled for each run.

In GTrXL (appendix B) each run has not only its own seed but also its own
hyperparameters, sampled from distributions (Table 8) and "kept fixed across all
models". In gin:

  VMPOAgent.epsilon_alpha = @epsilon_alpha/log_uniform()
  epsilon_alpha/log_uniform.low = 1e-3
  epsilon_alpha/log_uniform.high = 0.1
"""

import copy
import math
import re
from typing import Dict
import zlib

import gin
import numpy as np

from gtrxl_tf.settings import config


@config.configurable
def log_uniform(low: config.PositiveFloat, high: config.PositiveFloat) -> float:
  """Samples a number whose logarithm is uniform in [log low, log high).

  The sample depends only on the scope's name and on gin's `Experiment.seed` (0 if it is
  not bound). Every setting therefore has its own random stream, and all processes and
  runs with the same seed get the same numbers, on every machine.

  Args:
    low: the smallest number.
    high: the upper bound, which is excluded.
  """
  scope = gin.current_scope_str()
  if not scope:
    raise config.ConfigError('@log_uniform() has no scope: expected '
                             '@NAME/log_uniform(), each setting with its own NAME')
  if not low < high:
    raise config.ConfigError(f'{scope}/log_uniform.high = {high!r}: expected a number '
                             f'> {scope}/log_uniform.low = {low!r}')
  # SeedSequence is the only generator whose stream NumPy guarantees not to change.
  stream = zlib.crc32(f'{scope} of seed {_run_seed()}'.encode())
  fraction = float(np.random.SeedSequence(stream).generate_state(1)[0]) / 2**32
  # If the bounds are close, rounding may reach the upper one.
  return max(low, min(low * (high / low)**fraction, math.nextafter(high, low)))


def _run_seed() -> int:
  try:
    # A macro is a reference, which gin resolves when it is copied.
    return copy.deepcopy(gin.query_parameter('Experiment.seed'))
  except ValueError:
    return 0  # Experiment's default.


def samples(settings: str) -> Dict[str, float]:
  """Returns the numbers that a run sampled, by scope; its settings replace gin's."""
  scopes = re.findall(r'@([\w./]+)/(?:gtrxl_tf\.)?log_uniform\(\)', settings)
  if not scopes:
    return {}
  gin.clear_config()
  config.parse([], [settings])
  drawn = {}
  for scope in scopes:
    with gin.config_scope(scope):
      drawn[scope] = log_uniform()  # pylint: disable=no-value-for-parameter
  return drawn
