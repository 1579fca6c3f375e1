"""Export of a policy as a SavedModel that loads with TensorFlow alone."""

import contextlib
import os
import pathlib
import shutil
from typing import Iterator

from absl import logging
import tensorflow as tf
from tf_agents.policies import policy_saver

from gtrxl_tf.agents import policy as policy_lib


def save_policy(policy: policy_lib.NetworkPolicy, path: pathlib.Path) -> None:
  """Writes `policy` to the folder `path`, atomically.

  The signatures are those of TF-Agents and accept any batch size. `get_initial_state`
  takes `batch_size` and returns the memory. `action` takes step type, reward, discount,
  observation and memory, and returns the action, the policy's parameters, if it offers
  them, and the next memory.

  >>> import pathlib
  >>> import tempfile
  >>> from dm_env import specs
  >>> import numpy as np
  >>> from gtrxl_tf import agents
  >>> from gtrxl_tf import networks
  >>> from gtrxl_tf.serving import export
  >>> observation_spec = specs.Array((5,), np.float32)
  >>> action_spec = specs.DiscreteArray(3)
  >>> network = agents.CQLNetwork(action_spec, networks.VectorTorso([8]))
  >>> network.create_variables(observation_spec)
  >>> policy = agents.CQLPolicy(network, observation_spec, action_spec)
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   export.save_policy(policy, pathlib.Path(folder) / 'policy')
  ...   loaded = tf.saved_model.load(f'{folder}/policy')
  >>> sorted(loaded.signatures)
  ['action', 'get_initial_state', 'get_metadata', 'get_train_step']
  """
  path = pathlib.Path(path)
  partial = path.with_name(path.name + '.partial')
  shutil.rmtree(partial, ignore_errors=True)
  with _only_errors_logged():
    policy_saver.PolicySaver(policy, batch_size=None).save(str(partial))
  shutil.rmtree(path, ignore_errors=True)
  os.replace(partial, path)


@contextlib.contextmanager
def _only_errors_logged() -> Iterator[None]:
  """Suppresses warnings, all of which are about parts that are left out on purpose."""
  verbosity, level = logging.get_verbosity(), tf.get_logger().level
  logging.set_verbosity(logging.ERROR)
  tf.get_logger().setLevel('ERROR')
  try:
    yield
  finally:
    logging.set_verbosity(verbosity)
    tf.get_logger().setLevel(level)
