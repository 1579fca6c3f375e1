"""The files of a run's checkpoints: finds those that are complete, and reports damage.

The folder `checkpoints/` contains

  stamp.json    identifies the experiment: its kind and the variables of its agent;
                written before the first checkpoint
  ckpt-300.index, ckpt-300.data-*   written by TensorFlow at learner step 300
  ckpt-300.json sizes and checksums of these files, written after them; without it a
                checkpoint is incomplete and ignored
  checkpoint    names, for TensorFlow's own tools

Nothing is pickled.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple
import zlib

import tensorflow as tf

from gtrxl_tf import config
from gtrxl_tf import files as files_lib

VERSION = 1
# The errors of TensorFlow if a checkpoint is damaged or does not fit.
TF_ERRORS = (
    tf.errors.OpError, RuntimeError, ValueError, IndexError, AssertionError)


class CheckpointError(config.ConfigError):
  """Checkpoints cannot be used, or not with these settings. The message is one line."""


class CheckpointFiles:
  """The files in one folder, which need not exist. Steps are learner steps."""

  def __init__(self, folder: pathlib.Path):
    self.folder = pathlib.Path(folder)
    self._stamp = self.folder / 'stamp.json'

  def path(self, step: int) -> str:
    """Returns the path of a checkpoint as TensorFlow takes it."""
    return str(self.folder / f'ckpt-{step}')

  def _record(self, step: int) -> pathlib.Path:
    return self.folder / f'ckpt-{step}.json'

  def _files(self, step: int) -> List[pathlib.Path]:
    """Returns all files of a checkpoint, also those of an incomplete one."""
    patterns = f'ckpt-{step}.*', f'ckpt-{step}_temp*'
    return [file for pattern in patterns for file in self.folder.glob(pattern)]

  def steps_of_files(self) -> Set[int]:
    """Returns the steps of all checkpoints, complete or not."""
    names = [re.match(r'ckpt-(\d+)[._]', path.name)
             for path in self.folder.glob('ckpt-*')]
    return {int(name[1]) for name in names if name}

  def saved(self) -> Dict[int, float]:
    """Returns when the complete checkpoints were saved, by their steps."""
    return {step: _read_sealed(self._record(step), 'time')['time']
            for step in sorted(self.steps_of_files()) if self._record(step).exists()}

  def _named(self) -> Set[int]:
    """Returns the steps that `checkpoint` names and that still have files."""
    try:
      text = (self.folder / 'checkpoint').read_bytes()
    except FileNotFoundError:
      return set()
    named = {int(number) for number in re.findall(rb'ckpt-(\d+)"', text)}
    return named & self.steps_of_files()

  def newest(self) -> Optional[int]:
    """Returns the step of the newest checkpoint, or None if there is none.

    Raises:
      CheckpointError: it is damaged. The message says how to resume from an older one.
    """
    steps = self._named() | {
        step for step in self.steps_of_files() if self._record(step).exists()}
    if steps and not self._stamp.exists():
      raise CheckpointError(f'{self._stamp}: missing: expected it beside checkpoints')
    damaged, first = [], None
    for step in sorted(steps, reverse=True):
      damage = self._damage(step)
      if damage is None:
        if first is None:
          return step
        raise CheckpointError(
            f'{first}. The newest intact checkpoint is ckpt-{step}: to resume from it, '
            f'remove {", ".join(damaged)} from {self.folder}')
      first = first or damage
      damaged.append(f'ckpt-{step}.*')
    if first is not None:
      raise CheckpointError(
          f'{first}. No checkpoint is intact: to start again, use another folder')
    return None

  def _damage(self, step: int) -> Optional[str]:
    """Returns a description of the damage to a checkpoint, or None."""
    try:
      record = _read_sealed(self._record(step), 'step', 'time', 'files')
    except CheckpointError as error:
      return str(error)
    if record['step'] != step:
      return f'{self._record(step)}: has step {record["step"]}: expected {step}'
    for name, (size, checksum) in record['files'].items():
      file = self.folder / name
      if not file.exists():
        return f'{file}: missing'
      # Before the checksum, because it is cheaper and says more.
      found = file.stat().st_size
      if found != size:
        return f'{file}: has {found:,} bytes: expected {size:,}'
      found = files_lib.checksum(file)
      if found != checksum:
        return (f'{file}: was changed after it was written: its checksum is {found}: '
                f'expected {checksum}')
    return None

  def read_stamp(self) -> Optional[Dict[str, Any]]:
    """Returns the stamp's contents, as given to `write_stamp`; None if there is none.

    Raises:
      CheckpointError: it is damaged, or of another version.
    """
    if not self._stamp.exists():
      return None
    stamp = _read_sealed(self._stamp, 'version', 'library')
    if stamp['version'] != VERSION:
      raise CheckpointError(
          f'{self._stamp}: has version {stamp["version"]!r}, written by '
          f'{stamp["library"]}: expected {VERSION}')
    return stamp

  def write_stamp(self, **contents) -> None:
    """Writes the stamp unless there is one; makes the folder."""
    if self._stamp.exists():
      return
    self.folder.mkdir(parents=True, exist_ok=True)
    _write_sealed(self._stamp, {'version': VERSION, **contents})

  def write_record(self, step: int, now: float) -> None:
    """Completes a checkpoint whose files TensorFlow has written."""
    files = [file for file in self._files(step) if file != self._record(step)]
    for file in files:
      with open(file, 'rb') as stream:
        os.fsync(stream.fileno())
    _write_sealed(self._record(step), {
        'step': step, 'time': now,
        'files': {file.name: [file.stat().st_size, files_lib.checksum(file)]
                  for file in files}})

  def write_names(self, steps: Sequence[int]) -> None:
    """Writes the names of checkpoints for TensorFlow's tools, the newest last."""
    lines = [f'model_checkpoint_path: "ckpt-{steps[-1]}"\n']
    lines += [f'all_model_checkpoint_paths: "ckpt-{step}"\n' for step in steps]
    files_lib.write_atomically(self.folder / 'checkpoint', ''.join(lines))

  def remove(self, step: int) -> None:
    """Removes the files of a checkpoint, as far as possible."""
    with contextlib.suppress(OSError):
      # First: without its record the checkpoint is ignored.
      self._record(step).unlink(missing_ok=True)
      for file in self._files(step):
        shutil.rmtree(file) if file.is_dir() else file.unlink(missing_ok=True)


