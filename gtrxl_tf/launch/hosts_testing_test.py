"""Tests of hosts_testing.py."""

import os
import subprocess
import sys

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


if __name__ == '__main__':
  absltest.main()
