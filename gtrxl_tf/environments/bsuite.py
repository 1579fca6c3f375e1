"""The memory tasks of the Behaviour Suite (Osband et al., 2020)."""

import inspect
from typing import Optional

from gtrxl_tf.environments import optional
from gtrxl_tf.environments import wrappers
from gtrxl_tf.settings import config


@config.configurable
class Bsuite(wrappers.Wrapper):
  """A task of bsuite, by id.

  `memory_len/0` to `memory_len/22` show one bit, and ask for it after 1 to 100 steps;
  `memory_size/0` to `memory_size/16` show 1 to 40 bits, and ask for one of them at the
  next step. The reward is 1 or -1, at the end.
  """

  def __init__(self, name: str, seed: Optional[config.NonNegativeInt] = None):
    """Creates the task.

    Args:
      name: the task's id, as in `'memory_len/3'`.
      seed: seed of everything that is random, but for the transitions of
        `deep_sea_stochastic`, for which bsuite takes none.
    """
    setting = f'Bsuite.name = {name!r}'
    suite = optional.load('bsuite.bsuite', needed_by=setting)
    sweep = optional.load('bsuite.sweep', needed_by=setting)
    if name not in sweep.SETTINGS:
      raise config.ConfigError(f"{setting}: expected an id of bsuite, such as 'memory_len/0'")
    load = suite.EXPERIMENT_NAME_TO_ENVIRONMENT[name.partition('/')[0]]
    settings = dict(sweep.SETTINGS[name])
    if 'seed' in inspect.signature(load).parameters:
      settings['seed'] = seed
    super().__init__(load(**settings))
