"""Tests of reconnect.py."""

import time
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import pytest

from gtrxl_tf.replay import server_lost
from gtrxl_tf.settings import config
from gtrxl_tf.training.online import reconnect


class PatienceTest(parameterized.TestCase):

  @parameterized.parameters('', '8000', 'localhost', 'localhost:', 'localhost:http',
                            'localhost:0', 'localhost:70000', 'http://localhost:8000',
                            '::1:8000')
  def test_an_invalid_address_is_refused(self, address):
    with self.assertRaisesRegex(
        config.ConfigError, f'^--server={address}: expected HOST:PORT'):
      reconnect.check_address(address)

  @parameterized.parameters('10.0.0.1:8000', 'my-host.local:8000', '[::1]:8000')
  def test_a_valid_address(self, address):
    self.assertEqual(reconnect.check_address(address), address)

  @pytest.mark.medium
  def test_waits_grow_until_the_server_answers(self):
    asked, clock = [], [0.0]  # A clock that moves only where the part sleeps.
    self.enter_context(mock.patch.object(time, 'monotonic', lambda: clock[0]))
    self.enter_context(mock.patch.object(
        time, 'sleep', lambda seconds: clock.append(clock.pop() + seconds)))
    backoff = reconnect.Backoff('actor', 'host:1', lambda: bool(asked.append(1)))
    def wait():
      before = time.monotonic()
      with self.assertLogs(level='WARNING') as logs:
        backoff.wait(server_lost.ServerLost('gone'))
      self.assertRegex(logs.output[0], r'actor: .* at host:1 does not answer \(gone\);')
      return time.monotonic() - before
    first, second = wait(), wait()
    self.assertBetween(first, 0.5, 1.2)
    self.assertBetween(second, 1, 2.2)
    backoff.reset()
    self.assertBetween(wait(), 0.5, 1.2)

  def test_a_part_that_is_told_to_stop_does_not_wait(self):
    with self.assertNoLogs(), mock.patch.object(time, 'sleep') as sleep:
      # The server was probably told to stop, too.
      reconnect.Backoff('actor', 'host:1', lambda: True).wait(
          server_lost.ServerLost(''))
    sleep.assert_not_called()


if __name__ == '__main__':
  absltest.main()
