"""Runs all parts of an online run on one machine, and restarts those that die."""

import contextlib
import functools
import math
import multiprocessing
import os
import pathlib
import shutil
import signal
import time
from typing import Callable, Dict, List, Optional, Set, Tuple

from absl import logging
import portpicker

from gtrxl_tf import files
from gtrxl_tf.launch import exit_codes
from gtrxl_tf.launch import parts
from gtrxl_tf.launch import processes
from gtrxl_tf.replay import shared
from gtrxl_tf.settings import config as config_lib
from gtrxl_tf.training import console as console_lib
from gtrxl_tf.training import devices
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import run_folder
from gtrxl_tf.training import trainer
from gtrxl_tf.training.online import experiment as experiment_lib

# A part that dies more often than this within some minutes ends the run: by errors and
# crashes of its own, as where an environment returns NaN at a fixed step, or by any cause.
_ERRORS, _DEATHS = 2, 20
_WITHIN_SECONDS = 600
# These signals come from outside, for example from the system when memory runs out.
_KILLS = -signal.SIGKILL, -signal.SIGTERM
# How long a learner that is told to stop may take, besides the step that it is in.
_SECONDS_TO_SAVE = 30.0


def supervise(experiment: experiment_lib.OnlineExperiment,
              folder: run_folder.RunFolder, should_stop: Callable[[], bool],
              console: console_lib.Console) -> None:
  """Trains with all parts, until the run ends or should stop.

  Args:
    experiment: the experiment that gin's current settings define.
    folder: the run's folder.
    should_stop: called twice a second.
    console: shows the metrics.
  """
  supervisor = Supervisor(experiment, folder)
  try:
    supervisor.start()
    while not (should_stop() or supervisor.ended()):
      supervisor.restart_the_dead()
      console.update(metrics_csv.last_metrics(folder.metrics))
      time.sleep(0.5)  # Last, so that `should_stop` is called before parts restart.
  finally:
    console.close()
    row = metrics_csv.last_metrics(folder.metrics) or {}
    speed = row.get('learner_steps_per_second', math.nan)
    supervisor.stop(_SECONDS_TO_SAVE + (2 / speed if speed > 0 else 0))
  check_not_diverged(folder)
  if not folder.done.exists():
    supervisor.check_saved()


def check_not_diverged(folder: run_folder.RunFolder) -> None:
  """Raises an `exit_codes.RunFailed` if the run in a folder has diverged."""
  if folder.diverged.exists():
    raise exit_codes.RunFailed(folder.diverged.read_text(encoding='utf-8').strip())


def threads_of_learner(experiment: experiment_lib.OnlineExperiment) -> int:
  """Returns how many threads the learner gets when other parts run; 0 for all."""
  weights = experiment.acting_network.trainable_variables  # As many as the learner has.
  return devices.threads_of_step(
      sum(weight.shape.num_elements() for weight in weights),
      experiment.batch_size * experiment.unroll_length)


