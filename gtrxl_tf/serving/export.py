"""Export of a policy as a SavedModel that loads with TensorFlow alone."""

import os
import pathlib
import shutil
from typing import Any, Callable, Dict, NamedTuple, Sequence, Union

import dm_env
from google.protobuf import text_format
import tensorflow as tf

from gtrxl_tf.agents import policy as policy_lib
from gtrxl_tf.serving import exported
from gtrxl_tf.serving import json_values
from gtrxl_tf.settings import config


class Trajectory(NamedTuple):
  """Specs of the steps of an exported policy, as TF-Agents writes and reads them."""
  step_type: Any
  observation: Any
  action: Any
  policy_info: Any
  next_step_type: Any
  reward: Any
  discount: Any


def save_policy(policy: policy_lib.NetworkPolicy, path: Union[str, pathlib.Path]
                ) -> None:
  """Writes `policy` to the folder `path`, atomically.

  The files and functions are those of TF-Agents' `PolicySaver`. The functions accept
  any batch size. `get_initial_state` takes `batch_size` and returns the memory.
  `action` takes step type, reward, discount, observation and memory, and returns the
  action, the policy's parameters, if it offers them, and the next memory. Both are also
  signatures, with flat names such as `0/reward`.

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
  >>> network = networks.CQLNetwork(action_spec, networks.VectorTorso([8]))
  >>> network.create_variables(observation_spec)
  >>> policy = agents.CQLPolicy(network, observation_spec, action_spec)
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   export.save_policy(policy, pathlib.Path(folder) / 'policy')
  ...   loaded = tf.saved_model.load(f'{folder}/policy')
  >>> sorted(loaded.signatures)
  ['action', 'get_initial_state']
  """
  path = pathlib.Path(path)
  empty = path.is_dir() and not any(path.iterdir())
  if path.exists() and not empty and not (path / exported.CHECKSUMS).exists():
    raise config.ConfigError(
        f'{path} exists and is not an exported policy: expected a new or empty folder')
  partial, old = (path.with_name(path.name + end) for end in ('.partial', '.replaced'))
  for left in partial, old:  # A process that was killed may have left them.
    shutil.rmtree(left, ignore_errors=True)
  repeats = tf.Variable(False, trainable=False, name='repeats')
  module = tf.Module()
  module.metadata = {'repeats': repeats}
  module.model_variables = policy.variables
  module.action = tf.function(_checked_action(policy, repeats), autograph=False)
  module.get_initial_state = tf.function(policy.get_initial_state, autograph=False)
  seen = [_named(policy.time_step_spec, '0'), _named(policy.policy_state_spec, '1')]
  batch_size = [tf.TensorSpec([], tf.int32, 'batch_size')]
  signatures = {
      'action': _flat(module.action, seen, lambda step: {
          **json_values.leaves(step.action, 'action'),
          **json_values.leaves(step.state, 'state'),
          **json_values.leaves(step.info, 'info')}),
      'get_initial_state': _flat(
          module.get_initial_state, batch_size, lambda memory: {
              name.removeprefix('memory/'): x
              for name, x in json_values.leaves(memory, 'memory').items()})}
  try:
    with exported.only_errors_logged():
      tf.saved_model.save(module, str(partial), signatures)
    (partial / exported.SPECS).write_text(_specs_text(policy), encoding='utf-8')
    exported.write_checksums(partial)
    if path.exists():
      os.rename(path, old)  # A kill within `rmtree` would leave a folder without a policy.
    os.replace(partial, path)
    shutil.rmtree(old, ignore_errors=True)
  except BaseException:
    shutil.rmtree(partial, ignore_errors=True)
    raise


def _checked_action(policy: policy_lib.NetworkPolicy, repeats: tf.Variable
                    ) -> Callable[..., policy_lib.PolicyStep]:
  """Returns the `action` of a policy, with checks of its inputs and its own seeds.

  `save_policy` describes the checks and the seeds.
  """

  def action(time_step: dm_env.TimeStep, policy_state: Any, seed: None = None
             ) -> policy_lib.PolicyStep:
    del seed  # TF-Agents passes one.
    reward = time_step.reward
    unknown = time_step.first() & tf.math.is_nan(reward)
    reward = tf.where(unknown, tf.zeros_like(reward), reward)
    observation = json_values.leaves(time_step.observation, 'observation')
    time_step = time_step._replace(
        reward=_finite('reward', reward),
        observation=tf.nest.pack_sequence_as(
            time_step.observation, [_finite(*leaf) for leaf in observation.items()]))
    # The graph keeps the seed of `tf.random.set_seed` for the first operation. The
    # second has none, so that TensorFlow seeds it when the graph is loaded.
    seed = tf.where(
        repeats, tf.random.uniform([2], maxval=tf.int32.max, dtype=tf.int32),
        tf.raw_ops.RandomUniformInt(shape=[2], minval=0, maxval=tf.int32.max))
    return policy.action(time_step, policy_state, seed)

  return action


def _flat(function: Callable[..., Any], inputs: Sequence[Any],
          names: Callable[[Any], Dict[str, tf.Tensor]]) -> Callable[..., Any]:
  """Returns a function from named tensors to a dictionary of them, for a signature."""
  @tf.function(autograph=False, input_signature=tf.nest.flatten(inputs))
  def flat(*tensors):
    return names(function(*tf.nest.pack_sequence_as(inputs, tensors)))

  return flat


def _named(nest: Any, name: str) -> Any:
  """Returns the tensor specs of a batch, with the names of `json_values.leaves`."""
  return tf.nest.pack_sequence_as(nest, [
      tf.TensorSpec([None, *spec.shape], spec.dtype, name)
      for name, spec in json_values.leaves(nest, name).items()])


def _specs_text(policy: policy_lib.NetworkPolicy) -> str:
  """Returns the text of `exported.SPECS`."""
  time_step = policy.time_step_spec
  recorded = Trajectory(
      time_step.step_type, time_step.observation, policy.action_spec, policy.info_spec,
      time_step.step_type, time_step.reward, time_step.discount)
  return text_format.MessageToString(tf.__internal__.saved_model.encode_structure(
      {'collect_data_spec': recorded, 'policy_state_spec': policy.policy_state_spec}))


def _finite(name: str, x: tf.Tensor) -> tf.Tensor:
  """Returns `x` with a check, which raises an error unless `x` is finite."""
  if not x.dtype.is_floating:
    return x
  return tf.debugging.assert_all_finite(x, f'{name}: expected finite numbers')
