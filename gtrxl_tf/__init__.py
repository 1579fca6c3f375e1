"""Memory of transformers for agents: GTrXL, RATE, and algorithm distillation.

The packages of the library are imported when they are first used: `gtrxl_tf.cores`
imports TensorFlow, `import gtrxl_tf` does not.
"""

import importlib

_ROOMS = ('agents', 'cores', 'datasets', 'environments', 'losses', 'networks')

# pylint: disable-next=undefined-all-variable
__all__ = ['__version__', *_ROOMS]


def __getattr__(name: str) -> object:
  """Imports a room, or looks up the installed version (PEP 562)."""
  if name in _ROOMS:
    return importlib.import_module(f'{__name__}.{name}')
  if name == '__version__':
    return _version()
  raise AttributeError(f'module {__name__!r} has no attribute {name!r}')


def __dir__() -> list[str]:
  return sorted({*globals(), *__all__})


def _version() -> str:
  """The version in setup.py; 'unknown' in a clone that is not installed."""
  from importlib import metadata  # pylint: disable=import-outside-toplevel
  try:
    return metadata.version(__name__)
  except metadata.PackageNotFoundError:
    return 'unknown'
