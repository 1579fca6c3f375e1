"""Export of a policy as a SavedModel that loads with TensorFlow alone."""

import copy
import os
import pathlib
import shutil
from typing import Any

import tensorflow as tf
from tf_agents.policies import policy_saver
from tf_agents.trajectories import policy_step
from tf_agents.trajectories import time_step as ts

from gtrxl_tf.agents import policy as policy_lib
from gtrxl_tf.serving import exported
from gtrxl_tf.serving import json_values


def save_policy(policy: policy_lib.NetworkPolicy, path: pathlib.Path) -> None:
  """Writes `policy` to the folder `path`, atomically.

  The signatures are those of TF-Agents and accept any batch size. `get_initial_state`
  takes `batch_size` and returns the memory. `action` takes step type, reward, discount,
  observation and memory, and returns the action, the policy's parameters, if it offers
  them, and the next memory.

  The exported `action` raises `InvalidArgumentError` if an observation or a reward in
  any row of a batch is NaN or infinite; the message names it. At an episode's first
  step a reward that is NaN counts as 0. XLA omits such checks: if a caller compiles
  `action` with XLA, NaN inputs give NaN outputs.

  Where the policy samples, each program that loads it draws its own random numbers.
  After `loaded.metadata['repeats'].assign(True)` they are instead those of the seed
  that TensorFlow had when the policy was saved, the same in each program.

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
  repeats = tf.Variable(False, trainable=False, name='repeats')
  try:
    with exported.only_errors_logged():
      policy_saver.PolicySaver(
          _exported(policy, repeats), batch_size=None, metadata={'repeats': repeats}
          ).save(str(partial))
    exported.write_checksums(partial)
    shutil.rmtree(path, ignore_errors=True)
    os.replace(partial, path)
  except BaseException:
    shutil.rmtree(partial, ignore_errors=True)
    raise


def _exported(policy: policy_lib.NetworkPolicy, repeats: tf.Variable
              ) -> policy_lib.NetworkPolicy:
  """Returns a copy of a policy that checks its inputs and draws its own seeds; see
  `save_policy`."""

  def action(time_step: ts.TimeStep, policy_state: Any = (), seed: Any = None
             ) -> policy_step.PolicyStep:
    reward = time_step.reward
    unknown = time_step.is_first() & tf.math.is_nan(reward)
    reward = tf.where(unknown, tf.zeros_like(reward), reward)
    observation = json_values.leaves(time_step.observation, 'observation')
    time_step = time_step._replace(
        reward=_finite('reward', reward),
        observation=tf.nest.pack_sequence_as(
            time_step.observation, [_finite(*leaf) for leaf in observation.items()]))
    if seed is None:
      # The graph keeps the seed of `tf.random.set_seed` for the first, but the second
      # has none, so that TensorFlow seeds it when it is loaded.
      seed = tf.where(
          repeats, tf.random.uniform([2], maxval=tf.int32.max, dtype=tf.int32),
          tf.raw_ops.RandomUniformInt(shape=[2], minval=0, maxval=tf.int32.max))
    return policy.action(time_step, policy_state, seed)

  copied = copy.copy(policy)
  copied.action = action
  return copied


def _finite(name: str, x: tf.Tensor) -> tf.Tensor:
  """Returns `x` with a check, which raises an error unless `x` is finite."""
  if not x.dtype.is_floating:
    return x
  return tf.debugging.assert_all_finite(x, f'{name}: expected finite numbers')
