"""Measures a running policy server, and prints a table.

  gtrxl serve --policy_dir=runs/numpad_2x2/policy --port=8080
  python -m tools.serving_latency --url=http://localhost:8080 --clients=1,16,64
"""

import asyncio
import sys
import time
from typing import Any, Dict, List

from absl import flags
import aiohttp
import numpy as np

from gtrxl_tf.launch import program
import tools

_URL = flags.DEFINE_string('url', 'http://localhost:8080', 'The server.')
_CLIENTS = flags.DEFINE_list('clients', '1,16,64', 'Numbers of clients at once.')
_SECONDS = flags.DEFINE_float('seconds', 10, 'Seconds to measure each.', lower_bound=1)

_WARM_UP_SECONDS = 1


async def _measure(num_clients: int) -> Dict[str, str]:
  """Measures the server.

  Each client has a session and a connection, and sends a request when the one before is
  answered. All are in this process, which takes CPU time itself. CPU milliseconds are
  those of the server's process.
  """
  url, seconds = _URL.value, _SECONDS.value
  async with aiohttp.ClientSession(
      url, connector=aiohttp.TCPConnector(limit=0), raise_for_status=True) as http:
    async with http.get('/v1/spec') as response:
      observation = _example((await response.json())['observation'])
    begin = time.perf_counter() + _WARM_UP_SECONDS
    played = [asyncio.create_task(_play(http, observation, begin, begin + seconds))
              for _ in range(num_clients)]
    await asyncio.sleep(_WARM_UP_SECONDS)
    before = await _counters(http)
    await asyncio.sleep(seconds)
    after = await _counters(http)
    latencies = np.concatenate(await asyncio.gather(*played))
  gone = {name: after[name] - before[name] for name in before}
  answered = gone['gtrxl_serve_act_seconds_count']
  p50, p99 = 1e3 * np.percentile(latencies, [50, 99])
  return {
      'clients': f'{num_clients}', 'requests/s': f'{answered / seconds:,.0f}',
      'p50, ms': f'{p50:.1f}', 'p99, ms': f'{p99:.1f}',
      'CPU ms per request': f'{1e3 * gone["process_cpu_seconds_total"] / answered:.2f}',
      'requests per step': f'{answered / gone["gtrxl_serve_batch_size_count"]:.1f}'}


async def _play(http: aiohttp.ClientSession, observation: Any, begin: float, end: float
                ) -> List[float]:
  """Acts in a session until `end`; returns the latencies from `begin` on."""
  async with http.post('/v1/sessions') as response:
    path = f'/v1/sessions/{(await response.json())["session"]}'
  latencies = []
  while (sent := time.perf_counter()) < end:
    async with http.post(
        f'{path}/act', json={'observation': observation, 'reward': 0}) as response:
      await response.read()
    if sent >= begin:
      latencies.append(time.perf_counter() - sent)
  async with http.delete(path):
    return latencies


async def _counters(http: aiohttp.ClientSession) -> Dict[str, float]:
  """Returns the server's counters that have no labels."""
  async with http.get('/metrics') as response:
    lines = (await response.text()).splitlines()
  pairs = [line.split() for line in lines if line[0] != '#' and '{' not in line]
  return {name: float(value) for name, value in pairs}


def _example(spec: Any) -> Any:
  """Returns an observation of zeros or minima, for a description of observations."""
  if isinstance(spec, list):
    return [_example(part) for part in spec]
  if not isinstance(spec.get('shape'), list):
    return {name: _example(part) for name, part in spec.items()}
  value = spec.get('minimum', 0) if 'int' in spec['dtype'] else 0.0
  if spec['dtype'] == 'bool':
    value = False
  return np.broadcast_to(value, spec['shape']).tolist()


def main() -> None:
  try:
    tools.print_table(asyncio.run(_measure(num)) for num in tools.numbers(_CLIENTS))
  except (OSError, ValueError, aiohttp.ClientError) as error:
    sys.exit(f'Stopped: {_URL.value}: {error}')


if __name__ == '__main__':
  program.run(main)