class Supervisor:
  """Runs a learner, N actors and other parts as processes.

  If the settings ask for them, it also runs a Reverb server, an evaluator and inference
  servers. A part that dies is started again and finds the others: they share memory, or
  connect to the server again; a new learner resumes from its checkpoint.

  Attributes:
    processes: the newest process of each part, by the part's name.
    killed: the names of parts that did not stop when they were told to.
  """

  def __init__(self, experiment: experiment_lib.OnlineExperiment,
               folder: run_folder.RunFolder):
    """Prepares the parts of an experiment; `start` starts them."""
    self._folder = folder
    root = str(folder.root)
    num_actors, inference = experiment.num_actors, experiment.inference
    bindings = [config_lib.given_text()]
    self._mains: Dict[str, Callable[..., int]] = {}
    self._memory: Optional[int] = None

    def add(name, main, *args, threads=1, **first):
      settings = parts.Settings(gin_bindings=bindings, threads=threads, supervised=True,
                                failure=str(self._failure(name)))
      self._mains[name] = functools.partial(main, settings, *args, **first)

    if experiment.transport == 'memory':
      self._memory = shared.create(experiment.layout)
      server = shared.address(self._memory)
    else:
      port = portpicker.pick_unused_port()
      server = f'localhost:{port}'
      add('server', parts.serve, port)
    threads = threads_of_learner(experiment)
    if inference is None:
      add('learner', parts.learn, server, root, threads=threads)
      for i in range(num_actors):
        add(f'actor_{i}', parts.act, server, i, start=0)
    else:
      ports = [portpicker.pick_unused_port() for _ in range(max(1, inference.num_servers))]
      local = None if inference.num_servers else trainer.InferenceAddress(ports[0])
      add('learner', parts.learn, server, root, local, threads=threads)
      for i in range(inference.num_servers):
        # The servers have no other number that their noise could depend on.
        add(f'inference_{i}', parts.infer, server, ports[i], threads=threads, start=i)
      for i in range(inference.num_processes(num_actors)):
        add(f'actor_{i}', parts.play, f'localhost:{ports[i % len(ports)]}', i,
            start=0)
    if experiment.evaluator:
      add('evaluator', parts.evaluate, server, root)
    # For each part, the times and the exit codes of its deaths.
    self._deaths: Dict[str, List[Tuple[float, int]]] = {name: [] for name in self._mains}
    self._begins = not self._folder.was_started
    self.processes: Dict[str, multiprocessing.Process] = {}
    self.killed: Set[str] = set()

  def _failure(self, name: str) -> pathlib.Path:
    """Returns the file with the error that ended a part."""
    return self._folder.failures / f'{name}.txt'

  def _log(self, name: str) -> pathlib.Path:
    """Returns the file with the output of the libraries in a part."""
    return self._folder.logs / f'{name}.log'

  def start(self) -> None:
    """Starts all parts."""
    shutil.rmtree(self._folder.failures, ignore_errors=True)  # From earlier runs.
    for name in self._mains:
      self._start(name)

  def _start(self, name: str) -> None:
    main = self._mains[name]
    # A run begins with the episodes of its seed. Later starts must not repeat them,
    # nor must those of another process, which resumes the run.
    if 'start' in main.keywords and (not self._begins or self._deaths[name]):
      main = functools.partial(main, start=time.time_ns())
    self.processes[name] = processes.start(main, name, self._log(name))

  def ended(self) -> bool:
    """Returns whether the run has ended, well or not."""
    return self._folder.done.exists() or self._folder.diverged.exists()

  def restart_the_dead(self) -> None:
    """Restarts the parts that have died; raises a `RunFailed` if one died too often."""
    for name, process in self.processes.items():
      if process.is_alive() or self.ended():
        continue
      why, now = self._why(name), time.monotonic()
      recent = [death for death in self._deaths[name] if now - death[0] < _WITHIN_SECONDS]
      self._deaths[name] = recent = [*recent, (now, process.exitcode)]
      errors = sum(code not in _KILLS for _, code in recent)
      if errors > _ERRORS or len(recent) > _DEATHS:
        times = errors if errors > _ERRORS else len(recent)
        raise self._failed(name, f'{name} died {times} times in ten minutes: {why}')
      if process.exitcode < 0:  # An earlier error is not why it died.
        self._failure(name).unlink(missing_ok=True)
      logging.warning('%s died (%s); starting it again', name, why)
      self._start(name)

  def _why(self, name: str) -> str:
    """Returns the error that ended a part, as one line, or else its exit code."""
    code = self.processes[name].exitcode
    return self._error(name).partition('\n')[0] or (
        signal.Signals(-code).name if code < 0 else f'exit code {code}')

  def _error(self, name: str) -> str:
    """Returns the text of the error that ended a part; '' if there is none."""
    with contextlib.suppress(OSError):
      if self.processes[name].exitcode > 0:
        return self._failure(name).read_text(encoding='utf-8')
    return ''

  def _failed(self, name: str, line: str) -> exit_codes.RunFailed:
    """Returns the error that ends the run, and writes its line into the part's file."""
    failure, text = self._failure(name), self._error(name)
    with contextlib.suppress(OSError):
      failure.parent.mkdir(exist_ok=True)
      files.write_atomically(failure, f'{line}\n\n{text}')
      if text:
        line += f' (traceback: {failure})'
      elif self._log(name).exists():
        line += f' (log: {self._log(name)})'
    return exit_codes.RunFailed(line)

  def stop(self, timeout: float = _SECONDS_TO_SAVE) -> None:
    """Asks all parts to stop, and kills those that do not.

    Args:
      timeout: seconds that the learner has to save; the other parts have five.
    """
    start = time.monotonic()
    # All at the same time: many actors would keep the learner from the processor.
    for process in self.processes.values():
      process.terminate()
    for name, process in self.processes.items():
      left = start + (timeout if name == 'learner' else 5) - time.monotonic()
      process.join(max(0.1, left))
      if process.is_alive():
        self.killed.add(name)
        process.kill()
        process.join()
    if self._memory is not None:
      os.close(self._memory)
      self._memory = None

  def check_saved(self) -> None:
    """Raises a `RunFailed` if a learner that was told to stop did not save."""
    code = self.processes['learner'].exitcode
    if code in (0, -signal.SIGTERM):  # SIGTERM kills it while it starts.
      return
    why = ('its learner step did not end in time, and it was killed'
           if 'learner' in self.killed else self._why('learner'))
    lost = ('its steps since the newest checkpoint in '
            f'{self._folder.checkpoints} are lost. Run the same command to continue.'
            if self._folder.has_checkpoint else
            'all its steps are lost, since there is no checkpoint yet. Run the same '
            'command to begin again.')
    raise exit_codes.RunFailed(f'the learner did not save ({why}): {lost}')
