"""Starts the parts of a run on one machine, watches them, and starts them again."""

import multiprocessing
import signal
import time
from typing import Callable, Dict

from absl import logging
import portpicker

from gtrxl_tf.training import processes
from gtrxl_tf.training import run_folder

_DEATHS_FORGIVEN = 5  # Of one part,
_WITHIN_SECONDS = 60  # in this time.


class PartFailed(Exception):
  """A part of the run dies as often as it is started."""


class Supervisor:
  """One Reverb server, N actors and a learner, as processes; an evaluator if wanted.

  A part that dies is started again and finds the others: actors and learner connect
  anew to a new server, which begins with its last checkpoint if there is one; a new
  learner goes on from its own.
  """

  def __init__(self, config: str, root: str, num_actors: int, evaluator: bool = False):
    """Prepares the parts; `start` starts them.

    Args:
      config: gin.
      root: the run's folder.
      num_actors: how many.
      evaluator: whether there is one.
    """
    self._folder = run_folder.RunFolder(root)
    parts = processes.Parts(config, root, portpicker.pick_unused_port())
    self._make: Dict[str, Callable] = {
        'server': lambda life: (processes.serve, (parts,)),
        'learner': lambda life: (processes.learn, (parts,))}
    for i in range(num_actors):
      self._make[f'actor_{i}'] = lambda life, i=i: (processes.act, (parts, i, life))
    if evaluator:
      self._make['evaluator'] = lambda life: (processes.evaluate, (parts,))
    self._context = multiprocessing.get_context('spawn')
    self._deaths = {name: [] for name in self._make}
    self.processes = {}

  def start(self) -> None:
    """Starts all parts."""
    for name in self._make:
      self._start(name)

  def _start(self, name: str) -> None:
    target, arguments = self._make[name](len(self._deaths[name]))
    self.processes[name] = self._context.Process(
        target=target, args=arguments, name=name, daemon=True)
    self.processes[name].start()

  def ended(self) -> bool:
    """Whether the run has come to an end, good or bad."""
    return self._folder.done.exists() or self._folder.diverged.exists()

  def restart_the_dead(self) -> None:
    """Starts the parts again that are no more.

    Raises:
      PartFailed: one has died too often in too short a time.
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
            f'{process.exitcode}); what it said last stands above')
      code = process.exitcode
      logging.warning(
          '%s died (%s); starting it again', name,
          signal.Signals(-code).name if code < 0 else f'exit code {code}')
      self._start(name)

  def stop(self, timeout: float = 30) -> None:
    """Asks all parts to stop, the learner first, which saves; then makes them."""
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
