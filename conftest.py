"""Lets pytest run tests that are written for absl."""

import importlib.util
import os
import pathlib
import re
import tempfile

from absl import flags
import pytest
import tensorflow as tf

# Python 3.12 and later have neither Reverb nor TF-Agents. Files that test what is theirs import
# them; single tests have a mark of gtrxl_tf/replay/replay_testing.py.
_IMPORTED = re.compile(
    r'^(?:import|from) (ale_py|gymnasium|kubernetes_validate|reverb|tf_agents)\b', re.M)

if importlib.util.find_spec('tf_agents'):  # Test files may import it first.
  import gtrxl_tf.networks.before_tf_agents  # noqa: F401


def pytest_ignore_collect(collection_path: pathlib.Path):
  """Leaves out test files that import a package of an extra that is not installed."""
  if collection_path.name.endswith('_test.py'):
    imported = set(_IMPORTED.findall(collection_path.read_text(encoding='utf-8')))
    if not all(map(importlib.util.find_spec, imported)):
      return True
  return None


def pytest_configure():
  # Under absltest.main flags are parsed from the command line; here they keep their
  # defaults.
  flags.FLAGS.mark_as_parsed()


@pytest.fixture(scope='session', autouse=True)
def _temporary_folder(tmp_path_factory):
  """Makes all temporary files in a folder of this session, or of this xdist worker.

  The defaults are shared by all users of a machine: /tmp, and /tmp/absl_testing, which
  is missing until absltest.main makes it. pytest.ini says when the folder is removed.
  """
  folder = str(tmp_path_factory.mktemp('test'))
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(flags.FLAGS, 'test_tmpdir', folder)
    patch.setattr(tempfile, 'tempdir', folder)
    patch.setitem(os.environ, 'TMPDIR', folder)  # Of child processes.
    yield


@pytest.fixture(autouse=True)
def _seed():
  # Once something has seeded Keras, initial values depend on all tests run since.
  tf.keras.utils.set_random_seed(0)


def pytest_collection_modifyitems(items):
  # tf.test.TestCase has a method of this name, which is a context and not a test.
  items[:] = [item for item in items if item.name != 'test_session']
