"""Tests of hosts_testing.py."""

import os
import pathlib
import signal
import subprocess
import sys
import time

from absl.testing import absltest
import pytest

from gtrxl_tf.launch import hosts_testing

_ECHO = '''
import socket
server = socket.create_server(('', 8000))
print('listens', flush=True)
while True:
  connection, peer = server.accept()
  connection.sendall(peer[0].encode())
  connection.close()
'''
_ASK = '''
import socket, sys
with socket.create_connection((sys.argv[1], 8000), timeout=1) as connection:
  print(connection.recv(100).decode())
'''


def _namespaces():
  return subprocess.run(['ip', 'netns', 'list'], capture_output=True, text=True,
                        check=True).stdout


def _state(pid):
  """The state of a process, as the kernel abbreviates it; None if it is gone."""
  try:
    stat = pathlib.Path(f'/proc/{pid}/stat').read_text(encoding='ascii')
  except FileNotFoundError:
    return None
  return stat.rpartition(')')[2].split()[0]


class HostsTest(absltest.TestCase):

  @pytest.mark.long
  def test_hosts_reach_each_other_unless_cut(self):
    with hosts_testing.Hosts(['server', 'client', 'other']) as hosts:
      server = hosts.run('server', [sys.executable, '-c', _ECHO],
                         stdout=subprocess.PIPE, text=True)
      self.assertEqual(server.stdout.readline(), 'listens\n')

      def ask(name, address=hosts.address('server')):
        asking = hosts.run(name, [sys.executable, '-c', _ASK, address],
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return asking.communicate()[0].strip()

      self.assertEqual(ask('client'), hosts.address('client'))
      self.assertEqual(ask('client', '127.0.0.1'), '')
      hosts.cut('client')
      self.assertEqual(ask('client'), '')
      self.assertEqual(ask('other'), hosts.address('other'))
      hosts.heal('client')
      self.assertEqual(ask('client'), hosts.address('client'))
    server.stdout.close()
    self.assertLess(server.returncode, 0)
    self.assertNotIn(f'gtrxl-{os.getpid()}-', _namespaces())

  def make_hosts(self, signum):
    """Starts a process that makes a host and sends itself a signal.

    Returns the process and the id of what it ran on the host.
    """
    with hosts_testing.Hosts([]):
      pass  # Skips the test if hosts cannot be made.
    process = subprocess.Popen([sys.executable, '-c', f'''
import os, time
from gtrxl_tf.launch import hosts_testing
with hosts_testing.Hosts(['left']) as hosts:
  print(hosts.run('left', ['sleep', '100']).pid, flush=True)
  os.kill(os.getpid(), {int(signum)})
  time.sleep(100)
'''], stdout=subprocess.PIPE, text=True)
    pid = int(process.communicate(timeout=60)[0])
    return process, pid

  def assert_ends(self, pid):
    deadline = time.time() + 60
    while _state(pid) not in (None, 'Z'):
      self.assertLess(time.time(), deadline)
      time.sleep(0.1)

  @pytest.mark.long
  def test_what_a_killed_process_ran_dies_and_the_next_removes_its_hosts(self):
    process, pid = self.make_hosts(signal.SIGKILL)
    self.assertEqual(process.returncode, -signal.SIGKILL)
    self.assert_ends(pid)
    self.assertIn(f'gtrxl-{process.pid}-left', _namespaces())
    with hosts_testing.Hosts([]):
      self.assertNotIn(f'gtrxl-{process.pid}-left', _namespaces())

  @pytest.mark.long
  def test_a_terminated_process_removes_its_hosts(self):
    process, pid = self.make_hosts(signal.SIGTERM)
    self.assertEqual(process.returncode, 128 + signal.SIGTERM)
    self.assert_ends(pid)
    self.assertNotIn(f'gtrxl-{process.pid}-left', _namespaces())


if __name__ == '__main__':
  absltest.main()
