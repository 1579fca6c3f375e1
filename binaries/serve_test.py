"""Tests of a policy server, in a process as a user starts it, and its clients."""

import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from absl.testing import absltest
import numpy as np
import portpicker
import pytest

from gtrxl_tf.serving import policy_testing

_ROOT = pathlib.Path(__file__).parents[1]
_NUM_CLIENTS, _NUM_STEPS = 6, 20
_, CLIENT, _ = re.findall(
    r'```python\n(.*?)```', (_ROOT / 'docs/serving.md').read_text('utf-8'), re.DOTALL)


class _Server:
  """A process of binaries.serve."""

  def __init__(self, policy_dir, **flags):
    self.port = portpicker.pick_unused_port()
    self._output = tempfile.TemporaryFile('w+')  # pylint: disable=consider-using-with
    flags = {'policy_dir': policy_dir, 'port': self.port, **flags}
    self.process = subprocess.Popen(  # pylint: disable=consider-using-with
        [sys.executable, '-m', 'binaries.serve',
         *(f'--{name}={value}' for name, value in flags.items())],
        cwd=_ROOT, env=os.environ, stdout=self._output, stderr=self._output, text=True)

  def output(self) -> str:
    self._output.seek(0)
    return self._output.read()

  def wait_until_ready(self) -> None:
    end = time.monotonic() + 120
    while 'Serving' not in self.output():
      assert self.process.poll() is None and time.monotonic() < end, self.output()
      time.sleep(0.1)

  def end(self) -> int:
    self.process.send_signal(signal.SIGTERM)
    try:
      return self.process.wait(60)
    finally:
      self.process.kill()


class _Client:

  def __init__(self, port):
    self._connection = http.client.HTTPConnection('localhost', port, timeout=60)

  def ask(self, method, path, body=None):
    """Sends a request; returns the status and the JSON of the answer."""
    self._connection.request(method, path, body and json.dumps(body))
    response = self._connection.getresponse()
    text = response.read()
    return response.status, json.loads(text) if text else None


