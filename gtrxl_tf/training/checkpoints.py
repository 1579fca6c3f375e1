"""Checkpoints of a run: saved while it trains, and restored only where they fit.

The folder `checkpoints/` has what `tf.train.CheckpointManager` writes, each checkpoint
named after its learner step, and `stamp.json`, which identifies the experiment: its kind
and the variables of its agent. Nothing is pickled.
"""

import collections
import dataclasses
import os
import pathlib
import re
import shutil
from typing import Any, Callable, Dict, List, Literal, NamedTuple, Optional, Sequence, Set
import zipfile

from absl import logging
import numpy as np
import tensorflow as tf

import gtrxl_tf
from gtrxl_tf import files
from gtrxl_tf.settings import config
from gtrxl_tf.settings import errors

_STAMP = 'stamp.json'
_BEST = 'best.npz'
_INDEX = 'ckpt-*.index'  # Written last.
_SHOWN = 4  # Variables in a message, for each kind of difference.
# The errors of TensorFlow if a checkpoint is damaged or does not fit.
_TF_ERRORS = (tf.errors.OpError, RuntimeError, ValueError, IndexError, AssertionError)


class CheckpointError(config.ConfigError):
  """Checkpoints cannot be used, or not with these settings. The message is one line."""


class SaveFailed(errors.RunFailed):
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
    """Restores the newest checkpoint; returns its path, or None if there is none."""
    self.latest = check(self._folder, self._kind, lambda: self._agent)
    if self.latest is not None:
      _read(self.latest, self._checkpoint, self._options)
    if self._writes:
      stamp = self._folder / _STAMP
      if not stamp.exists():
        self._folder.mkdir(parents=True, exist_ok=True)
        files.write_sealed(stamp, {
            'library': f'gtrxl_tf {gtrxl_tf.__version__}, TensorFlow {tf.__version__}',
            'kind': self._kind, 'variables': _variables(self._agent)})
      for step in _steps(self._folder, 'ckpt-*') - _steps(self._folder, _INDEX):
        self._remove(step)  # Left by a process that was killed while it saved.
      self._manager = self._make_manager()
    return self.latest

  def _make_manager(self) -> tf.train.CheckpointManager:
    return tf.train.CheckpointManager(
        self._checkpoint, self._folder, self._max_to_keep, self._keep_every_hours)

  def save(self, step: int, last: bool = False) -> bool:
    """Saves a checkpoint of learner step `step`; returns whether that succeeded.

    A failure, as on a full disk, is logged and leaves earlier checkpoints unchanged. That
    of the run's `last` checkpoint is a `SaveFailed`.
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
  """Returns what identifies the experiment of checkpoints: `library`, `kind`, `variables`."""
  return files.read_sealed(folder / _STAMP, 'kind', 'variables')


def check(folder: pathlib.Path, kind: Optional[str],
          make_agent: Callable[[], tf.Module]) -> Optional[str]:
  """Checks that training can resume in a folder, without changing anything.

  It raises a `CheckpointError` if the newest checkpoint is damaged, or if the folder
  belongs to another kind of experiment or another network.

  Args:
    folder: `checkpoints/` of a run; it need not exist.
    kind: the kind of experiment that would resume there; None for any.
    make_agent: makes its agent; called only if a run was started in the folder.

  Returns:
    The path of the newest checkpoint, if there is one.
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
  if difference := _difference(experiment['variables'], _variables(make_agent())):
    raise CheckpointError(
        f'{folder} belongs to another network than that of the settings: {difference}')
  return newest


def _variables(agent: tf.Module) -> Dict[str, List[Any]]:
  """Returns shape and type of the variables of an agent, by their paths in it."""
  # `seen` keeps the objects: some are made on demand, and their ids would be used again.
  seen, queue, found = {id(agent): agent}, collections.deque([('agent', agent)]), {}
  while queue:
    path, node = queue.popleft()
    if isinstance(node, tf.Variable):
      found[path] = [list(node.shape), node.dtype.name]
    for name, child in tf.train.TrackableView.children(node).items():
      if id(child) not in seen:
        seen[id(child)] = child
        queue.append((f'{path}/{name}', child))
  return found


def _difference(saved: Dict[str, List[Any]], expected: Dict[str, List[Any]]) -> str:
  """Describes in a line how variables differ from the expected; '' if they do not."""
  def text(variable):
    return f'{variable[0]} {variable[1]}'

  kinds = {
      'it has ': [f'{path} {text(saved[path])} (expected {text(x)})'
                  for path, x in expected.items() if saved.get(path, x) != x],
      'it lacks ': [f'{path} {text(x)}' for path, x in expected.items() if path not in saved],
      'it has what was not expected, ': [
          f'{path} {text(x)}' for path, x in saved.items() if path not in expected]}
  return '; '.join(
      kind + ', '.join(items[:_SHOWN])
      + (f' and {len(items) - _SHOWN} more' if len(items) > _SHOWN else '')
      for kind, items in kinds.items() if items)


def _newest_intact(folder: pathlib.Path, steps: Sequence[int]) -> Optional[str]:
  """Returns the newest checkpoint, of these steps; None if there is none."""
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
  """Returns the steps that the manager lists and that have files, if only in part."""
  listing = folder / 'checkpoint'
  text = listing.read_bytes() if listing.exists() else b''
  listed = {int(number) for number in re.findall(rb'ckpt-(\d+)"', text)}
  return listed & _steps(folder, 'ckpt-*')


def restore_agent(folder: pathlib.Path, agent: tf.Module, **objects) -> None:
  """Restores an agent, and other objects, from the newest checkpoint of a folder."""
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
