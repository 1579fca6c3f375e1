"""Checkpoints of a run: saved atomically, and restored only where they fit."""

import dataclasses
import importlib.metadata
import math
import pathlib
import time
from typing import Callable, Dict, Optional

from absl import logging
import tensorflow as tf

from gtrxl_tf import config
from gtrxl_tf.training import checkpoint_files
from gtrxl_tf.training import checkpoint_variables

CheckpointError = checkpoint_files.CheckpointError


class SaveFailed(Exception):
  """The last checkpoint of a run could not be saved. The message is one line."""


@config.configurable(name='Checkpoints')
@dataclasses.dataclass(frozen=True)
class Settings:
  """When checkpoints are saved, and which are kept.

  Args:
    period: learner steps between checkpoints.
    kept: how many of the newest are kept.
    keep_every_hours: one older checkpoint in every such interval is never removed; None
      for none of them.
  """
  period: config.PositiveInt = 100
  kept: config.PositiveInt = 3
  keep_every_hours: Optional[config.PositiveFloat] = None


class Checkpoints:
  """The checkpoints of a run: restores the newest, and saves new ones.

  Attributes:
    latest: the newest checkpoint's path as TensorFlow takes it; None if there is none.
  """

  def __init__(self, folder: pathlib.Path, max_to_keep: int,
               keep_every_hours: Optional[float] = None, *, kind: str,
               agent: tf.Module, writes: bool = True, **objects):
    """Creates the object. Nothing is read or written before `restore`.

    Args:
      folder: `checkpoints/` of a run.
      max_to_keep: see `Settings.kept`.
      keep_every_hours: see `Settings`.
      kind: the experiment's kind.
      agent: the agent, with all its variables.
      writes: whether this process saves, of several that train together.
      **objects: other objects that training depends on.
    """
    self.latest: Optional[str] = None
    self._files = checkpoint_files.CheckpointFiles(folder)
    self._max_to_keep = max_to_keep
    self._keep_every_hours = keep_every_hours
    self._kind = kind
    self._agent = agent
    self._writes = writes
    self._checkpoint = tf.train.Checkpoint(agent=agent, **objects)
    self._saved: Optional[Dict[int, float]] = None  # Times, by step.

  def restore(self) -> Optional[str]:
    """Restores the newest checkpoint; returns its path, or None if there is none.

    Raises:
      CheckpointError: it is damaged, or does not fit. Nothing was changed.
    """
    self.latest = check(self._files.folder, self._kind, lambda: self._agent)
    if self.latest is not None:
      _read(self.latest, self._checkpoint)
    if self._writes:
      self._files.write_stamp(
          library=f'gtrxl_tf {_library_version()}, TensorFlow {tf.__version__}',
          kind=self._kind, variables=checkpoint_variables.of_agent(self._agent))
      self._saved = self._files.saved()
      for step in self._files.steps_of_files() - set(self._saved):
        self._files.remove(step)  # Left by a process that was killed while it saved.
    return self.latest

  def save(self, step: int, last: bool = False) -> bool:
    """Saves a checkpoint of learner step `step`; returns whether that succeeded.

    A failure, as on a full disk, is logged and leaves earlier checkpoints unchanged.

    Args:
      step: the learner step.
      last: whether it is the run's last, which is not tried again.

    Raises:
      SaveFailed: the last checkpoint could not be saved.
    """
    if not self._writes:
      return True
    if self._saved is None:
      raise ValueError('save was called before restore: expected restore first')
    if step in self._saved:
      return True
    saved = {**self._saved, step: time.time()}
    kept = self._kept(saved)
    try:
      self._checkpoint.write(self._files.path(step))
      self._files.write_record(step, saved[step])
      self._files.write_names(kept)
    except (OSError, tf.errors.OpError) as error:
      self._files.remove(step)
      text = (f'checkpoint {step} was not saved in {self._files.folder}: '
              f'{config.one_line(error)}; the newest is {self.latest or "none"}')
      if last:
        raise SaveFailed(text) from error
      logging.error('%s; training continues', text)
      return False
    for old in set(saved) - set(kept):
      self._files.remove(old)
    self._saved = {step: saved[step] for step in kept}
    self.latest = self._files.path(step)
    return True

  def _kept(self, saved: Dict[int, float]) -> list[int]:
    """Returns the steps of the checkpoints to keep, in ascending order."""
    steps = sorted(saved)
    older, newest = steps[:-self._max_to_keep], steps[-self._max_to_keep:]
    kept, last = [], -math.inf
    for step in older if self._keep_every_hours is not None else ():
      if saved[step] >= last + 3600 * self._keep_every_hours:
        kept.append(step)
        last = saved[step]
    return kept + newest


def check(folder: pathlib.Path, kind: Optional[str],
          make_agent: Callable[[], tf.Module]) -> Optional[str]:
  """Checks that training can resume in a folder, without changing anything.

  Args:
    folder: `checkpoints/` of a run; it need not exist.
    kind: the kind of experiment that would resume there; None for any.
    make_agent: makes its agent; called only if there is a checkpoint to compare with.

  Returns:
    The path of the newest checkpoint, if there is one.

  Raises:
    CheckpointError: the checkpoint is damaged, or the folder belongs to another kind of
      experiment or another network.
  """
  files = checkpoint_files.CheckpointFiles(folder)
  stamp = files.read_stamp()
  if stamp is not None and kind not in (None, stamp['kind']):
    raise CheckpointError(
        f'{folder} belongs to an experiment of kind {stamp["kind"]}: expected {kind}, '
        'as in the settings; another experiment needs another folder')
  step = files.newest()
  if stamp is None:
    return None
  saved = {path: checkpoint_variables.Variable(tuple(shape), dtype)
           for path, (shape, dtype) in stamp['variables'].items()}
  difference = checkpoint_variables.difference(
      saved, checkpoint_variables.of_agent(make_agent()))
  if difference:
    raise CheckpointError(
        f'{folder} belongs to another network than that of the settings: {difference}')
  return None if step is None else files.path(step)


def restore_agent(folder: pathlib.Path, agent: tf.Module) -> None:
  """Restores an agent from the newest checkpoint of a folder.

  Args:
    folder: `checkpoints/` of a run.
    agent: the agent, with its variables.

  Raises:
    FileNotFoundError: there is no checkpoint.
    CheckpointError: it is damaged, or of another agent or other networks.
  """
  newest = check(folder, None, lambda: agent)
  if newest is None:
    raise FileNotFoundError(f'no checkpoint in {folder}')
  _read(newest, tf.train.Checkpoint(agent=agent))


def _read(path: str, checkpoint: tf.train.Checkpoint) -> None:
  try:
    # Partial, because a checkpoint has more than an agent.
    checkpoint.read(path).expect_partial().assert_existing_objects_matched()
  except checkpoint_files.TF_ERRORS as error:
    raise CheckpointError(f'{path} does not have the parts that these settings make: '
                          f'{config.one_line(error)}') from error


def _library_version() -> str:
  try:
    return importlib.metadata.version('gtrxl_tf')
  except importlib.metadata.PackageNotFoundError:
    return '(not installed)'
