"""Checkpoints of a run: saved while it trains, and restored only where they fit.

The folder `checkpoints/` has what `tf.train.CheckpointManager` writes, each checkpoint
named after its learner step, and `stamp.json`, which identifies the experiment: its kind
and the variables of its agent. Nothing is pickled.
"""

import dataclasses
import functools
import os
import pathlib
import re
import shutil
from typing import Any, Callable, Dict, Literal, NamedTuple, Optional, Sequence, Set
import zipfile

from absl import logging
import numpy as np
import tensorflow as tf

import gtrxl_tf
from gtrxl_tf import files
from gtrxl_tf.settings import config
from gtrxl_tf.training import checkpoint_variables

_STAMP = 'stamp.json'
_BEST = 'best.npz'
_INDEX = 'ckpt-*.index'  # Written last.
# The errors of TensorFlow if a checkpoint is damaged or does not fit.
_TF_ERRORS = (
    tf.errors.OpError, RuntimeError, ValueError, IndexError, AssertionError)


class CheckpointError(config.ConfigError):
  """Checkpoints cannot be used, or not with these settings. The message is one line."""


class SaveFailed(Exception):
  """The last checkpoint of a run could not be saved. The message is one line."""


@config.configurable(name='Checkpoints')
@dataclasses.dataclass(frozen=True)
class Settings:
  """When checkpoints are saved, and which are kept.

  Args:
    period: learner steps between checkpoints.
    kept: how many of the newest are kept.
    keep_every_hours: one older checkpoint in every interval of this many hours is never
      removed; None to keep none of them.
    keep: whether the weights of the best evaluation are kept beside the last; not in the
      papers. `load_policy`, `gtrxl serve` and `gtrxl export` then take these, while
      comparisons take the last.
  """
  period: config.PositiveInt = 100
  kept: config.PositiveInt = 3
  keep_every_hours: Optional[config.PositiveFloat] = None
  keep: Literal['best', 'last'] = 'best'


class Checkpoints:
  """The checkpoints of a run: restores the newest, and saves new ones.

  An optimizer of Keras' legacy classes keeps its learning rate in the checkpoint, and
  has the old one again after `restore`.

  Attributes:
    latest: the newest checkpoint's path as TensorFlow takes it; None if there is none.
  """

  def __init__(self, folder: pathlib.Path, max_to_keep: int,
               keep_every_hours: Optional[float] = None, *, kind: str,
               agent: tf.Module, writes: bool = True,
               device: Optional[str] = None, **objects):
    """Creates the object. Nothing is read or written before `restore`.

    Args:
      folder: `checkpoints/` of a run.
      max_to_keep: see `Settings.kept`.
      keep_every_hours: see `Settings`.
      kind: the experiment's kind.
      agent: the agent, with all its variables.
      writes: whether this process is the one that saves, if several train together.
      device: the device that reads and writes the files, see `devices.of_files`.
      **objects: other objects that training depends on.
    """
    self.latest: Optional[str] = None
    self._folder = folder
    self._max_to_keep = max_to_keep
    self._keep_every_hours = keep_every_hours
    self._kind = kind
    self._agent = agent
    self._writes = writes
    self._options = tf.train.CheckpointOptions(experimental_io_device=device)
    self._checkpoint = tf.train.Checkpoint(agent=agent, **objects)
    self._manager: Optional[tf.train.CheckpointManager] = None

  def restore(self) -> Optional[str]:
    """Restores the newest checkpoint; returns its path, or None if there is none.

    Raises:
      CheckpointError: it is damaged, or does not fit. Nothing was changed.
    """
    self.latest = check(self._folder, self._kind, lambda: self._agent)
    if self.latest is not None:
      _read(self.latest, self._checkpoint, self._options)
    if self._writes:
      stamp = self._folder / _STAMP
      if not stamp.exists():
        self._folder.mkdir(parents=True, exist_ok=True)
        files.write_sealed(stamp, {
            'library': f'gtrxl_tf {gtrxl_tf.__version__}, TensorFlow {tf.__version__}',
            'kind': self._kind, 'variables': checkpoint_variables.agent_variables(self._agent)})
      for step in _steps(self._folder, 'ckpt-*') - _steps(self._folder, _INDEX):
        self._remove(step)  # Left by a process that was killed while it saved.
      self._manager = self._make_manager()
    return self.latest

  def _make_manager(self) -> tf.train.CheckpointManager:
    make = functools.partial(
        tf.train.CheckpointManager, self._checkpoint, self._folder, self._max_to_keep,
        self._keep_every_hours)
    try:
      return make()
    except ValueError:  # The manager's list is damaged; the checkpoints are not.
      (self._folder / 'checkpoint').unlink()
      return make()

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
    path = _path(self._folder, step)
    if path == self.latest:
      return True
    try:
      self._manager.save(step, options=self._options)
    except (OSError, tf.errors.OpError) as error:
      # The manager's list may differ from what is on the disk.
      self._manager = self._make_manager()
      if self._manager.latest_checkpoint != path:
        self._remove(step)
        text = (f'checkpoint {step} was not saved in {self._folder}: '
                f'{config.one_line(error)}; the newest is {self.latest or "none"}')
        if last:
          raise SaveFailed(text) from error
        logging.error('%s; training continues', text)
        return False
    self.latest = path
    return True

  def _remove(self, step: int) -> None:
    """Removes what a failed or interrupted save has left."""
    for file in self._folder.glob(f'ckpt-{step}[._]*'):
      shutil.rmtree(file) if file.is_dir() else file.unlink()


