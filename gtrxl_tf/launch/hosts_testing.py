"""Several hosts on one machine, for tests: network namespaces behind one switch."""

import ctypes
import os
import signal
import subprocess
import sys
from typing import List, Sequence
import unittest

_PREFIX = 'gtrxl-'
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def _die_with_parent() -> None:
  """Asks the kernel to kill this process when its parent ends."""
  _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _exit(signum: int, _) -> None:
  sys.exit(128 + signum)  # An exception, so that contexts are left.


def _ip(*arguments: str) -> str:
  done = subprocess.run(
      ['ip', *arguments], capture_output=True, text=True, check=False)
  if done.returncode:
    raise OSError(f'ip {" ".join(arguments)}: {done.stderr.strip()}')
  return done.stdout


def _alive(pid: int) -> bool:
  try:
    os.kill(pid, 0)
  except ProcessLookupError:
    return False
  except PermissionError:
    pass
  return True


class Hosts:
  """Hosts that only reach each other, through cables that can be cut.

  The switch is a bridge in its own network namespace, so it does not affect the
  machine's interfaces, routes or firewall. The hosts share the file system. Each has
  its own loopback interface.

  Use it as a context manager: on exit, and on SIGTERM, it kills the processes that it
  started and removes the hosts. If its own process is killed, those processes are
  killed too, and the next process that makes hosts removes the old ones.

  Attributes:
    names: the names of the hosts.
  """

  def __init__(self, names: Sequence[str]):
    """Makes the hosts.

    Args:
      names: the names of the hosts.

    Raises:
      unittest.SkipTest: network namespaces are not permitted here.
    """
    self.names = list(names)
    self._processes: List[subprocess.Popen] = []
    self._made: List[str] = []
    try:
      _remove_leftovers()
      self._add('switch')
      _ip('-n', self._namespace('switch'), 'link', 'add', 'bridge', 'up',
          'type', 'bridge')
      for name in self.names:
        self._add(name)
        self._plug_in(name)
    except BaseException as error:
      self.remove()
      if isinstance(error, OSError):
        raise unittest.SkipTest(
            f'network namespaces are not permitted here: {error}') from error
      raise

  def __enter__(self) -> 'Hosts':
    self._handler = signal.signal(signal.SIGTERM, _exit)
    return self

  def __exit__(self, *_) -> None:
    signal.signal(signal.SIGTERM, self._handler)
    self.remove()

  def _namespace(self, name: str) -> str:
    return f'{_PREFIX}{os.getpid()}-{name}'

  def _port(self, name: str) -> str:
    return f'port{self.names.index(name)}'

  def _add(self, name: str) -> None:
    _ip('netns', 'add', self._namespace(name))
    self._made.append(self._namespace(name))

  def _plug_in(self, name: str) -> None:
    host, switch = self._namespace(name), self._namespace('switch')
    _ip('link', 'add', self._port(name), 'netns', switch, 'type', 'veth',
        'peer', 'name', 'eth0', 'netns', host)
    _ip('-n', switch, 'link', 'set', self._port(name), 'master', 'bridge', 'up')
    _ip('-n', host, 'address', 'add', f'{self.address(name)}/24', 'dev', 'eth0')
    for interface in 'lo', 'eth0':
      _ip('-n', host, 'link', 'set', interface, 'up')

  def address(self, name: str) -> str:
    """Returns the host's IPv4 address."""
    return f'10.77.0.{self.names.index(name) + 1}'

  def run(self, name: str, command: Sequence[str], **settings) -> subprocess.Popen:
    """Starts a command on a host; `settings` are those of `subprocess.Popen`.

    The process is the command itself and leads a session: what it starts is killed
    with the hosts.
    """
    process = subprocess.Popen(
        ['ip', 'netns', 'exec', self._namespace(name), *command],
        start_new_session=True, preexec_fn=_die_with_parent, **settings)
    self._processes.append(process)
    return process

  def cut(self, name: str) -> None:
    """Pulls the host's cable out of the switch."""
    _ip('-n', self._namespace('switch'), 'link', 'set', self._port(name), 'down')

  def heal(self, name: str) -> None:
    """Plugs the cable in again."""
    _ip('-n', self._namespace('switch'), 'link', 'set', self._port(name), 'up')

  def remove(self) -> None:
    """Kills the processes on the hosts, and removes the hosts."""
    for process in self._processes:
      try:
        os.killpg(process.pid, signal.SIGKILL)
      except ProcessLookupError:
        pass
      process.wait()
    self._processes.clear()
    while self._made:
      _ip('netns', 'delete', self._made.pop())


def _remove_leftovers() -> None:
  """Removes the hosts that killed processes left, with what still runs on them."""
  for line in _ip('netns', 'list').splitlines():
    namespace = line.split()[0]
    if not namespace.startswith(_PREFIX):
      continue
    if _alive(int(namespace.removeprefix(_PREFIX).partition('-')[0])):
      continue
    for pid in _ip('netns', 'pids', namespace).split():
      os.kill(int(pid), signal.SIGKILL)
    _ip('netns', 'delete', namespace)
