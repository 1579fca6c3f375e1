"""Runs all parts of an online run on one machine, and restarts those that die."""

import contextlib
import functools
import math
import multiprocessing
import os
import pathlib
import re
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
from gtrxl_tf.settings import differences
from gtrxl_tf.training import console as console_lib
from gtrxl_tf.training import devices
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import run_folder
from gtrxl_tf.training import trainer
from gtrxl_tf.training.online import experiment as experiment_lib
from gtrxl_tf.training.online import placement

# A run fails when one part dies more than `_DEATHS_FORGIVEN` times, either within
# `_WITHIN_SECONDS` or, in any length of time, while the run makes no progress.
_DEATHS_FORGIVEN = 5
_WITHIN_SECONDS = 60
# An actor that ends with an error takes seconds to start again. If it ends in the same way
# each time, as when an environment returns NaN at a fixed step, the run fails earlier: at
# the same step of the same episode at any time, elsewhere within this time.
_SAME_ERRORS_FORGIVEN = 2
_SAME_WITHIN_SECONDS = 120
_PLACE = re.compile(r'episode \d+, step \d+')
# A number, or an array of them that a message may show in part.
_NUMBERS = re.compile(
    r'\[[-+.,\deinfa\s\[\]]*|[-+.]*(?:\d[.\d]*(?:e[-+]?\d+)?|\b(?:nan|inf)\b)')
# How long a learner that is told to stop may take, besides the step that it is in.
_SECONDS_TO_SAVE = 30.0
# A server wrote 54 MB of its tables a second on two busy cores.
_SECONDS_TO_WRITE_TABLES = 300.0
# What `multiprocessing` gives as exit code once the fork server has been killed.
_UNKNOWN = 255


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
  memory = None
  if experiment.transport == 'memory':
    memory = shared.create(
        experiment.layout, differences.to_json(experiment.settings or {}))
  supervisor = Supervisor(
      config_lib.given_text(), str(folder.root), experiment.num_actors,
      experiment.evaluator, threads_of_learner(experiment), experiment.inference,
      memory and shared.address(memory))
  try:
    supervisor.start()
    while not (should_stop() or supervisor.ended()):
      supervisor.restart_the_dead()
      console.update(metrics_csv.last_metrics(folder.metrics))
      time.sleep(0.5)  # Last, so that `should_stop` is called before parts restart.
  finally:
    console.close()
    supervisor.stop(_seconds_to_save(folder))
    if memory is not None:
      os.close(memory)
  check_not_diverged(folder)
  if not folder.done.exists():
    if 'server' in supervisor.killed:
      print('The server did not write its tables within '
            f'{_SECONDS_TO_WRITE_TABLES:.0f} s: the unrolls in them are lost.',
            flush=True)
    _check_saved(supervisor.processes['learner'].exitcode, folder,
                 'learner' in supervisor.killed, supervisor.error('learner'))


def check_not_diverged(folder: run_folder.RunFolder) -> None:
  """Raises an `exit_codes.RunFailed` if the run in a folder has diverged."""
  if folder.diverged.exists():
    raise exit_codes.RunFailed(folder.diverged.read_text(encoding='utf-8').strip())


def _seconds_to_save(folder: run_folder.RunFolder) -> float:
  """Returns how long a learner may take to end its step and save."""
  row = metrics_csv.last_metrics(folder.metrics) or {}
  speed = row.get('learner_steps_per_second', math.nan)
  return _SECONDS_TO_SAVE + (2 / speed if speed > 0 else 0)


def _check_saved(exit_code: int, folder: run_folder.RunFolder, killed: bool,
                 error: str = '') -> None:
  """Raises an error if a learner that was told to stop did not save a checkpoint.

  Args:
    exit_code: the exit code of the learner.
    folder: the run's folder.
    killed: whether it was killed because it did not stop.
    error: the error that ended it, if that is not on the console.
  """
  if exit_code == _UNKNOWN:
    raise exit_codes.RunFailed(
        'the fork server, which started the parts of the run, was killed: the newest '
        f'checkpoint is in {folder.checkpoints}. Run the same command to continue from it.')
  if exit_code not in (0, -signal.SIGTERM):  # SIGTERM kills it while it starts.
    why = ('its learner step did not end in time, and it was killed' if killed
           else error.partition('\n')[0] or 'the reason is above' if exit_code > 0
           else f'it was killed by {signal.Signals(-exit_code).name}')
    lost = ('its steps since the newest checkpoint in '
            f'{folder.checkpoints} are lost. Run the same command to continue from it.'
            if folder.has_checkpoint else
            'all its steps are lost, since there is no checkpoint yet. Run the same '
            'command to begin again.')
    raise exit_codes.RunFailed(f'the learner did not save ({why}): {lost}')


