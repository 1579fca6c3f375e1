"""Tests of keepalive.py on sockets; `binaries/network_slow_test.py` drops packets."""

import socket
import time

from absl.testing import absltest
import pytest

from gtrxl_tf.training.online import keepalive


def _timeout(connection: socket.socket) -> int:
  return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)


class KeepaliveTest(absltest.TestCase):

  @pytest.mark.medium
  def test_connections_from_before_and_within_the_context_are_bounded(self):
    with socket.create_server(('127.0.0.1', 0)) as server:
      address = server.getsockname()
      with socket.create_connection(address) as before:
        self.assertEqual(_timeout(before), 0)
        with keepalive.keep_alive(12):
          self.assertEqual(_timeout(before), 12_000)
          with socket.create_connection(address) as within:
            deadline = time.time() + 20
            while not _timeout(within) and time.time() < deadline:
              time.sleep(0.1)
            self.assertEqual(_timeout(within), 12_000)
            self.assertEqual(
                within.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE), 1)
            probes = [within.getsockopt(socket.IPPROTO_TCP, option) for option in (
                socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)]
            self.assertEqual(probes, [4, 2, 4])
        # They are still open.
        peer, _ = server.accept()
        with peer:
          before.sendall(b'x')
          self.assertEqual(peer.recv(1), b'x')

  def test_other_sockets_are_left_alone(self):
    left, right = socket.socketpair()
    with left, right, socket.socket(type=socket.SOCK_DGRAM):
      with keepalive.keep_alive():
        pass
      left.sendall(b'x')
      self.assertEqual(right.recv(1), b'x')


if __name__ == '__main__':
  absltest.main()
