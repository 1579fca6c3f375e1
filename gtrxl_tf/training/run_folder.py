"""The folder of a run: the paths of its files, a lock, and its metrics."""

import contextlib
import csv
import dataclasses
import errno
import fcntl
import math
import os
import pathlib
from typing import Dict, Iterable, Iterator, List, Optional, Tuple, Union

from absl import logging

from gtrxl_tf import files
from gtrxl_tf.settings import config as config_lib

# The codes of an OSError on a full disk.
NO_ROOM = errno.ENOSPC, errno.EDQUOT, errno.EFBIG


class InUseError(Exception):
  """Another process trains in the folder. The message is one line."""


@dataclasses.dataclass(frozen=True)
class RunFolder:
  """Paths in the folder of a run.

  `config.gin`      the complete operative config; `launch.train` writes it
  `config.1.gin`, `evaluation.1.csv`, ...  those from before settings were changed
  `checkpoints/`    everything that training depends on
  `summaries/`      for TensorBoard
  `metrics.csv`     one row every few learner steps
  `policy/`         the SavedModel of the policy
  `curve.png`       the learning curve
  `evaluation.csv`  episodes after training; for a policy that learns while it acts, the
                    end of each learning process
  `scores.csv`      the scores of these episodes, if the experiment has any
  `videos/`         films of episodes, made by `binaries.evaluate --video`
  `report.html`     a page about the run, made by `binaries.report`
  `learning_process.png`, `.csv`  the last learning processes of such a policy
  `evaluations.csv` episodes during training, in runs with an evaluator
  `replay/`         Reverb's checkpoints of its tables
  `failures/`       for each process that failed, the traceback of its last error
  `logs/`           for each process, what TensorFlow, XLA and Reverb print
  `done`, `diverged`  mark how the run ended; `Trainer.run` writes them
  """
  root: pathlib.Path

  def __init__(self, root: Union[str, os.PathLike]):
    object.__setattr__(self, 'root', pathlib.Path(root))

  config = property(lambda self: self.root / 'config.gin')
  checkpoints = property(lambda self: self.root / 'checkpoints')
  summaries = property(lambda self: self.root / 'summaries')
  metrics = property(lambda self: self.root / 'metrics.csv')
  policy = property(lambda self: self.root / 'policy')
  curve = property(lambda self: self.root / 'curve.png')
  evaluation = property(lambda self: self.root / 'evaluation.csv')
  scores = property(lambda self: self.root / 'scores.csv')
  evaluations = property(lambda self: self.root / 'evaluations.csv')
  replay = property(lambda self: self.root / 'replay')
  learning_process = property(lambda self: self.root / 'learning_process.png')
  videos = property(lambda self: self.root / 'videos')
  report = property(lambda self: self.root / 'report.html')
  failures = property(lambda self: self.root / 'failures')
  logs = property(lambda self: self.root / 'logs')
  done = property(lambda self: self.root / 'done')
  diverged = property(lambda self: self.root / 'diverged')

  @property
  def was_started(self) -> bool:
    """Whether a run has left anything that depends on its settings."""
    return (self.done.exists() or self.diverged.exists()
            or self.metrics.exists() and self.metrics.stat().st_size > 0
            or self.has_checkpoint)

  @property
  def has_checkpoint(self) -> bool:
    """True if there is a checkpoint, perhaps an incomplete one."""
    return any(self.checkpoints.glob('*.index'))

  @contextlib.contextmanager
  def in_use(self) -> Iterator[None]:
    """Makes the folder, and locks it against other processes.

    Raises:
      InUseError: another process has locked it.
      config.ConfigError: there is no such folder, and it cannot be made or written.
    """
    try:
      self.root.mkdir(parents=True, exist_ok=True)
      descriptor = os.open(self.root, os.O_RDONLY)
      if not os.access(self.root, os.W_OK):
        raise PermissionError(errno.EACCES, 'not writable')
    except OSError as error:
      if error.errno in NO_ROOM:
        raise
      raise config_lib.ConfigError(
          f'{self.root}: {error.strerror}: expected a folder of its own for the run, '
          'which exists or can be made') from error
    try:
      try:  # The system unlocks it when the process is killed.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
      except BlockingIOError as error:
        raise InUseError(f'{self.root} is in use by another process') from error
      yield
    finally:
      os.close(descriptor)

  def keep_record(self) -> pathlib.Path:
    """Copies config and evaluation to numbered files beside them.

    Returns:
      The config's copy.
    """
    number = 1
    while (kept := _numbered(self.config, number)).exists():
      number += 1
    for path in self.evaluation, self.scores, self.config:  # The config completes it.
      if path.exists():
        files.write_atomically(
            _numbered(path, number), path.read_text(encoding='utf-8'))
    return kept


