"""Imports packages that only some parts of the library need."""

import importlib
import types

from gtrxl_tf.settings import config

# The versions of Python for which setup.py has a package, where that is not all.
_PYTHONS = {**dict.fromkeys(('reverb', 'tf_agents'), '3.10 or 3.11'),
            **dict.fromkeys(('dm_control', 'memory_maze'), '3.10 to 3.12')}


def load(module: str, needed_by: str, extra: str = 'envs') -> types.ModuleType:
  """Imports a module that belongs to an `extra` of setup.py; `needed_by` is for the error."""
  try:
    return importlib.import_module(module)
  except ModuleNotFoundError as error:
    pythons = _PYTHONS.get(module.partition('.')[0])
    raise config.ConfigError(
        f'{needed_by} needs the package {error.name}, which is not installed: expected '
        f"`.venv/bin/pip install -c requirements.lock -e '.[{extra}]'` in a clone, or `pip "
        f"install 'gtrxl_tf[{extra}] @ file:///PATH/OF/THE/WHEEL'`"
        + (f', with Python {pythons}' if pythons else '')) from error
