"""Checks that a run fits in this machine's memory, before anything is made."""

import contextlib
import math
from typing import Any, Iterator

import tensorflow as tf
import tree

from gtrxl_tf import machine
from gtrxl_tf.settings import config
from gtrxl_tf.training import experiment as experiment_lib
from gtrxl_tf.training.online import experiment as online_experiment

# The least memory that a process of a run needs.
_BYTES_PER_PROCESS = 32 * 2**20


@contextlib.contextmanager
def checked_variables() -> Iterator[None]:
  """Checks, before each variable is made in this context, that there is memory for all.

  Variables may take half of the free memory, since their gradients need as much again.

  Raises:
    config.ConfigError: they need more.
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


def check_row(experiment: experiment_lib.Experiment) -> None:
  """Checks that an unroll of one environment, with its memory, fits in free memory.

  Args:
    experiment: makes its acting network, if it has one.

  Raises:
    config.ConfigError: it does not.
  """
  if not isinstance(experiment, online_experiment.OnlineExperiment):
    return
  free = machine.free_bytes()
  needed = _item_bytes(experiment) // experiment.environments_per_actor
  if needed > free:
    raise config.ConfigError(
        f'an unroll of {experiment.unroll_length:,} steps with a memory of '
        f'{experiment.memory_length:,} needs at least {_gib(needed)}; this machine has '
        f'{_gib(free)} left: expected a smaller memory_length or unroll_length')


def check_run(experiment: experiment_lib.Experiment) -> None:
  """Checks that a run's batches and processes fit on this machine.

  Only the data is counted: the observations and actions of a batch; of an online run,
  all columns of a batch and of a full queue (`Unroll`), with the memory's records,
  before Reverb compresses them. The learner's activations, which often take more, the
  network and the actors' own rows are not.

  Args:
    experiment: the run's, all of whose processes will be on this machine.

  Raises:
    config.ConfigError: they need more memory than is free.
  """
  free = machine.free_bytes()
  if not experiment.needs_server:
    specs = tree.flatten((experiment.observation_spec, experiment.action_spec))
    needed = experiment.batch_size * sum(
        math.prod(x.shape) * x.dtype.itemsize for x in specs)
    if needed > free:
      raise config.ConfigError(
          f'a batch of {experiment.batch_size:,} rows needs at least {_gib(needed)}; this '
          f'machine has {_gib(free)} left: expected a smaller batch_size')
    return
  batch, queue = (_item_bytes(experiment) * number for number in (
      experiment.items_per_batch, experiment.queue_size))
  if batch + queue > free:
    raise config.ConfigError(
        f'a batch of {experiment.batch_size:,} unrolls of {experiment.unroll_length:,} '
        f'steps has {_gib(batch)} of data, and a full queue {_gib(queue)}; this machine '
        f'has {_gib(free)} left: expected smaller observations, or a smaller batch_size, '
        'unroll_length or queue_batches')
  needed = experiment.num_actors * _BYTES_PER_PROCESS
  if needed > free:
    raise config.ConfigError(
        f'OnlineExperiment.num_actors = {experiment.num_actors}: these processes need '
        f'at least {_gib(needed)}; this machine has {_gib(free)} left: expected fewer, '
        'or actors on other machines (`gtrxl actor`)')


def _item_bytes(experiment: online_experiment.OnlineExperiment) -> int:
  """Returns the bytes of an item of the queue, which has an unroll of each environment
  of an actor."""
  return sum(spec.shape.num_elements() * spec.dtype.size
             for spec in tf.nest.flatten(experiment.unroll_signature()))


def _gib(number: float) -> str:
  return f'{number / 2**30:,.1f} GiB'