def _numbered(path: pathlib.Path, number: int) -> pathlib.Path:
  return path.with_suffix(f'.{number}{path.suffix}')


class MetricsWriter:
  """Appends rows to `metrics.csv`, with six digits per number and one write per row.

  A row that cannot be written, as on a full disk, is written with the next one. The
  error is logged; the file has complete lines only, and training continues.
  """

  def __init__(self, path: pathlib.Path, resume_step: float = math.inf):
    """Opens the file and drops the rows after `resume_step`, which will be repeated.

    A file with lines that cannot be read is kept as `metrics.csv.damaged`, and its
    other rows are copied to the new file.
    """
    rows, unreadable = _read(path)
    if unreadable or (rows and 'learner_step' not in rows[0]):
      rows = [row for row in rows if 'learner_step' in row]
      logging.warning('%s was damaged and is now %s; %d of its rows can be read',
                      path, files.set_aside(path).name, len(rows))
    rows = [row for row in rows if row['learner_step'] <= resume_step]
    self._path = path
    self._waiting = ''
    self._columns: List[str] = list(rows[0]) if rows else []
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_atomically(path, ''.join(
        [self._line(self._columns)] * bool(rows)
        + [self._line(map(_format, row.values())) for row in rows]))

  def append(self, row: Dict[str, float]) -> None:
    """Writes a row; the keys of the first row are the columns.

    If the file has a column that the row does not have, it is renamed to
    `metrics.csv.damaged`, and a new one begins with this row.
    """
    unknown = [column for column in self._columns if column not in row]
    if unknown:
      logging.warning('%s has a column %r, which is unknown; the file is now %s',
                      self._path, unknown[0], files.set_aside(self._path).name)
      self._columns, self._waiting = [], ''
      self._path.touch()
    if not self._columns:
      self._columns = list(row)
      self._waiting += self._line(self._columns)
    self._waiting += self._line(_format(row[column]) for column in self._columns)
    size = self._path.stat().st_size
    try:
      with open(self._path, 'a', encoding='utf-8') as file:
        file.write(self._waiting)
    except OSError as error:
      os.truncate(self._path, size)
      logging.error('%s: %s; training continues', self._path, error)
    else:
      self._waiting = ''

  @staticmethod
  def _line(cells: Iterable[str]) -> str:
    return ','.join(cells) + '\n'


def _format(value: float) -> str:
  return str(int(value)) if float(value).is_integer() else f'{value:.6g}'


def read_metrics(path: pathlib.Path) -> List[Dict[str, float]]:
  """Reads the rows of a `metrics.csv`; none if there is no file yet.

  A last line that is still being written is left out. Lines that cannot be read are
  left out with a warning.
  """
  rows, unreadable = _read(path)
  if unreadable:
    logging.warning('%s: %d lines cannot be read', path, unreadable)
  return rows


def _read(path: pathlib.Path) -> Tuple[List[Dict[str, float]], int]:
  """Returns the rows of a file, and how many of its lines cannot be read."""
  if not path.exists():
    return [], 0
  text = path.read_text(encoding='utf-8', errors='replace')
  lines = text.split('\n')[:-1]
  columns = _cells(lines[0]) if lines else []
  if not columns and lines:
    return [], len(lines)
  rows = [_row(columns, line) for line in lines[1:]]
  readable = [row for row in rows if row is not None]
  return readable, len(rows) - len(readable)


def _cells(line: str) -> List[str]:
  """Returns the cells of a line; none if it is damaged."""
  try:
    return [] if '\ufffd' in line else next(csv.reader([line]), [])
  except csv.Error:
    return []


def _row(columns: List[str], line: str) -> Optional[Dict[str, float]]:
  """Returns a row of numbers; None if the line does not have one per column."""
  try:
    return dict(zip(columns, map(float, _cells(line)), strict=True))
  except ValueError:
    return None


def last_metrics(path: pathlib.Path) -> Optional[Dict[str, float]]:
  """Reads the last row of a `metrics.csv` without the rows before it.

  None if it cannot be read.
  """
  if not path.exists():
    return None
  with open(path, 'rb') as file:
    header = file.readline()
    file.seek(max(len(header) - 1, path.stat().st_size - 4096, 0))
    tail = file.read().decode(errors='replace')
  columns = _cells(header.decode(errors='replace').strip())
  lines = tail.split('\n')[1:-1]
  return _row(columns, lines[-1]) if columns and lines else None
