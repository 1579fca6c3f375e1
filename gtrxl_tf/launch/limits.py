"""Refuses what does not fit in this machine's memory, before anything is made."""

import contextlib
import math
import pathlib
from typing import Any, Iterator

import tensorflow as tf
import tree

from gtrxl_tf import config
from gtrxl_tf.training import experiment as experiment_lib

# The least that a process of a run takes for itself alone, whatever it does.
_BYTES_PER_PROCESS = 32 * 2**20

_MEMINFO = pathlib.Path('/proc/meminfo')
# Of the container or service: limit, use, and what of the use can be taken back.
_CGROUPS = (('/sys/fs/cgroup/memory.max', '/sys/fs/cgroup/memory.current',
             '/sys/fs/cgroup/memory.stat', 'file'),
            ('/sys/fs/cgroup/memory/memory.limit_in_bytes',
             '/sys/fs/cgroup/memory/memory.usage_in_bytes',
             '/sys/fs/cgroup/memory/memory.stat', 'total_cache'))


def free_bytes() -> float:
  """The memory that this process may still take; infinite where that is unknown."""
  free = math.inf
  with contextlib.suppress(OSError, KeyError, ValueError, IndexError):
    free = 1024 * _table(_MEMINFO)['MemAvailable:']
  for limit, used, stat, cache in _CGROUPS:
    with contextlib.suppress(OSError, KeyError, ValueError, IndexError):  # Such as 'max'.
      limit, used = (int(pathlib.Path(x).read_text()) for x in (limit, used))
      free = min(free, limit - used + _table(pathlib.Path(stat))[cache])
  return free


def _table(path: pathlib.Path) -> dict[str, int]:
  lines = [line.split() for line in path.read_text(encoding='utf-8').splitlines()]
  return {line[0]: int(line[1]) for line in lines}


@contextlib.contextmanager
def checked_variables() -> Iterator[None]:
  """Refuses variables for which there is no memory, before they get their values.

  What trains needs at least as much again, for gradients.

  Raises:
    config.ConfigError: those made in this context need more than half of the memory.
  """
  free, needed = free_bytes(), 0

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


def check_run(experiment: experiment_lib.Experiment) -> None:
  """Refuses a run whose batches or processes do not fit on this machine.

  Args:
    experiment: the run's, all of whose processes this machine is to start.

  Raises:
    config.ConfigError: they need more memory than there is.
  """
  free = free_bytes()
  specs = tree.flatten((experiment.observation_spec, experiment.action_spec))
  steps = experiment.batch_size * getattr(experiment, 'unroll_length', 1)
  needed = steps * sum(math.prod(x.shape) * x.dtype.itemsize for x in specs)
  if needed > free:
    raise config.ConfigError(
        f'a batch of {experiment.batch_size:,} rows, {steps:,} steps, needs at least '
        f'{_gib(needed)}; this machine has {_gib(free)} left: expected a smaller '
        'batch_size or unroll_length')
  if not experiment.needs_server:
    return
  needed = experiment.num_actors * _BYTES_PER_PROCESS
  if needed > free:
    raise config.ConfigError(
        f'OnlineExperiment.num_actors = {experiment.num_actors}: these processes need '
        f'at least {_gib(needed)}; this machine has {_gib(free)} left: expected fewer, '
        'or actors on other machines (binaries.actor)')


def _gib(number: float) -> str:
  return f'{number / 2**30:,.1f} GiB'
