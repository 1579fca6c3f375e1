"""Tests of machine.py."""

import subprocess
import sys

from absl.testing import absltest


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
    self.assertLessEqual(heaps, 2)


if __name__ == '__main__':
  absltest.main()
