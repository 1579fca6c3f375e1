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


class InUseError(Exception):
  """Another process trains in the folder. The message is one line."""


class RunFolder:
  """Paths in the folder of a run.

  `config.gin`      the complete operative config; `launch.train` writes it
  `config.1.gin`, `evaluation.1.csv`, ...  the same files before settings were changed
  `checkpoints/`    everything that training depends on
  `summaries/`      for TensorBoard
  `metrics.csv`     one row every few learner steps
  `policy/`         the SavedModel of the policy
  `best/`           the same of the best evaluation, unless that was of the last weights
  `curve.png`       the learning curve
  `evaluation.csv`  episodes after training; for a policy that learns while it acts, the
                    end of each learning process
  `scores.csv`      the scores of these episodes, if the experiment has any
  `videos/`         films of episodes, made by `gtrxl evaluate --video`
  `report.html`     a page about the run, made by `gtrxl report`
  `learning_process.png`, `.csv`  the last learning processes of a policy that learns
                    while it acts
  `evaluations.csv` episodes during training, in online runs
  `best.csv`        episodes of the policy in `best/`, after training
  `replay/`         Reverb's checkpoints of its tables
  `failures/`       for each process that failed, the traceback of its last error
  `logs/`           for each process, what TensorFlow, XLA and Reverb print
  `wandb.id`, `wandb/`  the run's id at Weights & Biases, and what is sent there
  `done`, `diverged`  mark how the run ended; `Trainer.run` writes them
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

    It waits for the parts of a run whose supervisor was killed, see `written_by`.

    Raises:
      InUseError: another process has locked it.
      config.ConfigError: there is no such folder, and it cannot be made or written; or
        its path is a pattern, see `config.check_plain`.
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
      for part in 'server', 'learner':
        if self._lock_of(part).exists():
          with self.written_by(part):
            pass
      yield
    finally:
      os.close(descriptor)

  @contextlib.contextmanager
  def written_by(self, part: str) -> Iterator[None]:
    """Waits until no other process is this part of the run, and keeps others waiting.

    If a supervisor is killed, its parts take up to 20 s to save and end. The user may
    have started the run again by then.
    """
    with open(self._lock_of(part), 'w', encoding='utf-8') as file:
      try:
        files.lock(file)
      except BlockingIOError:
        print(f'Waiting for the {part} of an earlier start in {self.root} to end.',
              flush=True)
        files.lock(file, wait=True)
      yield

  def _lock_of(self, part: str) -> pathlib.Path:
    return self.root / f'.{part}.lock'

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
