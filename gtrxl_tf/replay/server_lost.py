"""The error of a lost server, told apart from the errors of this program."""

import contextlib
from typing import Iterator

import tensorflow as tf

from gtrxl_tf.replay import lazy_reverb as reverb
from gtrxl_tf.settings import config


class ServerLost(Exception):
  """The Reverb server does not answer; another one may be started in its place."""


@contextlib.contextmanager
def converted() -> Iterator[None]:
  """Converts the errors of Reverb's calls in this context into `ServerLost`.

  Reverb's client raises `RuntimeError` if a connection breaks, and its dataset raises
  errors of TensorFlow. The context must hold nothing but such calls, since the user's
  code may raise `RuntimeError` too.

  Raises:
    ServerLost: the server is gone, or its answer did not come in time.
  """
  try:
    yield
  except (RuntimeError, reverb.ReverbError, tf.errors.AbortedError,
          tf.errors.CancelledError, tf.errors.DeadlineExceededError,
          tf.errors.UnavailableError) as error:
    raise ServerLost(config.one_line(error)) from error