class Best(NamedTuple):
  """The weights with which a run did best in an evaluation."""
  measure: float  # The mean return, or the score.
  learner_step: int
  environment_steps: int  # 0 in an offline run.
  weights: Sequence[np.ndarray]


def save_best(folder: pathlib.Path, best: Best) -> None:
  """Writes the best weights, in place of those before."""
  path = folder / _BEST
  partial = path.with_suffix('.partial.npz')
  folder.mkdir(parents=True, exist_ok=True)
  np.savez(partial, facts=best[:3], **{f'{i:04}': x for i, x in enumerate(best.weights)})
  os.replace(partial, path)


def load_best(folder: pathlib.Path) -> Optional[Best]:
  """Reads the best weights; None if there are none, or they cannot be read."""
  try:
    with np.load(folder / _BEST, allow_pickle=False) as saved:
      measure, *steps = saved['facts'].tolist()
      return Best(measure, *map(int, steps), [
          saved[name] for name in sorted(set(saved.files) - {'facts'})])
  except (OSError, ValueError, KeyError, zipfile.BadZipFile):
    return None


def read_stamp(folder: pathlib.Path) -> Dict[str, Any]:
  """Returns what identifies the experiment of checkpoints: `library`, `kind`, `variables`.

  Raises:
    files.DamagedFile: it is missing, or was changed.
  """
  return files.read_sealed(folder / _STAMP, 'kind', 'variables')


