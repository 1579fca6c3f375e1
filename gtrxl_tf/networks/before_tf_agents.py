"""Prepares the import of tf_agents; must be imported before it.

- tf_agents imports gym, which prints a page about its successor at every import, in
  every process, unless its list of notices is empty.
- Where dm_control is installed, tf_agents imports it. dm_control then chooses, once,
  the backend with which MuJoCo draws, and logs it.
"""

import importlib
import logging

from absl import logging as absl_logging

from gtrxl_tf.environments import rendering


def _silence_gym() -> None:
  try:
    importlib.import_module('gym_notices.notices').notices.clear()
  except ModuleNotFoundError:  # An older gym, which prints nothing.
    pass


def _silence_dm_control() -> None:
  absl_logging.get_absl_logger().addFilter(
      lambda record: record.levelno > logging.INFO or 'dm_control' not in record.pathname)
  logging.getLogger('OpenGL').setLevel(logging.WARNING)


_silence_gym()
_silence_dm_control()
rendering.choose_backend()
