"""Tests of gauges.py, which read the gauges as Prometheus does."""

import time
from unittest import mock
import urllib.error
import urllib.request

from absl.testing import absltest
import portpicker
from prometheus_client import parser

from gtrxl_tf.settings import config
from gtrxl_tf.training import gauges as gauges_lib
from gtrxl_tf.training import watchdog as watchdog_lib


def _read(port):
  with urllib.request.urlopen(f'http://localhost:{port}/metrics') as response:
    text = response.read().decode()
  return {sample.name: sample.value
          for family in parser.text_string_to_metric_families(text)
          for sample in family.samples if sample.name.startswith('gtrxl_')}


class GaugesTest(absltest.TestCase):

  def test_numbers_are_read_as_they_are_now(self):
    port = portpicker.pick_unused_port()
    gauges = gauges_lib.Gauges('learner', port=port)
    gauges.show({'queue_length': 3, 'return_rooms-watermaze': 1.5, 'success': 1})
    gauges.show({'queue_length': 4, 'success': float('nan')})
    self.assertEqual(_read(port), {
        'gtrxl_learner_queue_length': 4, 'gtrxl_learner_return_rooms_watermaze': 1.5,
        'gtrxl_learner_success': 1})

  def test_health_fails_while_the_watchdog_sees_a_stall(self):
    port = portpicker.pick_unused_port()
    gauges = gauges_lib.Gauges('learner', port=port)

    def health():
      try:
        with urllib.request.urlopen(f'http://localhost:{port}/healthz') as response:
          return response.status
      except urllib.error.HTTPError as error:
        return error.code

    self.assertEqual(health(), 200)
    clock = [0.0]
    self.enter_context(mock.patch.object(time, 'monotonic', lambda: clock[0]))
    with watchdog_lib.Watchdog(5.0, lambda seconds: 'stalled') as watchdog:
      gauges.show_health(watchdog)
      self.assertEqual(health(), 200)
      clock[0] += 6  # The watchdog ignores jumps of more than 10.
      self.assertEqual(health(), 503)
      self.assertEqual(_read(port)['gtrxl_learner_seconds_without_progress'], 6)
      watchdog.progress()
      self.assertEqual(health(), 200)
      clock[0] += 6
    self.assertEqual(health(), 200)  # The run is over.

  def test_a_port_that_is_taken_is_refused(self):
    port = portpicker.pick_unused_port()
    gauges_lib.Gauges('learner', port=port)
    with self.assertRaisesRegex(
        config.ConfigError, f'^metrics at localhost:{port}: Address already in use$'):
      gauges_lib.Gauges('actor', port=port)


if __name__ == '__main__':
  absltest.main()
