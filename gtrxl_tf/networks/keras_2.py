"""Refuses Keras 3, with which only cores and losses work.

Modules that need Keras 2 import this one. `import gtrxl_tf` chooses Keras 2 where it
can; see there.
"""

import importlib.util

import tensorflow as tf

if hasattr(tf.keras, '__version__'):  # Keras 2 has none.
  if importlib.util.find_spec('tf_keras'):
    _MEND = 'TF_USE_LEGACY_KERAS=1, or unset and `import gtrxl_tf` before tf.keras is used'
  else:
    _MEND = '`pip install tf_keras~={}.{}.0`'.format(*tf.__version__.split('.'))
  raise ImportError(
      'networks, agents and training need Keras 2; cores and losses do not. '
      f'tf.keras is Keras {tf.keras.__version__}: expected {_MEND}')
