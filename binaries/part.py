"""The flags of a part of a run, in addition to those of `settings`."""

from __future__ import annotations

import time
import typing

from absl import flags

from gtrxl_tf.launch import program

from . import settings as settings_flags

if typing.TYPE_CHECKING:
  from gtrxl_tf.launch import parts

flags.adopt_module_key_flags(settings_flags)

_METRICS_HOST = flags.DEFINE_string(
    'metrics_host', 'localhost',
    'Where /metrics is served for Prometheus; 0.0.0.0 lets other machines read it.')
_METRICS_PORT = flags.DEFINE_integer(
    'metrics_port', None, 'The port of /metrics; by default nothing listens.',
    lower_bound=1, upper_bound=65535)


def settings(threads: int) -> parts.Settings:
  """Returns the settings of the part.

  Args:
    threads: the threads of TensorFlow; 0 for as many as there are cores.
  """
  from gtrxl_tf.launch import parts  # pylint: disable=import-outside-toplevel

  if _METRICS_PORT.value is None and flags.FLAGS['metrics_host'].present:
    program.refuse('--metrics_host without --metrics_port: expected both')
  return parts.Settings(
      settings_flags.GIN_FILE.value, settings_flags.GIN_BINDINGS.value,
      _METRICS_HOST.value, _METRICS_PORT.value, threads,
      start=time.time_ns())  # This process knows no earlier start.
