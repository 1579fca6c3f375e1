"""Tests of machine.py."""

import math
import pathlib
import socket
import subprocess
import sys
from unittest import mock

from absl.testing import absltest

from gtrxl_tf import machine


class FreeBytesTest(absltest.TestCase):

  def test_this_machine_has_memory(self):
    self.assertBetween(machine.free_bytes(), 2**20, 2**50)

  def test_a_container_has_no_more_than_its_limit(self):
    folder = self.create_tempdir()
    files = [folder.create_file(name, text).full_path for name, text in (
        ('limit', '3000000\n'), ('used', '2000000\n'), ('stat', 'anon 1\nfile 500000\n'))]
    with mock.patch.object(machine, '_CGROUPS', [(*files, 'file')]):
      self.assertEqual(machine.free_bytes(), 1_500_000)
      folder.create_file('limit', 'max\n')
      self.assertGreater(machine.free_bytes(), 1_500_000)
    with mock.patch.multiple(machine, _CGROUPS=[], _MEMINFO=pathlib.Path('/none')):
      self.assertEqual(machine.free_bytes(), math.inf)


class LimitHeapsTest(absltest.TestCase):

  def test_new_threads_share_heaps(self):
    # In a process of its own, whose later tests would have the limit, too.
    heaps = int(subprocess.run([sys.executable, '-c', """
import ctypes, threading
from gtrxl_tf import machine
machine.limit_heaps(2)
barrier = threading.Barrier(9)
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
def allocate():
  libc.malloc(100)
  barrier.wait()
  barrier.wait()
for _ in range(8):
  threading.Thread(target=allocate).start()
barrier.wait()
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, 'stdout'))
libc.fflush(None)
barrier.wait()
"""], capture_output=True, text=True, check=True).stdout.count('<heap nr='))
    self.assertBetween(heaps, 1, 2)


class AddressesTest(absltest.TestCase):

  def test_addresses_that_the_machine_lacks_are_left_out(self):
    names = [(socket.AF_INET6, socket.SOCK_STREAM, 6, '', ('2001:db8::1', 0, 0, 0)),
             *[(socket.AF_INET, socket.SOCK_STREAM, 6, '', ('127.0.0.1', 0))] * 2]
    with mock.patch.object(socket, 'getaddrinfo', return_value=names):
      self.assertEqual(machine.addresses('localhost', 0), ['127.0.0.1'])
    with self.assertRaisesRegex(OSError, 'Cannot assign'):
      machine.addresses('192.0.2.7', 0)

  def test_brackets_are_for_ipv6(self):
    self.assertEqual([machine.host_and_port(host, 8000) for host in (
        'localhost', '::1', '[::1]')], ['localhost:8000', '[::1]:8000', '[::1]:8000'])

  def test_a_port_that_is_taken(self):
    with socket.socket() as taken:
      taken.bind(('127.0.0.1', 0))
      taken.listen()
      with self.assertRaisesRegex(OSError, 'in use'):
        machine.addresses('localhost', taken.getsockname()[1])


if __name__ == '__main__':
  absltest.main()
