"""Measures a running policy server, and prints a table.

  gtrxl serve --policy_dir=runs/numpad_2x2/policy --port=8080
  gtrxl serving_latency --url=http://localhost:8080 --clients=1,16,64
"""

import sys

from absl import flags

import binaries

_URL = flags.DEFINE_string('url', 'http://localhost:8080', 'The server.')
_CLIENTS = flags.DEFINE_list('clients', '1,16,64', 'Numbers of clients at once.')
_SECONDS = flags.DEFINE_float('seconds', 10, 'Seconds to measure each.', lower_bound=1)


def main() -> None:
  # pylint: disable=import-outside-toplevel
  from gtrxl_tf.environments import optional
  from gtrxl_tf.settings import config

  binaries.check_numbers('clients', _CLIENTS.value)
  try:
    aiohttp = optional.load(
        'aiohttp', needed_by='gtrxl serving_latency', extra='serve')
  except config.ConfigError as error:
    binaries.refuse(str(error))
  from gtrxl_tf.analysis.benchmarks import serving  # It needs aiohttp.

  binaries.print_row(serving.TITLES)
  binaries.print_row(['--:'] * len(serving.TITLES))
  for num_clients in map(int, _CLIENTS.value):
    try:
      binaries.print_row(serving.measure(_URL.value, num_clients, _SECONDS.value))
    except (OSError, ValueError, aiohttp.ClientError) as error:
      sys.exit(f'Stopped: {_URL.value}: {error}')


if __name__ == '__main__':
  binaries.run(main)
