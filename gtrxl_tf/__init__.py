"""Memory of transformers for agents: GTrXL, RATE, and algorithm distillation.

The packages of the library are imported when they are first used: `gtrxl_tf.cores`
imports TensorFlow, `import gtrxl_tf` does not.
"""

import importlib
import importlib.util
import os
import sys

TYPE_CHECKING = False  # An import of `typing` would take longer than all else here.
if TYPE_CHECKING:
  from gtrxl_tf import agents
  from gtrxl_tf import cores
  from gtrxl_tf import datasets
  from gtrxl_tf import environments
  from gtrxl_tf import losses
  from gtrxl_tf import networks
  from gtrxl_tf.analysis.session import compare
  from gtrxl_tf.analysis.session import Run
  from gtrxl_tf.analysis.session import train
  from gtrxl_tf.launch.checking import check_env
  from gtrxl_tf.serving.acting import load_policy
  __version__: str

_PACKAGES = ('agents', 'cores', 'datasets', 'environments', 'losses', 'networks')
# What is called most, and the module of each.
_FUNCTIONS = {
    'Run': 'analysis.session',
    'check_env': 'launch.checking',
    'compare': 'analysis.session',
    'load_policy': 'serving.acting',
    'train': 'analysis.session',
}

# pylint: disable-next=undefined-all-variable
__all__ = ['__version__', *_FUNCTIONS, *_PACKAGES]


def __getattr__(name: str) -> object:
  """Imports a package or a function, or looks up the installed version (PEP 562)."""
  if name in _PACKAGES:
    return importlib.import_module(f'{__name__}.{name}')
  if name in _FUNCTIONS:
    return getattr(importlib.import_module(f'{__name__}.{_FUNCTIONS[name]}'), name)
  if name == '__version__':
    return _version()
  raise AttributeError(f'module {__name__!r} has no attribute {name!r}')


def __dir__() -> list[str]:
  return sorted({*globals(), *__all__})


def _version() -> str:
  """Returns the installed version; 'unknown' in a clone that is not installed."""
  from importlib import metadata  # pylint: disable=import-outside-toplevel
  try:
    return metadata.version(__name__)
  except metadata.PackageNotFoundError:
    return 'unknown'


def _choose_keras() -> None:
  """Makes `tf.keras` Keras 2 where the package tf_keras is installed.

  Since TensorFlow 2.16 it is Keras 3, unless TF_USE_LEGACY_KERAS is set before `tf.keras`
  is first used. Nothing changes if the user has set that variable or has already used
  `tf.keras`. Where tf_keras is not installed, `tf.keras` is what TensorFlow brings.
  """
  tensorflow = sys.modules.get('tensorflow')
  unused = 'KerasLazyLoader' in repr(vars(tensorflow).get('keras')) if tensorflow else True
  if 'TF_USE_LEGACY_KERAS' in os.environ or not unused:
    return
  found = importlib.util.find_spec('tf_keras')
  if found is None:
    return
  os.environ['TF_USE_LEGACY_KERAS'] = '1'
  if tensorflow:  # It has set where `import tensorflow.keras` leads, too.
    tensorflow.__path__.insert(
        0, os.path.join(os.path.dirname(found.origin), 'api', '_v2'))


_choose_keras()
