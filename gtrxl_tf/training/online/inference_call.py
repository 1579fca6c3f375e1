"""The calls between an inference server and the processes that step environments.

A call has the time steps of the E environments of an actor, and returns their actions.
Before the time steps it has three numbers: the actor's index; its session, a random
number; and how many calls of the session came before. A session begins with its
environments' first steps. The same call may be made again if its answer was lost: the
server does not act twice. A server that does not know the session, because it was
started again, says `RESET`. The actor then resets its environments and begins another
session.
"""

import math
from typing import Any

import tensorflow as tf

from gtrxl_tf import environments
from gtrxl_tf.networks import tensor_specs
from gtrxl_tf.settings import config
from gtrxl_tf.training.online import experiment as experiment_lib

# The server's methods.
ACT = 'act'            # Steps the policy for an actor.
SETTINGS = 'settings'  # Takes nothing, and returns the server's settings as JSON, or ''.

# What an answer says first, as bytes. Any other text is what the actor waits for: the
# server did not act, and the actor makes the same call again.
ACTED = b''
RESET = b'reset'
FINISHED = b'finished'  # The run is over.
REFUSED = b'refused: '  # Followed by the reason.

_MAX_BYTES = int(3.9 * 2**20)  # For time steps; gRPC's limit for a call is 4 MiB.


def seen_spec(experiment: experiment_lib.OnlineExperiment
              ) -> environments.BatchedTimeStep:
  """Returns the specs of a call's time steps, `[E, ...]`. The graph does not know E."""
  scalar = tf.TensorSpec([], tf.float32)
  return tensor_specs.with_batch(environments.BatchedTimeStep(
      step_type=tf.TensorSpec([], tf.int32), reward=scalar, discount=scalar,
      observation=tensor_specs.tensor_specs(experiment.observation_spec),
      episode_return=scalar, episode_success=scalar))


def check_size(experiment: experiment_lib.OnlineExperiment) -> None:
  """Checks that the calls are within the fixed limit of TensorFlow's RPC."""
  num = experiment.environments_per_actor
  size = num * sum(math.prod(spec.shape[1:]) * spec.dtype.size
                   for spec in tf.nest.flatten(seen_spec(experiment)))
  if size > _MAX_BYTES:
    expected = (f'at most {num * _MAX_BYTES // size}' if size <= num * _MAX_BYTES
                else 'smaller observations')
    raise config.ConfigError(
        f'OnlineExperiment.environments_per_actor = {num}: their time steps have '
        f'{size / 2**20:.1f} MiB, and a call to an inference server has at most '
        f'{_MAX_BYTES / 2**20:.1f}; expected {expected}')


def action_spec(experiment: experiment_lib.OnlineExperiment) -> Any:
  """Returns the specs of an answer's actions, `[E, ...]`."""
  return tensor_specs.with_batch(tensor_specs.tensor_specs(experiment.action_spec))
