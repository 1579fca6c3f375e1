"""Tests of clients of a Reverb server whose host vanishes without closing connections.

A host whose cable is cut sends nothing more, like one that loses its power: when a
process on it dies, its peers do not see the connection close.
"""

import pathlib
import signal
import subprocess
import sys
import time

from absl.testing import absltest

from gtrxl_tf.launch import hosts_testing

_ROOT = pathlib.Path(__file__).parents[1]
_KEEPALIVE_SECONDS = 6
_SERVER = '''
import sys, time
import reverb
server = reverb.Server([reverb.Table.queue('queue', 10)], port=8000)
if sys.argv[1] == 'full':
  reverb.Client('localhost:8000').insert([1.0], {'queue': 1.0})
print('listens', flush=True)
server.wait()
'''
_CLIENT = '''
import contextlib, sys, time
import reverb
from gtrxl_tf.training.online import keepalive
address, seconds, call = sys.argv[1:]
client = reverb.Client(address)
client.server_info(30)
keep = keepalive.keep_alive(int(seconds)) if int(seconds) else contextlib.nullcontext()
with keep:
  print('connected', flush=True)
  begun = time.time()
  if call == 'ask':
    sys.stdin.readline()
    begun = time.time()
    try:
      client.server_info(20)
      outcome = 'answered'
    except (RuntimeError, reverb.ReverbError):
      outcome = 'failed'
  else:  # It waits without a deadline.
    sample, = client.sample('queue', emit_timesteps=False)
    outcome = f'sampled {sample.data[0][0]}'
  print(outcome, time.time() - begun, flush=True)
'''


class NetworkTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.hosts = self.enter_context(hosts_testing.Hosts(['server', 'client']))

  def run_on(self, host, code, *arguments) -> subprocess.Popen:
    process = self.hosts.run(
        host, [sys.executable, '-c', code, *arguments], cwd=_ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    for pipe in process.stdin, process.stdout:
      self.addCleanup(pipe.close)
    return process

  def start_server(self, content='empty') -> subprocess.Popen:
    server = self.run_on('server', _SERVER, content)
    self.assertEqual(server.stdout.readline(), 'listens\n')
    return server

  def start_client(self, host, seconds, call) -> subprocess.Popen:
    client = self.run_on(
        host, _CLIENT, f'{self.hosts.address("server")}:8000', str(seconds), call)
    self.assertEqual(client.stdout.readline(), 'connected\n')
    return client

  def test_a_call_to_a_host_that_vanished_fails_soon(self):
    self.start_server()
    clients = [self.start_client('client', seconds, 'ask')
               for seconds in (_KEEPALIVE_SECONDS, 0)]
    self.hosts.cut('server')
    for client in clients:
      client.stdin.write('\n')
      client.stdin.flush()
    took = []
    for client in clients:
      outcome, seconds = client.stdout.readline().split()
      self.assertEqual(outcome, 'failed')
      took.append(float(seconds))
    print(f'A call to a host that vanished failed after {took[0]:.1f} s with a '
          f'keepalive of {_KEEPALIVE_SECONDS} s, and at its own deadline after '
          f'{took[1]:.1f} s without')
    self.assertLess(took[0], 2 * _KEEPALIVE_SECONDS)
    self.assertGreater(took[1], 19)

  def test_a_client_that_only_waits_finds_the_new_server(self):
    server = self.start_server()
    client = self.start_client('client', _KEEPALIVE_SECONDS, 'wait')
    time.sleep(3)  # Until it waits.
    self.hosts.cut('server')
    server.send_signal(signal.SIGKILL)
    server.wait()
    self.start_server('full')
    self.hosts.heal('server')
    healed = time.time()
    self.assertStartsWith(client.stdout.readline(), 'sampled 1.0 ')
    took = time.time() - healed
    print(f'A client that waited had the new server after {took:.1f} s')
    self.assertLess(took, 40)  # gRPC connects again within 20 s or so.


if __name__ == '__main__':
  absltest.main()
