"""Imports packages that only some parts of the library need."""

import contextlib
import importlib
from importlib import metadata
import json
import pathlib
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
        f'{needed_by} needs the package {error.name}, which is not installed: '
        f'expected `{_install(extra)}`'
        + (f' with Python {pythons}' if pythons else '')) from error


def _install(extra: str) -> str:
  """Returns the command that installs an extra, for a clone's .venv or the wheel."""
  clone = pathlib.Path(__file__).parents[2]
  if (clone / 'Makefile').exists() and (clone / 'setup.py').exists():
    return (f'make {extra}' if extra in ('envs', 'offline') else
            f".venv/bin/pip install -c requirements.lock -e '.[{extra}]'")
  return f"pip install 'gtrxl_tf[{extra}] @ {_wheel()}'"


def _wheel() -> str:
  """Returns the URL of the installed wheel; in an index, anyone could take its name."""
  with contextlib.suppress(metadata.PackageNotFoundError, KeyError, TypeError, ValueError):
    return json.loads(metadata.distribution('gtrxl_tf').read_text('direct_url.json'))['url']
  return 'file:///PATH/OF/ITS/WHEEL'
