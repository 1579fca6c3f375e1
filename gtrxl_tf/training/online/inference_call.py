"""What an inference server and the processes that step environments send each other.

An actor, a batch of E environments, has a connection. It sends `HELLO`, and gets the
length of a text and the text, JSON: the server's `settings`, and why it is `refused` or
`busy`, if it is. It then sends its time steps again and again, and gets actions for each.
Both are arrays one after the other, of shapes that both sides know.
"""

import socket
import struct
from typing import Any, List

import numpy as np
import tensorflow as tf

from gtrxl_tf import environments
from gtrxl_tf.networks import tensor_specs
from gtrxl_tf.replay import mapped
from gtrxl_tf.training.online import experiment as experiment_lib

# What it is, the actor's index, and the bytes of the time steps and of an answer.
HELLO = struct.Struct('!8sqqq')
MAGIC = b'gtrxlact'
LENGTH = struct.Struct('!8sq')  # `MAGIC`, and the length of the text.


def seen_spec(experiment: experiment_lib.OnlineExperiment
              ) -> environments.BatchedTimeStep:
  """Returns the specs of an actor's time steps, `[E, ...]`, with any E."""
  scalar = tf.TensorSpec([], tf.float32)
  return tensor_specs.with_batch(environments.BatchedTimeStep(
      step_type=tf.TensorSpec([], tf.int32), reward=scalar, discount=scalar,
      observation=tensor_specs.tensor_specs(experiment.observation_spec),
      episode_return=scalar, episode_success=scalar))


def action_spec(experiment: experiment_lib.OnlineExperiment) -> Any:
  """Returns the specs of an answer's actions, `[E, ...]`, with any E."""
  return tensor_specs.with_batch(tensor_specs.tensor_specs(experiment.action_spec))


def question(experiment: experiment_lib.OnlineExperiment) -> List[mapped.Spec]:
  """Returns the arrays that an actor sends."""
  return _arrays(seen_spec(experiment), experiment.environments_per_actor)


def answer(experiment: experiment_lib.OnlineExperiment) -> List[mapped.Spec]:
  """Returns the arrays that it gets: whether the run is over, and actions."""
  return [([1], np.int32),
          *_arrays(action_spec(experiment), experiment.environments_per_actor)]


def _arrays(nest: Any, num: int) -> List[mapped.Spec]:
  return [([num, *spec.shape[1:]], spec.dtype.as_numpy_dtype)
          for spec in tf.nest.flatten(nest)]


def receive(connection: socket.socket, size: int) -> bytearray:
  """Receives a number of bytes; raises an `OSError` if the connection ends before."""
  buffer = bytearray(size)
  left = memoryview(buffer)
  while left:
    count = connection.recv_into(left)
    if not count:
      raise ConnectionResetError('the connection was closed')
    left = left[count:]
  return buffer
