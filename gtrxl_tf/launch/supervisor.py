"""Runs all parts of an online run on one machine, and restarts those that die."""

import contextlib
import math
import multiprocessing
import os
import pathlib
import shutil
import signal
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from absl import logging
import portpicker

from gtrxl_tf.launch import exit_codes
from gtrxl_tf.launch import parts
from gtrxl_tf.launch import processes
from gtrxl_tf.replay import shared_memory
from gtrxl_tf.settings import config
from gtrxl_tf.training import console as console_lib
from gtrxl_tf.training import devices
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import run_folder
from gtrxl_tf.training import trainer
from gtrxl_tf.training.online import experiment as experiment_lib

# A part may fail this often within some minutes, by an error or a crash, and die this often
# in all, whatever ended it.
_ERRORS, _WITHIN_SECONDS, _DEATHS = 2, 600, 20
# These signals come from outside, for example from the system when memory runs out.
_KILLS = -signal.SIGKILL, -signal.SIGTERM
# How long a learner that is told to stop may take, besides the step that it is in.
_SECONDS_TO_SAVE = 30.0


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
  """

  def __init__(self, experiment: experiment_lib.OnlineExperiment,
               folder: run_folder.RunFolder):
    """Prepares the parts of an experiment; `start` starts them."""
    self._folder = folder
    root = str(folder.root)
    num_actors, inference = experiment.num_actors, experiment.inference
    bindings = [config.given_text()]
    self._memory: Optional[int] = None
    # For each part, its function, settings and other arguments.
    self._parts: Dict[str, Tuple[Callable[..., int], parts.Settings, Tuple[Any, ...]]] = {}

    def add(name, main, *args, threads=1, start=0):
      self._parts[name] = main, parts.Settings(
          gin_bindings=bindings, threads=threads, supervised=True,
          failure=str(self._failure(name)), start=start), args

    if experiment.transport == 'memory':
      self._memory = shared_memory.create(experiment.layout)
      server = shared_memory.address(self._memory)
    else:
      port = portpicker.pick_unused_port()
      server = f'localhost:{port}'
      add('server', parts.serve, port)
    threads = threads_of_learner(experiment)
    if inference is None:
      add('learner', parts.learn, server, root, threads=threads)
      for i in range(num_actors):
        add(f'actor_{i}', parts.act, server, i)
    else:
      ports = [portpicker.pick_unused_port() for _ in range(max(1, inference.num_servers))]
      local = None if inference.num_servers else trainer.InferenceAddress(ports[0])
      add('learner', parts.learn, server, root, local, threads=threads)
      for i in range(inference.num_servers):
        # The servers have no other number that their noise could depend on.
        add(f'inference_{i}', parts.infer, server, ports[i], threads=threads, start=i)
      for i in range(inference.num_processes(num_actors)):
        add(f'actor_{i}', parts.play, f'localhost:{ports[i % len(ports)]}', i)
    if experiment.evaluator:
      add('evaluator', parts.evaluate, server, root)
    # For each part, the times of its deaths; minus infinity where it was killed.
    self._deaths: Dict[str, List[float]] = {name: [] for name in self._parts}
    self._begins = not self._folder.was_started
    self.processes: Dict[str, multiprocessing.Process] = {}

  def run(self, should_stop: Callable[[], bool], console: console_lib.Console) -> None:
    """Trains with all parts until the run ends or should stop, and shows its metrics."""
    try:
      self.start()
      while not (should_stop() or self.ended()):
        self.restart_the_dead()
        console.update(metrics_csv.last_metrics(self._folder.metrics))
        time.sleep(0.5)  # Last, so that `should_stop` is called before parts restart.
    finally:
      console.close()
      row = metrics_csv.last_metrics(self._folder.metrics) or {}
      speed = row.get('learner_steps_per_second', math.nan)
      self.stop(_SECONDS_TO_SAVE + (2 / speed if speed > 0 else 0))
    if self._folder.diverged.exists():
      raise exit_codes.RunFailed(self._folder.diverged.read_text(encoding='utf-8').strip())
    if not self._folder.done.exists():
      self.check_saved()

  def _failure(self, name: str) -> pathlib.Path:
    """Returns the file with the error that ended a part."""
    return self._folder.failures / f'{name}.txt'

  def _log(self, name: str) -> pathlib.Path:
    """Returns the file with the output of the libraries in a part."""
    return self._folder.logs / f'{name}.log'

  def start(self) -> None:
    """Starts all parts."""
    shutil.rmtree(self._folder.failures, ignore_errors=True)  # From earlier runs.
    for name in self._parts:
      self._start(name)

  def _start(self, name: str) -> None:
    main, settings, args = self._parts[name]
    # A run begins with the episodes of its seed. Later starts must not repeat them,
    # nor must those of another process, which resumes the run.
    if self._deaths[name] or not self._begins:
      settings = settings._replace(start=time.time_ns())
    self.processes[name] = processes.start(
        main, settings, *args, name=name, log=self._log(name))

  def ended(self) -> bool:
    """Returns whether the run has ended, well or not."""
    return self._folder.done.exists() or self._folder.diverged.exists()

  def restart_the_dead(self) -> None:
    """Restarts the parts that have died; raises a `RunFailed` if one died too often."""
    for name, process in self.processes.items():
      if process.is_alive() or self.ended():
        continue
      why, now, deaths = self._why(name), time.monotonic(), self._deaths[name]
      deaths.append(-math.inf if process.exitcode in _KILLS else now)
      errors = sum(now - death < _WITHIN_SECONDS for death in deaths)
      if errors > _ERRORS:
        raise exit_codes.RunFailed(f'{name} failed {errors} times in ten minutes: {why}')
      if len(deaths) > _DEATHS:
        raise exit_codes.RunFailed(f'{name} died {len(deaths)} times: {why}')
      logging.warning('%s died: %s; starting it again', name, why)
      self._start(name)

  def _why(self, name: str) -> str:
    """Returns the error or the signal that ended a part, as one line, and where more is."""
    code, more = self.processes[name].exitcode, f'(log: {self._log(name)})'
    if code < 0:
      return f'{signal.Signals(-code).name} {more}'
    with contextlib.suppress(OSError):
      error = self._failure(name).read_text(encoding='utf-8').partition('\n')[0]
      return f'{error} (traceback: {self._failure(name)})'
    return f'exit code {code} {more}'

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
           if code == -signal.SIGKILL else self._why('learner'))
    raise exit_codes.RunFailed(
        f'the learner did not save ({why}): its steps since the newest checkpoint, if '
        f'there is one in {self._folder.checkpoints}, are lost. Run the same command to '
        'continue.')
