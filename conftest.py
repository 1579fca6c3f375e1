"""Lets pytest run tests that are written for absl."""

from absl import flags

import gtrxl_tf.before_tf_agents  # Test files may import tf_agents first.


def pytest_configure():
  # Under absltest.main flags are parsed from the command line; here they keep their
  # defaults.
  flags.FLAGS.mark_as_parsed()


def pytest_collection_modifyitems(items):
  # tf.test.TestCase has a method of this name, which is a context and not a test.
  items[:] = [item for item in items if item.name != 'test_session']
