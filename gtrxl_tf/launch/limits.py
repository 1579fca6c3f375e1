"""Checks that a network and a batch fit in this machine's memory."""

import contextlib
import math
from typing import Any, Iterator

import tensorflow as tf
import tree

from gtrxl_tf import machine
from gtrxl_tf.replay import mapped
from gtrxl_tf.replay import prioritized
from gtrxl_tf.replay import rings
from gtrxl_tf.settings import config
from gtrxl_tf.training import experiment as experiment_lib
from gtrxl_tf.training.online import inference_call


@contextlib.contextmanager
def checked_variables() -> Iterator[None]:
  """Checks, before each variable is made in this context, that there is memory for all.

  Variables may take half of the free memory, since their gradients need as much again.
  """
  free, needed = machine.free_bytes(), 0

  def create(create_next: Any, **settings) -> Any:
    nonlocal needed
    shape = tf.TensorShape(settings.get('shape'))
    if shape.is_fully_defined():
      dtype = tf.as_dtype(settings.get('dtype') or tf.float32)
      needed += math.prod(shape) * dtype.size
      if 2 * needed > free:
        raise config.ConfigError(
            f"the network's variables need at least {_gib(needed)}, with "
            f'{settings.get("name")} of shape {list(shape)}; this machine has '
            f'{_gib(free)} left for them and as many gradients: expected smaller or '
            'fewer layers')
    return create_next(**settings)

  with tf.variable_creator_scope(create):
    yield


def check_batch(experiment: experiment_lib.Experiment) -> None:
  """Checks that a batch, and what the processes share, fit in free memory.

  Also checks that the time steps of an actor fit in a call to an inference server.

  Only the data is counted: all columns of `Unroll` with the memory's records, in a batch,
  in the actors' rows or Reverb's queue, and in a replay table. The learner's activations
  often take more.

  Args:
    experiment: an online experiment, all of whose processes will be on this machine.
  """
  if experiment.inference is not None:
    inference_call.check_size(experiment)
  free = machine.free_bytes()
  signature = experiment.unroll_signature()
  item = sum(spec.shape.num_elements() * spec.dtype.size
             for spec in tree.flatten(signature))
  needed = experiment.items_per_batch * item
  if experiment.takes_turns or experiment.transport == 'memory':
    needed += mapped.size(rings.specs(experiment.layout))
  else:
    needed += experiment.queue_size * item
  if replay := experiment.replay:
    actions = replay.capacity * (experiment.unroll_length - replay.overlap)
    filled = min(1.0, experiment.environment_steps / actions)  # A short run leaves room.
    needed += int(filled * mapped.size(prioritized.specs(replay, signature)))
  if needed > free:
    raise config.ConfigError(
        f'a batch of {experiment.batch_size:,} and the unrolls of {experiment.num_actors} '
        f'actor(s) need at least {_gib(needed)}; this machine has {_gib(free)} left: '
        'expected a smaller batch_size, unroll_length, queue_batches or Replay.capacity')


def _gib(number: float) -> str:
  return f'{number / 2**30:,.1f} GiB'
