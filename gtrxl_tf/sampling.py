"""Settings that are drawn anew for each run.

*GTrXL* (appendix B): beside its seed, each run has hyperparameters of its own, drawn
from distributions (Table 8) and "kept fixed across all models". In gin:

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

from gtrxl_tf import config


@config.configurable
def log_uniform(low: config.PositiveFloat, high: config.PositiveFloat) -> float:
  """A number whose logarithm is uniform, the same whenever this run asks for it.

  It depends on the scope's name and on `Experiment.seed` as gin has it (0 if it is not
  bound), and on nothing else: every setting has a stream of its own, and runs of one
  seed have the same numbers whatever they train, on every machine.

  Args:
    low: the smallest number.
    high: above all numbers.

  Raises:
    config.ConfigError: no scope, or no number between the bounds.
  """
  scope = gin.current_scope_str()
  if not scope:
    raise config.ConfigError('@log_uniform() has no scope: expected '
                             '@NAME/log_uniform(), each setting with its own NAME')
  if not low < high:
    raise config.ConfigError(f'{scope}/log_uniform.high = {high!r}: expected a number '
                             f'> {scope}/log_uniform.low = {low!r}')
  # Of NumPy's streams, only this one is promised to stay as it is.
  stream = zlib.crc32(f'{scope} of seed {_run_seed()}'.encode())
  fraction = float(np.random.SeedSequence(stream).generate_state(1)[0]) / 2**32
  # Where the bounds are close, rounding may reach the upper one.
  return max(low, min(low * (high / low)**fraction, math.nextafter(high, low)))


def _run_seed() -> int:
  try:
    # Copied, because a macro is a reference, which gin resolves when it is copied.
    return copy.deepcopy(gin.query_parameter('Experiment.seed'))
  except ValueError:
    return 0  # Experiment's default.


def samples(settings: str) -> Dict[str, float]:
  """What a run has drawn, by the names of the scopes.

  Args:
    settings: the run's `config.gin`. If anything in it is sampled, it replaces the
      settings that gin had.
  """
  scopes = re.findall(r'@([\w./]+)/(?:gtrxl_tf\.)?log_uniform\(\)', settings)
  if not scopes:
    return {}
  gin.clear_config()
  gin.parse_config(settings)
  drawn = {}
  for scope in scopes:
    with gin.config_scope(scope):
      drawn[scope] = log_uniform()  # pylint: disable=no-value-for-parameter
  return drawn
