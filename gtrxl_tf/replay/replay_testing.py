"""What tests of a run need to know about its replay."""

import importlib.util
import os
from typing import Any

from absl.testing import absltest
import pytest

from gtrxl_tf.replay import shared_memory

_REASON = 'it needs Reverb, and so Python 3.10 or 3.11'
_HAS_REVERB = importlib.util.find_spec('reverb') is not None
needs_reverb = pytest.mark.skipif(not _HAS_REVERB, reason=_REASON)


def require_reverb(test: absltest.TestCase) -> None:
  """Skips the rest of a test where Reverb is not installed."""
  if not _HAS_REVERB:
    test.skipTest(_REASON)


def memory(test: absltest.TestCase, experiment: Any) -> str:
  """Makes the memory of an experiment's run for a test; returns its address."""
  descriptor = shared_memory.create(experiment.layout)
  test.addCleanup(os.close, descriptor)
  return shared_memory.address(descriptor)
