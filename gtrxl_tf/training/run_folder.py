"""The folder of a run: the paths of its files, and a lock."""

import contextlib
import errno
import os
import pathlib
from typing import Iterator, Union

from gtrxl_tf import files
from gtrxl_tf.settings import config as config_lib

# The codes of an OSError on a full disk.
NO_ROOM = errno.ENOSPC, errno.EDQUOT, errno.EFBIG


class InUseError(config_lib.ConfigError):
  """Another process trains in the folder. The message is one line."""


class RunFolder:
  """Paths in the folder of a run; docs/running.md describes the files.

  `launch.train` writes `config.gin` before the run, and the evaluation after it. All
  other files are the trainer's, or of the commands that have their names.
  """

  def __init__(self, root: Union[str, os.PathLike]):
    self.root = pathlib.Path(root)

  config = property(lambda self: self.root / 'config.gin')
  checkpoints = property(lambda self: self.root / 'checkpoints')
  summaries = property(lambda self: self.root / 'summaries')
  metrics = property(lambda self: self.root / 'metrics.csv')
  policy = property(lambda self: self.root / 'policy')
  best = property(lambda self: self.root / 'best')
  best_evaluation = property(lambda self: self.root / 'best.csv')
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
  wandb = property(lambda self: self.root / 'wandb.id')
  done = property(lambda self: self.root / 'done')
  _learner_lock = property(lambda self: self.root / '.learner.lock')
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

    It waits for the learner of a run whose supervisor was killed, see `one_learner`.
    """
    config_lib.check_plain(self.root)
    try:
      self.root.mkdir(parents=True, exist_ok=True)
      # A file, since NFS keeps the lock of a folder within one host.
      descriptor = os.open(self.root / '.lock', os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
      if error.errno in NO_ROOM:
        raise
      raise config_lib.ConfigError(
          f'{self.root}: {error.strerror}: expected a folder of its own for the run, '
          'which exists or can be made') from error
    try:
      try:  # The system unlocks it when the process is killed.
        files.lock(descriptor)
      except BlockingIOError as error:
        raise InUseError(f'{self.root} is in use by another process') from error
      except OSError as error:  # Some network file systems.
        raise config_lib.ConfigError(
            f'{self.root}: {error.strerror}: expected a file system with locks '
            '(flock)') from error
      if self._learner_lock.exists():
        with self.one_learner():
          pass
      yield
    finally:
      os.close(descriptor)

  @contextlib.contextmanager
  def one_learner(self) -> Iterator[None]:
    """Waits until no other process is the run's learner, and keeps others waiting.

    If a supervisor is killed, its learner takes up to 20 s to save and end.
    """
    with open(self._learner_lock, 'w', encoding='utf-8') as file:
      try:
        files.lock(file)
      except BlockingIOError:
        print(f'Waiting for the learner of an earlier start in {self.root} to end.',
              flush=True)
        files.lock(file, wait=True)
      yield

  def keep_record(self) -> pathlib.Path:
    """Copies config and evaluation to numbered files beside them; returns the config's."""
    number = 1
    while (kept := self.config.with_suffix(f'.{number}.gin')).exists():
      number += 1
    for path in self.evaluation, self.scores, self.config:  # The config completes it.
      if path.exists():
        files.write_atomically(path.with_suffix(f'.{number}{path.suffix}'),
                               path.read_text(encoding='utf-8'))
    return kept
