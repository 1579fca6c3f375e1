"""Reverb, imported when it is first used: offline training does without it."""

from typing import Any

from gtrxl_tf.environments import optional


def __getattr__(name: str) -> Any:
  """Looks up a name in the package (PEP 562)."""
  return getattr(optional.load('reverb', 'online training', 'online'), name)