def check(folder: pathlib.Path, kind: Optional[str],
          make_agent: Callable[[], tf.Module]) -> Optional[str]:
  """Checks that training can resume in a folder, without changing anything.

  Args:
    folder: `checkpoints/` of a run; it need not exist.
    kind: the kind of experiment that would resume there; None for any.
    make_agent: makes its agent; called only if a run was started in the folder.

  Returns:
    The path of the newest checkpoint, if there is one.

  Raises:
    CheckpointError: the checkpoint is damaged, or the folder belongs to another kind of
      experiment or another network.
    config.ConfigError: the folder's path is a pattern, see `config.check_plain`.
  """
  steps = sorted(_steps(folder, _INDEX) | _listed(folder), reverse=True)
  stamp = folder / _STAMP
  if not stamp.exists():
    if steps:
      raise CheckpointError(f'{stamp}: missing: expected it beside checkpoints')
    return None
  try:
    experiment = read_stamp(folder)
  except files.DamagedFile as error:
    raise CheckpointError(str(error)) from error
  if kind not in (None, experiment['kind']):
    raise CheckpointError(
        f'{folder} belongs to an experiment of kind {experiment["kind"]}: expected '
        f'{kind}, as in the settings; another experiment needs another folder')
  config.check_plain(folder)
  newest = _newest_intact(folder, steps)
  saved = {path: checkpoint_variables.Variable(tuple(shape), dtype)
           for path, (shape, dtype) in experiment['variables'].items()}
  difference = checkpoint_variables.difference(
      saved, checkpoint_variables.agent_variables(make_agent()))
  if difference:
    raise CheckpointError(
        f'{folder} belongs to another network than that of the settings: {difference}')
  return newest


def _newest_intact(folder: pathlib.Path, steps: Sequence[int]) -> Optional[str]:
  """Returns the newest checkpoint, of these steps; None if there is none.

  Raises:
    CheckpointError: it is damaged. The message says how to resume from an older one.
  """
  damaged, first = [], None
  for step in steps:
    path = _path(folder, step)
    try:
      reader = tf.train.load_checkpoint(path)
      for name in reader.get_variable_to_shape_map():
        reader.get_tensor(name)  # TensorFlow compares its checksum.
    except _TF_ERRORS as error:
      first = first or f'{path}: is damaged: {config.one_line(error)}'
      damaged.append(f'ckpt-{step}.*')
    else:
      if first is None:
        return path
      raise CheckpointError(
          f'{first}. The newest intact checkpoint is ckpt-{step}: to resume from it, '
          f'remove {", ".join(damaged)} from {folder}')
  if first is not None:
    raise CheckpointError(
        f'{first}. No checkpoint is intact: to start again, use another folder')
  return None


def _path(folder: pathlib.Path, step: int) -> str:
  """Returns the path of a checkpoint as TensorFlow takes it."""
  return str(folder / f'ckpt-{step}')


def _steps(folder: pathlib.Path, pattern: str) -> Set[int]:
  """Returns the steps of the checkpoints' files that match."""
  names = [re.match(r'ckpt-(\d+)[._]', path.name) for path in folder.glob(pattern)]
  return {int(name[1]) for name in names if name}


def _listed(folder: pathlib.Path) -> Set[int]:
  """Returns the steps that the manager lists and that have files.

  A checkpoint without an index was copied in part; it must not be passed over silently.
  """
  try:
    text = (folder / 'checkpoint').read_bytes()
  except FileNotFoundError:
    return set()
  listed = {int(number) for number in re.findall(rb'ckpt-(\d+)"', text)}
  return listed & _steps(folder, 'ckpt-*')


def restore_agent(folder: pathlib.Path, agent: tf.Module, **objects) -> None:
  """Restores an agent from the newest checkpoint of a folder.

  Args:
    folder: `checkpoints/` of a run.
    agent: the agent, with its variables.
    **objects: other objects of the checkpoint, see `Checkpoints`.

  Raises:
    FileNotFoundError: there is no checkpoint.
    CheckpointError: it is damaged, or of another agent or other networks.
  """
  newest = check(folder, None, lambda: agent)
  if newest is None:
    raise FileNotFoundError(f'no checkpoint in {folder}')
  _read(newest, tf.train.Checkpoint(agent=agent, **objects))


def _read(path: str, checkpoint: tf.train.Checkpoint,
          options: Optional[tf.train.CheckpointOptions] = None) -> None:
  try:
    # Partial, because a checkpoint has more than an agent.
    checkpoint.read(path, options).expect_partial().assert_existing_objects_matched()
  except _TF_ERRORS as error:
    raise CheckpointError(f'{path} does not have the parts that these settings make: '
                          f'{config.one_line(error)}') from error
