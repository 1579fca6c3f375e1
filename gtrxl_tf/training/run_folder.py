"""The folder of a run: the paths of its files, a lock, and its metrics."""

import contextlib
import csv
import dataclasses
import errno
import fcntl
import math
import os
import pathlib
from typing import Dict, Iterable, Iterator, List, Optional, Union

from absl import logging

from gtrxl_tf import files

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
  `learning_process.png`, `.csv`  the last learning processes of such a policy
  `evaluations.csv` episodes during training, in runs with an evaluator
  `replay/`         Reverb's checkpoints of its tables
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
  done = property(lambda self: self.root / 'done')
  diverged = property(lambda self: self.root / 'diverged')

  @property
  def was_started(self) -> bool:
    """Whether a run has left anything that depends on its settings."""
    return (self.done.exists() or self.diverged.exists()
            or self.metrics.exists() and self.metrics.stat().st_size > 0
            or any(self.checkpoints.glob('*.index')))

  @contextlib.contextmanager
  def in_use(self) -> Iterator[None]:
    """Makes the folder, and locks it against other processes.

    Raises:
      InUseError: another process has locked it.
    """
    self.root.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(self.root, os.O_RDONLY)
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
    """Opens the file and drops the rows after `resume_step`, which will be repeated."""
    rows = [row for row in read_metrics(path) if row['learner_step'] <= resume_step]
    self._path = path
    self._waiting = ''
    self._columns: List[str] = list(rows[0]) if rows else []
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_atomically(path, ''.join(
        [self._line(self._columns)] * bool(rows)
        + [self._line(map(_format, row.values())) for row in rows]))

  def append(self, row: Dict[str, float]) -> None:
    """Writes a row; the keys of the first row are the columns."""
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
      logging.error('%s: %s; training goes on', self._path, error)
    else:
      self._waiting = ''

  @staticmethod
  def _line(cells: Iterable[str]) -> str:
    return ','.join(cells) + '\n'


def _format(value: float) -> str:
  return str(int(value)) if float(value).is_integer() else f'{value:.6g}'


def read_metrics(path: pathlib.Path) -> List[Dict[str, float]]:
  """Reads the rows of a `metrics.csv`; none if there is no file yet.

  A last line that is still being written is left out.
  """
  if not path.exists():
    return []
  text = path.read_text(encoding='utf-8')
  lines = text[:text.rfind('\n') + 1].splitlines()
  return [{k: float(v) for k, v in row.items()} for row in csv.DictReader(lines)]


def last_metrics(path: pathlib.Path) -> Optional[Dict[str, float]]:
  """Reads the last row of a `metrics.csv` without the rows before it."""
  if not path.exists():
    return None
  with open(path, 'rb') as file:
    header = file.readline().decode().strip()
    file.seek(max(len(header), path.stat().st_size - 4096))
    tail = file.read().decode()
  lines = tail[:tail.rfind('\n') + 1].splitlines()[1:]
  if not lines:
    return None
  return {k: float(v) for k, v in zip(header.split(','), lines[-1].split(','))}
