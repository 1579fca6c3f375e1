"""Imports packages that only some environments need."""

import importlib
import types

from gtrxl_tf import config


def load(module: str, needed_by: str) -> types.ModuleType:
  """Imports `module`, which belongs to the extra `envs`.

  Args:
    module: full name of the module.
    needed_by: the environment's name, for the error.

  Raises:
    config.ConfigError: the package is not installed; the message says how to install
    it.
  """
  try:
    return importlib.import_module(module)
  except ModuleNotFoundError as error:
    raise config.ConfigError(
        f'{needed_by} needs the package {error.name}, which is not installed: '
        "expected `pip install 'gtrxl_tf[envs]'`, or `make envs` in a clone"
        ) from error