def threads_of_learner(experiment: experiment_lib.OnlineExperiment) -> int:
  """Returns how many threads the learner gets when other parts run; 0 for all."""
  weights = experiment.acting_network.trainable_variables  # As many as the learner has.
  return devices.threads_of_step(
      sum(weight.shape.num_elements() for weight in weights),
      experiment.batch_size * experiment.unroll_length)


class Supervisor:
  """Runs a learner, N actors and further parts as processes.

  The further parts are a Reverb server, unless the processes share memory, and an
  evaluator and inference servers, where the settings ask for them.

  A part that dies is started again and finds the others: actors and learner reconnect
  to a new server, which begins with its last checkpoint if there is one; a new learner
  resumes from its own. A part that dies repeatedly ends the run, unless the run makes
  progress in between: the part was then killed from outside, or fails rarely.

  Attributes:
    processes: the newest process of each part, by the part's name.
    killed: the names of parts that did not stop when they were told to.
  """

  def __init__(self, config: str, root: str, num_actors: int, evaluator: bool = False,
               learner_threads: int = 0,
               inference: Optional[placement.Inference] = None,
               memory: Optional[str] = None):
    """Prepares the parts; `start` starts them.

    Args:
      config: settings as gin.
      root: the run's folder.
      num_actors: how many actors to start.
      evaluator: whether to start an evaluator.
      learner_threads: TensorFlow's threads in the learner; 0 for one per core.
      inference: where inference servers act for the actors; None: they act themselves.
      memory: the address of the memory that the processes share; None for a server.
    """
    self._folder = run_folder.RunFolder(root)
    port = None if memory else portpicker.pick_unused_port()
    server = memory or f'localhost:{port}'
    small = parts.Settings(gin_bindings=[config], threads=1, supervised=True)
    self._mains: Dict[str, Callable[..., int]] = {}

    def add(name, main, *args, threads=small.threads, **first):
      settings = small._replace(
          threads=threads, failure=str(self._failure(name)))
      self._mains[name] = functools.partial(main, settings, *args, **first)

    if port:
      add('server', parts.serve, root, port)
    if inference is None:
      add('learner', parts.learn, server, root, threads=learner_threads)
      for i in range(num_actors):
        add(f'actor_{i}', parts.act, server, i, start=0)
    else:
      ports = [portpicker.pick_unused_port() for _ in range(max(1, inference.num_servers))]
      local = None if inference.num_servers else trainer.InferenceAddress(ports[0])
      add('learner', parts.learn, server, root, local, threads=learner_threads)
      for i in range(inference.num_servers):
        # The servers have no other number that their noise could depend on.
        add(f'inference_{i}', parts.infer, server, ports[i], threads=learner_threads,
            start=i)
      for i in range(inference.num_processes(num_actors)):
        add(f'actor_{i}', parts.play, f'localhost:{ports[i % len(ports)]}', i,
            start=0)
    if evaluator:
      add('evaluator', parts.evaluate, server, root)
    self._context = processes.context()
    # For each part, the times of its deaths and the run's progress at each.
    self._deaths: Dict[str, List[Tuple[float, float]]] = {
        name: [] for name in self._mains}
    # For each actor, when it ended with an error, and with which.
    self._errors: Dict[str, List[Tuple[float, str]]] = {
        name: [] for name in self._mains}
    self._step = self._evaluated_step = 0.0  # The newest, of all starts.
    self._begins = not self._folder.was_started
    self._has_episodes = False
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
    self.processes[name] = self._context.Process(
        target=processes.exit_with, args=(main, self._log(name)), name=name,
        daemon=True)
    self.processes[name].start()

  def ended(self) -> bool:
    """Returns whether the run has ended, well or not."""
    return self._folder.done.exists() or self._folder.diverged.exists()

  def restart_the_dead(self) -> None:
    """Restarts the parts that have died.

    Raises:
      RunFailed: a part has died too often in too short a time, or without progress of
        the run in between.
    """
    for name, process in self.processes.items():
      if process.is_alive() or self.ended():
        continue
      now, progress = time.monotonic(), self._progress(name, process.exitcode)
      deaths = self._deaths[name]
      deaths.append((now, progress))
      recent = sum(now - then < _WITHIN_SECONDS for then, _ in deaths)
      futile = sum(before >= progress for _, before in deaths)
      if recent > _DEATHS_FORGIVEN:
        raise self._failed(name, f'{recent} times within {_WITHIN_SECONDS} s')
      if name.startswith('actor_') and process.exitcode > 0:
        same = self._count_same_errors(name, now)
        if same > _SAME_ERRORS_FORGIVEN:
          raise self._failed(name, f'{same} times in the same way')
      if futile > _DEATHS_FORGIVEN:
        raise self._failed(name, f'{futile} times while the run made no progress')
      if process.exitcode < 0:  # An earlier error is not why it died.
        self._failure(name).unlink(missing_ok=True)
      logging.warning('%s died (%s); starting it again', name, self._why(name))
      self._start(name)

  def _count_same_errors(self, name: str, now: float) -> int:
    """Returns how often a part has ended in the same way as now.

    Errors that differ in numbers and spaces only are the same, if they are recent or
    came at the same step of the same episode.
    """
    error = self._why(name)
    self._errors[name].append((now, error))
    place = _PLACE.findall(error)
    return sum(
        _kind(error) == _kind(other)
        and (now - then < _SAME_WITHIN_SECONDS or place == _PLACE.findall(other) != [])
        for then, other in self._errors[name])

  def _why(self, name: str) -> str:
    """Returns the error that ended a part, as one line, or else its exit code."""
    code = self.processes[name].exitcode
    return self.error(name).partition('\n')[0] or (
        signal.Signals(-code).name if code < 0 else f'exit code {code}')

  def error(self, name: str) -> str:
    """Returns the text of the error that ended a part; '' if there is none."""
    with contextlib.suppress(OSError):
      if self.processes[name].exitcode > 0:
        return self._failure(name).read_text(encoding='utf-8')
    return ''

  def _progress(self, name: str, exit_code: int) -> float:
    """Returns the newest learner step; for the evaluator, the newest it has evaluated.

    Until an episode has ended somewhere, an actor that ends with an error has made no
    progress, even if the learner took its unrolls: its environment may fail in every
    episode.
    """
    if name == 'evaluator':
      row = metrics_csv.last_metrics(self._folder.evaluations) or {}
      self._evaluated_step = max(self._evaluated_step, row.get('learner_step', 0))
      return self._evaluated_step
    row = metrics_csv.last_metrics(self._folder.metrics) or {}
    self._step = max(self._step, row.get('learner_step', 0))
    self._has_episodes |= not math.isnan(row.get('return', math.nan))
    if name.startswith('actor_') and exit_code > 0 and not self._has_episodes:
      return 0
    return self._step

  def _failed(self, name: str, how_often: str) -> exit_codes.RunFailed:
    """Returns the error that ends the run, and writes its line into the part's file."""
    failure, text = self._failure(name), self.error(name)
    line = f'{name} died {how_often}: {self._why(name)}'
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
      timeout: seconds that the learner has to save. The other parts have five, except
        for the server of a run that goes on later, which has to write its tables.
    """
    seconds = {'learner': timeout,
               'server': 5 if self.ended() else _SECONDS_TO_WRITE_TABLES}
    # The server stops last: the others would warn that it is gone. The actors stop at
    # the same time as the learner, since many of them would keep it from the processor.
    clients = sorted(set(self.processes) - {'server'}, key=lambda name: name != 'learner')
    for names in clients, self.processes.keys() & {'server'}:
      start = time.monotonic()
      for name in names:
        self.processes[name].terminate()
      for name in names:
        left = start + seconds.get(name, 5) - time.monotonic()
        if name == 'server' and left > 5:
          self.processes[name].join(5)
          left -= 5
          if self.processes[name].is_alive():
            print(f'The server writes its tables, which may take {left:.0f} s more.',
                  flush=True)
        self.processes[name].join(max(0.1, left))
        if self.processes[name].is_alive():
          self.killed.add(name)
          self.processes[name].kill()
          self.processes[name].join()


def _kind(error: str) -> str:
  """Returns an error without its spaces and numbers, such as that of the environment."""
  return ''.join(_NUMBERS.sub('0', error).split())
