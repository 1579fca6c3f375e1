"""Exports a policy as a SavedModel that needs nothing but TensorFlow to load."""

import contextlib
import os
import pathlib
import shutil

from absl import logging
import tensorflow as tf
from tf_agents.policies import policy_saver

from gtrxl_tf.agents import policy as policy_lib


def save_policy(policy: policy_lib.ActorCriticPolicy, path: pathlib.Path) -> None:
  """Writes `policy` to the folder `path`, whole or not at all.

  The signatures are TF-Agents' own, with any batch size: `get_initial_state` takes
  `batch_size` and returns the memory; `action` takes step type, reward, discount,
  observation and memory, and returns the action, the policy's parameters and the next memory.
  """
  path = pathlib.Path(path)
  partial = path.with_name(path.name + '.partial')
  shutil.rmtree(partial, ignore_errors=True)
  with _only_errors_logged():
    policy_saver.PolicySaver(policy, batch_size=None).save(str(partial))
  shutil.rmtree(path, ignore_errors=True)
  os.replace(partial, path)


@contextlib.contextmanager
def _only_errors_logged():
  """Keeps warnings back: all are of what the SavedModel leaves out on purpose."""
  verbosity, level = logging.get_verbosity(), tf.get_logger().level
  logging.set_verbosity(logging.ERROR)
  tf.get_logger().setLevel('ERROR')
  try:
    yield
  finally:
    logging.set_verbosity(verbosity)
    tf.get_logger().setLevel(level)
