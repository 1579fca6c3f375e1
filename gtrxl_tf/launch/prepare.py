"""Reads settings, and makes an experiment that works and fits in this machine's memory."""

import inspect
from typing import Callable, Sequence

import gin
import tensorflow as tf
import tree

from gtrxl_tf import machine
from gtrxl_tf.launch import configurables  # noqa: F401 (for gin)
from gtrxl_tf.replay import mapped
from gtrxl_tf.replay import memory_replay
from gtrxl_tf.settings import config
from gtrxl_tf.settings import differences
from gtrxl_tf.training import experiment as experiment_lib
from gtrxl_tf.training.offline import experiment as offline_experiment
from gtrxl_tf.training.offline import history_experiment
from gtrxl_tf.training.online import experiment as online_experiment

_KINDS = (online_experiment.OnlineExperiment, offline_experiment.OfflineExperiment,
          history_experiment.HistoryExperiment)


@config.configurable(name='train')
def experiment_kind(
    experiment: Callable[..., experiment_lib.Experiment] = (
        online_experiment.OnlineExperiment)
    ) -> Callable[..., experiment_lib.Experiment]:
  """Returns the kind of experiment, as in `train.experiment = @OfflineExperiment`."""
  return experiment


def prepare(gin_files: Sequence[str], gin_bindings: Sequence[str], check: bool = True
            ) -> experiment_lib.Experiment:
  """Reads settings and makes the experiment that they name.

  Args:
    gin_files: files of settings.
    gin_bindings: single settings, which override the files.
    check: also plays an episode and makes every part once, so that errors show early.
  """
  config.parse(gin_files, gin_bindings)
  try:
    kind = experiment_kind()
    _check_settings_are_of(kind)
    experiment = kind()
    if not isinstance(experiment, experiment_lib.Experiment):
      raise config.ConfigError(
          f'train.experiment makes a {type(experiment).__name__}: expected one of '
          + ', '.join(f'@{known.__name__}' for known in _KINDS))
    experiment.settings = differences.given()
    try:
      if check:
        experiment.check()
    finally:
      experiment.close_prototype()
  except (ValueError, TypeError, OverflowError, MemoryError,
          tf.errors.ResourceExhaustedError) as error:
    raise config.ConfigError(config.one_line(error)) from error
  except RecursionError as error:
    raise config.ConfigError('the settings refer to themselves, as macros in a circle '
                             'do: x = %y, y = %x') from error
  return experiment


def _check_settings_are_of(kind: Callable[..., experiment_lib.Experiment]) -> None:
  """Raises a `ConfigError` for settings of another kind, which would be ignored."""
  if not inspect.isclass(kind):
    return
  for other in _KINDS:
    settings = gin.get_bindings(other.__name__, resolve_references=False)
    if settings and not issubclass(kind, other):
      raise config.ConfigError(
          f'{other.__name__}.{next(iter(settings))} is set, but train.experiment = '
          f'@{kind.__name__}: expected train.experiment = @{other.__name__}')


def check_batch(experiment: experiment_lib.Experiment) -> None:
  """Checks that a batch and what the processes of an online run share fit in free memory.

  Only the data is counted: a batch of unrolls, and the actors' rows or Reverb's queue. The
  learner's activations often take more. A replay table is on disk.
  """
  free = machine.free_bytes()
  item = sum(spec.shape.num_elements() * spec.dtype.size
             for spec in tree.flatten(experiment.unroll_signature()))
  needed = experiment.items_per_batch * item
  if experiment.takes_turns or experiment.transport == 'memory':
    needed += mapped.size(memory_replay.specs(experiment.layout))
  else:
    needed += experiment.queue_size * item
  if needed > free:
    raise config.ConfigError(
        f'a batch of {experiment.batch_size:,} and the unrolls of {experiment.num_actors} '
        f'actor(s) need at least {needed / 2**30:,.1f} GiB; this machine has '
        f'{free / 2**30:,.1f} GiB left: expected a smaller batch_size, unroll_length '
        'or queue_batches')
