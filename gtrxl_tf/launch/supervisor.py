"""Runs all parts of an online run on one machine, and restarts those that die."""

import functools
import multiprocessing
import signal
import time
from typing import Callable, Dict

from absl import logging
import gin
import portpicker

from gtrxl_tf.launch import exit_codes
from gtrxl_tf.launch import parts
from gtrxl_tf.launch import processes
from gtrxl_tf.online import experiment as experiment_lib
from gtrxl_tf.training import console as console_lib
from gtrxl_tf.training import devices
from gtrxl_tf.training import run_folder

# A run fails when one part dies more often than this in this time.
_DEATHS_FORGIVEN = 5
_WITHIN_SECONDS = 60


class PartFailed(exit_codes.RunFailed):
  """A part of the run keeps dying."""


def supervise(experiment: experiment_lib.OnlineExperiment,
              folder: run_folder.RunFolder, should_stop: Callable[[], bool],
              console: console_lib.Console) -> None:
  """Trains with all parts, until the run ends or should stop.

  Args:
    experiment: the experiment that gin's current settings define.
    folder: the run's folder.
    should_stop: called twice a second.
    console: shows the metrics.

  Raises:
    exit_codes.RunFailed: the run cannot continue.
  """
  supervisor = Supervisor(
      gin.config_str(), str(folder.root), experiment.num_actors, experiment.evaluator,
      threads_of_learner(experiment))
  try:
    supervisor.start()
    while not (should_stop() or supervisor.ended()):
      time.sleep(0.5)
      supervisor.restart_the_dead()
      console.update(run_folder.last_metrics(folder.metrics))
  finally:
    console.close()
    supervisor.stop()
  if folder.diverged.exists():
    raise exit_codes.RunFailed(folder.diverged.read_text(encoding='utf-8').strip())


def threads_of_learner(experiment: experiment_lib.OnlineExperiment) -> int:
  """Returns how many threads the learner has beside the other parts; 0 for all."""
  weights = experiment.acting_network.trainable_variables  # As many as those that learn.
  return devices.threads_of_step(
      sum(weight.shape.num_elements() for weight in weights),
      experiment.batch_size * experiment.unroll_length)


class Supervisor:
  """Runs a Reverb server, N actors, a learner and optionally an evaluator as processes.

  A part that dies is started again and finds the others: actors and learner reconnect
  to a new server, which begins with its last checkpoint if there is one; a new learner
  resumes from its own.

  Attributes:
    processes: the newest of each part, by its name.
  """

  def __init__(self, config: str, root: str, num_actors: int, evaluator: bool = False,
               learner_threads: int = 0):
    """Prepares the parts; `start` starts them.

    Args:
      config: settings as gin.
      root: the run's folder.
      num_actors: how many actors to start.
      evaluator: whether to start an evaluator.
      learner_threads: TensorFlow's threads in the learner; 0 for one per core.
    """
    self._folder = run_folder.RunFolder(root)
    port = portpicker.pick_unused_port()
    server = f'localhost:{port}'
    small = parts.Settings(gin_bindings=[config], threads=1, supervised=True)
    learner = small._replace(threads=learner_threads)
    self._mains: Dict[str, Callable[..., int]] = {
        'server': functools.partial(parts.serve, small, root, port),
        'learner': functools.partial(parts.learn, learner, server, root)}
    for i in range(num_actors):
      self._mains[f'actor_{i}'] = functools.partial(parts.act, small, server, i)
    if evaluator:
      self._mains['evaluator'] = functools.partial(
          parts.evaluate, small, server, root)
    self._context = processes.context()
    self._deaths = {name: [] for name in self._mains}
    self.processes: Dict[str, multiprocessing.Process] = {}

  def start(self) -> None:
    """Starts all parts."""
    for name in self._mains:
      self._start(name)

  def _start(self, name: str) -> None:
    main = self._mains[name]
    if name.startswith('actor_'):
      main = functools.partial(main, life=len(self._deaths[name]))
    self.processes[name] = self._context.Process(
        target=processes.exit_with, args=(main,), name=name, daemon=True)
    self.processes[name].start()

  def ended(self) -> bool:
    """Whether the run has ended, well or not."""
    return self._folder.done.exists() or self._folder.diverged.exists()

  def restart_the_dead(self) -> None:
    """Restarts the parts that have died.

    Raises:
      PartFailed: a part has died too often in too short a time.
    """
    for name, process in self.processes.items():
      if process.is_alive() or self.ended():
        continue
      now = time.time()
      deaths = self._deaths[name]
      deaths.append(now)
      recent = [t for t in deaths if now - t < _WITHIN_SECONDS]
      if len(recent) > _DEATHS_FORGIVEN:
        raise PartFailed(
            f'{name} died {len(recent)} times within {_WITHIN_SECONDS} s (exit code '
            f'{process.exitcode}); its last messages are above')
      code = process.exitcode
      logging.warning(
          '%s died (%s); starting it again', name,
          signal.Signals(-code).name if code < 0 else f'exit code {code}')
      self._start(name)

  def stop(self, timeout: float = 30) -> None:
    """Asks all parts to stop, the learner first, which saves; then kills them."""
    order = sorted(self.processes, key=lambda name: name != 'learner')
    deadline = time.time() + timeout
    for name in order:
      self.processes[name].terminate()
      if name == 'learner':
        self.processes[name].join(timeout)
    for name in order:
      self.processes[name].join(max(0.1, min(5, deadline - time.time())))
      if self.processes[name].is_alive():
        self.processes[name].kill()
        self.processes[name].join()