def _seal(contents: Dict[str, Any]) -> Tuple[str, str]:
  """Returns contents as JSON, and its checksum."""
  text = json.dumps(contents, indent=1)
  return text, f'{zlib.crc32(text.encode()):08x}'


def _write_sealed(file: pathlib.Path, contents: Dict[str, Any]) -> None:
  """Writes JSON with the checksum of its contents."""
  _, seal = _seal(contents)
  text, _ = _seal({**contents, 'crc32': seal})
  files_lib.write_atomically(file, text)


def _read_sealed(file: pathlib.Path, *keys: str) -> Dict[str, Any]:
  """Reads a file of `_write_sealed`, which must have these keys."""
  try:
    contents = json.loads(file.read_bytes())
  except FileNotFoundError as error:
    raise CheckpointError(f'{file}: missing') from error
  except ValueError as error:
    raise CheckpointError(f'{file}: damaged: {config.one_line(error)}') from error
  seal = contents.pop('crc32', None) if isinstance(contents, dict) else None
  _, expected = _seal(contents)
  if seal != expected:
    raise CheckpointError(f'{file}: was changed after it was written: its checksum is '
                          f'{expected}: expected {seal}')
  if not set(keys) <= contents.keys():
    raise CheckpointError(f'{file}: has {", ".join(contents)}: expected it to have '
                          f'{", ".join(keys)}')
  return contents
