"""Reverb, imported when it is first used: offline training does without it."""

import os
from typing import Any

from gtrxl_tf.environments import optional

# gRPC would look for the server by way of `http_proxy` otherwise, even on this machine.
os.environ.setdefault('grpc_proxy', '')


def __getattr__(name: str) -> Any:
  """Looks up a name in the package (PEP 562)."""
  return getattr(optional.load('reverb', 'a Reverb server', 'online'), name)
