"""The parts of a run as processes on several hosts, restarted when they die; for tests."""

import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Dict, List, Mapping, Sequence

from gtrxl_tf.launch import hosts_testing
from gtrxl_tf.training import run_folder

_ROOT = pathlib.Path(__file__).parents[2]
_PORT = 8000
_GRACE_SECONDS = 60  # Between SIGTERM and SIGKILL.


class Parts:
  """A server, a learner and actors, each on the host with its name.

  If there is a host `inference`, a server there acts for the actors.

  Every part writes its output to LOGS/NAME.log, also after a restart.

  Attributes:
    processes: the newest process of each part, by the part's name.
    exit_codes: the exit codes of all processes that have ended, by the part's name.
  """

  def __init__(self, hosts: hosts_testing.Hosts, folder: run_folder.RunFolder,
               logs: pathlib.Path, settings: Sequence[str], num_actors: int,
               flags: Mapping[str, Sequence[str]] = {}):
    """Prepares the parts; `start` starts them.

    Args:
      hosts: with `server`, `learner` and `actor_0`, `actor_1` and so on; perhaps with
        `inference`.
      folder: the folder of the run.
      logs: a folder.
      settings: flags of all parts.
      num_actors: how many actors.
      flags: further flags, by the part's name.
    """
    self._hosts = hosts
    self._folder = folder
    self._logs = logs
    root = f'--root_dir={folder.root}'
    server = f'--server={hosts.address("server")}:{_PORT}'
    parts = {'server': ('reverb_server', f'--port={_PORT}'),
             'learner': ('learner', root, server)}
    called = server
    if 'inference' in hosts.names:
      port = _PORT + 1
      parts['inference'] = ('inference', server, '--host=0.0.0.0', f'--port={port}')
      called = f'--inference={hosts.address("inference")}:{port}'
    for i in range(num_actors):
      parts[f'actor_{i}'] = ('actor', called, f'--index={i}')
    self._commands = {
        name: [sys.executable, '-m', f'binaries.{binary}',
               *own, *settings, *flags.get(name, ())]
        for name, (binary, *own) in parts.items()}
    self.processes: Dict[str, subprocess.Popen] = {}
    self.exit_codes = {name: [] for name in parts}

  def start(self, name: str) -> None:
    """Starts a part."""
    with open(self._logs / f'{name}.log', 'a', encoding='utf-8') as log:
      log.write(f'--- {time.time():.1f}: start {len(self.exit_codes[name])}\n')
      log.flush()
      self.processes[name] = self._hosts.run(
          name, self._commands[name], cwd=_ROOT, stdout=log, stderr=log,
          env={**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '2'})

  def restart_the_dead(self) -> None:
    """Restarts every part that has ended, except those that end with the run."""
    for name, process in self.processes.items():
      ended = self._folder.done.exists() and name != 'server'
      if not ended and process.poll() is not None:
        self.exit_codes[name].append(process.returncode)
        self.start(name)

  def end(self, name: str, signum: int) -> int:
    """Sends a part a signal; returns its exit code, -SIGKILL if it takes too long."""
    process = self.processes[name]
    process.send_signal(signum)
    try:
      process.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
      process.send_signal(signal.SIGKILL)
      process.wait()
    return process.returncode

  def tail(self, name: str, count: int = 15) -> str:
    """Returns the last lines of a part's log."""
    return f'{name}:\n  ' + '\n  '.join(self._lines(name)[-count:])

  def find(self, name: str, text: str) -> List[str]:
    """Returns the lines of a part's log that contain `text`."""
    return [line for line in self._lines(name) if text in line]

  def _lines(self, name: str) -> List[str]:
    return (self._logs / f'{name}.log').read_text(errors='replace').splitlines()
