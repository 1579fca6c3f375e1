"""Imports packages that only some parts of the library need."""

import importlib
import types

from gtrxl_tf.settings import config


def load(module: str, needed_by: str, extra: str = 'envs') -> types.ModuleType:
  """Imports `module`, which belongs to an extra of this library.

  Args:
    module: full name of the module.
    needed_by: the name of the part that needs the module, for the error.
    extra: the extra of setup.py.

  Raises:
    config.ConfigError: the package is not installed; the message says which extra
      brings it.
  """
  try:
    return importlib.import_module(module)
  except ModuleNotFoundError as error:
    raise config.ConfigError(
        f'{needed_by} needs the package {error.name}, which is not installed: expected '
        f"gtrxl_tf's extra [{extra}], in a clone by "
        f"`.venv/bin/pip install -c requirements.lock -e '.[{extra}]'`"
        + (' with Python 3.10 or 3.11' if extra == 'online' else '')) from error