@pytest.mark.long
class ServeTest(absltest.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.policy = policy_testing.export_for_class(
        cls, policy_testing.make_policy('trxl', 0.7, False))
    cls.server = _Server(cls.policy)
    cls.addClassCleanup(cls.server.process.kill)
    cls.server.wait_until_ready()

  def setUp(self):
    super().setUp()
    self.client = _Client(self.server.port)

  def tearDown(self):
    super().tearDown()
    self.assertIsNone(self.server.process.poll())
    self.assertNotIn('Traceback', self.server.output())

  def test_each_client_gets_what_the_policy_alone_answers(self):
    shown = [policy_testing.draw(i, _NUM_STEPS + i) for i in range(_NUM_CLIENTS)]
    answers = [None] * _NUM_CLIENTS

    def play(i):
      client = _Client(self.server.port)
      status, answer = client.ask('POST', '/v1/sessions')
      assert status == 201
      path = f'/v1/sessions/{answer["session"]}'
      answers[i] = [client.ask('POST', f'{path}/act', {
          'first': first, 'reward': reward, 'observation': observation, 'info': True})
                    for first, reward, observation in shown[i]]
      assert client.ask('DELETE', path) == (204, None)

    threads = [threading.Thread(target=play, args=(i,)) for i in range(_NUM_CLIENTS)]
    for thread in threads:
      thread.start()
    for thread in threads:
      thread.join()
    actions = set()
    for given, got in zip(shown, answers):
      self.assertEqual({status for status, _ in got}, {200})
      logits = np.array([answer['info']['policy/logits'] for _, answer in got])
      np.testing.assert_allclose(
          logits, policy_testing.alone(self.policy, given), atol=1e-5, rtol=1e-5)
      chosen = [answer['action'] for _, answer in got]
      np.testing.assert_array_equal(chosen, logits.argmax(axis=1))
      actions |= set(chosen)
    self.assertGreater(len(actions), 1)

  def test_the_example_in_the_documentation(self):
    example, names = CLIENT.replace(':8080', f':{self.server.port}'), {}
    exec(compile(example, 'serving.md', 'exec'), names)  # pylint: disable=exec-used
    self.assertIn(names['action'], range(4))
    self.assertEqual(
        self.client.ask('DELETE', f'/v1/sessions/{names["session"]}')[0], 404)

  def test_it_can_be_measured(self):
    done = subprocess.run(
        [sys.executable, '-m', 'tools.serving_latency', '--clients=2', '--seconds=1',
         f'--url=http://localhost:{self.server.port}'],
        cwd=_ROOT, capture_output=True, text=True, check=True)
    titles, _, cells = (
        line.strip('| ').split(' | ') for line in done.stdout.splitlines())
    row = dict(zip(titles, cells))
    self.assertEqual(row['clients'], '2')
    for title in 'requests/s', 'p50, ms', 'p99, ms', 'CPU ms per request':
      self.assertGreater(float(row[title].replace(',', '')), 0)

  def test_it_describes_the_policy(self):
    status, spec = self.client.ask('GET', '/v1/spec')
    self.assertEqual(status, 200)
    self.assertEqual(spec['observation']['shape'], [4])
    self.assertEqual(spec['action'], {
        'shape': [], 'dtype': 'int32', 'minimum': 0, 'maximum': 3})

  def test_nan_and_other_wrong_observations_are_refused(self):
    _, answer = self.client.ask('POST', '/v1/sessions')
    path = f'/v1/sessions/{answer["session"]}/act'
    for observation, line in (
        ([0, 0, 0, float('nan')], 'observation: has numbers that are NaN or infinite'),
        ([0, 0], 'observation: expected float32 of shape [4], got shape [2]')):
      self.assertEqual(
          self.client.ask('POST', path, {'observation': observation}),
          (400, {'error': line}))
    self.assertEqual(
        self.client.ask('POST', path, {'observation': [0, 0, 0, 0]})[0], 200)

  def test_requests_that_are_not_http(self):
    for garbage in (b'\x16\x03\x01\x02\x00\x01\x00', b'GET\r\n\r\n', os.urandom(1000),
                    b'POST /v1/sessions HTTP/1.1\r\nContent-Length: x\r\n\r\n',
                    b'GET / HTTP/1.1\r\n' + b'x: y\r\n' * 10_000):
      with socket.create_connection(('localhost', self.server.port), 10) as connection:
        connection.sendall(garbage + b'\r\n\r\n')
        try:
          answer = connection.recv(10_000)
        except ConnectionError:
          answer = b''
      self.assertRegex(answer or b'HTTP/1.1 4', rb'^HTTP/1.[01] 4')
    self.assertEqual(self.client.ask('GET', '/healthz'), (200, {'status': 'ok'}))

  def test_a_damaged_policy_is_refused_in_one_line(self):
    folder = pathlib.Path(self.create_tempdir().full_path) / 'policy'
    shutil.copytree(self.policy, folder)
    (folder / 'saved_model.pb').write_bytes(b'')
    server = _Server(folder)
    self.assertEqual(server.process.wait(240), 2)
    self.assertRegex(server.output(), f'^Not started: {folder}/saved_model.pb: is '
                     r'damaged: has 0 bytes: expected \d+\n$')

  def test_a_missing_aiohttp_is_refused_in_one_line(self):
    done = subprocess.run(
        [sys.executable, '-c', 'import sys; sys.modules["aiohttp"] = None; '
         'from gtrxl_tf.launch import program; from binaries import serve; '
         'program.run(serve.main)',
         '--policy_dir=none'], capture_output=True, text=True, check=False)
    self.assertEqual(done.returncode, 2)
    self.assertRegex(done.stderr, '^Not started: gtrxl serve needs the package aiohttp, '
                     'which is not installed: expected `.*serve.*`\n$')

  def test_an_address_in_use(self):
    server = _Server(self.policy, port=self.server.port)
    self.assertEqual(server.process.wait(240), 2)
    self.assertRegex(server.output(), f'^Not started: localhost:{self.server.port}: '
                     'cannot listen: .*in use.*\n$')

  def test_sigterm_leaves_no_request_without_an_answer(self):
    server = _Server(self.policy)
    server.wait_until_ready()
    statuses, refused = [[] for _ in range(4)], []

    def play(own):
      client = _Client(server.port)
      _, answer = client.ask('POST', '/v1/sessions')
      while True:
        try:
          status, _ = client.ask(
              'POST', f'/v1/sessions/{answer["session"]}/act',
              {'observation': [0, 0, 0, 0], 'reward': 0})
        except http.client.RemoteDisconnected as error:
          refused.append(error)  # Between two requests.
          return
        except ConnectionError as error:
          refused.append(error)
          return
        own.append(status)

    threads = [threading.Thread(target=play, args=[own]) for own in statuses]
    for thread in threads:
      thread.start()
    while not all(statuses) and all(thread.is_alive() for thread in threads):
      time.sleep(0.1)
    self.assertEqual(server.end(), 0)
    for thread in threads:
      thread.join(60)
    self.assertEqual({x for own in statuses for x in own}, {200})
    self.assertLen(refused, 4)
    self.assertNotIn('Traceback', server.output())


if __name__ == '__main__':
  absltest.main()
