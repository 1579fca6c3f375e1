"""Tests of server.py with a stand-in for the policy that the tests control."""

import asyncio
import json
import threading
import unittest
from unittest import mock

from absl.testing import absltest
from aiohttp import test_utils
import numpy as np
import tensorflow as tf

from gtrxl_tf.serving import exported
from gtrxl_tf.serving import server

_BODY = {'observation': [1, 2], 'reward': 0.5}


class _Policy:
  """Its action is the row of the memory; a step waits until `gate` is open."""

  observation_spec = tf.TensorSpec([2], tf.float32)
  action_spec = tf.TensorSpec([], tf.int64)
  num_rows, row_bytes = 4, 8

  def __init__(self):
    self.gate = threading.Event()
    self.gate.set()
    self.steps, self.error, self.action = [], None, np.int64

  def step(self, turns):
    self.steps.append(turns)
    assert self.gate.wait(20)
    if self.error is not None:
      raise self.error
    return [exported.Answer({'action': self.action(turn.row)},
                            {'policy/logits': np.array([1., -np.inf])})
            for turn in turns]


class ServerTest(unittest.IsolatedAsyncioTestCase):

  async def asyncSetUp(self):
    self.policy = _Policy()
    await self._serve()

  async def _serve(self, idle_seconds=600, max_batch=3):
    self.server = server.Server(self.policy, idle_seconds, max_batch)
    self.client = test_utils.TestClient(test_utils.TestServer(self.server.app()))
    await self.client.start_server()
    self.addAsyncCleanup(self.client.close)

  async def _begin(self):
    response = await self.client.post('/v1/sessions')
    self.assertEqual(response.status, 201)
    return '/v1/sessions/' + (await response.json())['session']

  def _act(self, session, **changes):
    return asyncio.create_task(
        self.client.post(session + '/act', json={**_BODY, **changes}))

  async def _wait_for_steps(self, number):
    while len(self.policy.steps) < number:
      await asyncio.sleep(0.01)

  async def _one_and_three(self):
    """Acts in four sessions, of which three wait for the first; returns responses."""
    sessions = [await self._begin() for _ in range(4)]
    self.policy.gate.clear()
    answers = [self._act(sessions[0])]
    await self._wait_for_steps(1)
    answers += [self._act(session) for session in sessions[1:]]
    while self.server._waiting.qsize() < 3:
      await asyncio.sleep(0.01)
    self.policy.gate.set()
    return [await x for x in answers]

  async def assert_refused(self, response, status, line):
    response = await response
    self.assertEqual(response.status, status)
    self.assertEqual(await response.json(), {'error': mock.ANY})
    error = (await response.json())['error']
    self.assertIn(line, error)
    self.assertNotIn('\n', error)

  async def test_a_session(self):
    session = await self._begin()
    for _ in range(2):
      response = await self._act(session, info=True)
      self.assertEqual(await response.json(), {
          'action': self.policy.steps[0][0].row,
          'info': {'policy/logits': [1.0, None]}})
    (first,), (second,) = self.policy.steps
    self.assertEqual((first.is_new, first.is_first, first.reward), (True, True, 0.5))
    self.assertEqual((second.is_new, second.is_first), (False, False))
    np.testing.assert_array_equal(second.observation['observation'], [1, 2])
    self.assertEqual((await self.client.delete(session)).status, 204)
    await self.assert_refused(self._act(session), 404, 'no such session')

  async def test_a_client_sends_where_episodes_begin(self):
    session = await self._begin()
    await self._act(session)
    response = await self.client.post(
        session + '/act', json={'observation': [1, 2], 'first': True})
    self.assertEqual(await response.json(), {'action': self.policy.steps[0][0].row})
    (turn,) = self.policy.steps[1]
    self.assertEqual((turn.is_new, turn.is_first, turn.reward), (False, True, 0.0))

  async def test_waiting_requests_are_served_together(self):
    actions = [(await x.json())['action'] for x in await self._one_and_three()]
    self.assertEqual([len(turns) for turns in self.policy.steps], [1, 3])
    self.assertEqual(
        actions, [turn.row for turns in self.policy.steps for turn in turns])
    self.assertEqual(sorted(actions), [0, 1, 2, 3])

  async def test_a_step_takes_no_more_than_max_batch(self):
    await self._serve(max_batch=2)
    self.assertEqual([x.status for x in await self._one_and_three()], [200] * 4)
    self.assertEqual([len(turns) for turns in self.policy.steps], [1, 2, 1])

  async def test_a_busy_session_is_refused(self):
    session = await self._begin()
    self.policy.gate.clear()
    answer = self._act(session)
    await self._wait_for_steps(1)
    await self.assert_refused(self._act(session), 409, 'the session is busy')
    await self.assert_refused(self.client.delete(session), 409, 'the session is busy')
    self.policy.gate.set()
    self.assertEqual((await answer).status, 200)
    self.assertEqual((await self._act(session)).status, 200)

  async def test_there_are_no_more_sessions_than_rows(self):
    sessions = [await self._begin() for _ in range(4)]
    await self.assert_refused(
        self.client.post('/v1/sessions'), 503, 'all 4 sessions are in use')
    await self.client.delete(sessions[2])
    await self._act(await self._begin())
    (turn,) = self.policy.steps[-1]
    self.assertTrue(turn.is_new)

  def _clock(self):
    clock = [0.0]  # It moves only in the tests, however slow the machine is.
    patch = mock.patch.object(server, 'time', mock.Mock(monotonic=lambda: clock[0]))
    patch.start()
    self.addCleanup(patch.stop)
    return clock

  async def test_idle_sessions_are_dropped(self):
    clock = self._clock()
    await self._serve(idle_seconds=0.4)
    idle, active, _ = [await self._begin() for _ in range(3)]
    await self._act(idle)
    for _ in range(8):
      self.assertEqual((await self._act(active)).status, 200)
      clock[0] += 0.1
    await self.assert_refused(self._act(idle), 404, 'or was idle for 0.4 s')
    self.assertEqual((await self.client.get('/v1/spec')).status, 200)
    text = await (await self.client.get('/metrics')).text()
    self.assertIn('gtrxl_serve_sessions 1.0', text)
    self.assertIn('gtrxl_serve_sessions_expired_total 2.0', text)

  async def test_a_full_server_drops_idle_sessions_at_once(self):
    clock = self._clock()
    for _ in range(self.policy.num_rows):
      await self._begin()
    await self.assert_refused(self.client.post('/v1/sessions'), 503, 'all 4 sessions')
    clock[0] += 601
    await self._begin()
    self.assertEqual(len(self.server._sessions), 1)

  async def test_wrong_requests_are_refused(self):
    session = await self._begin()
    await self._act(session)
    begun = await self._begin()
    for body, line in (
        ('{', 'the body is not JSON: Expecting'),
        (b'\xff', 'the body is not JSON'),
        ('', 'the body is not JSON'),
        ('[' * 50_000, 'the body is nested too deeply'),
        ('1' * 5000, 'the body'),
        ('[]', 'body: expected an object with observation'),
        ({'reward': 0}, 'body: observation is missing'),
        ({**_BODY, 'rewards': 1}, "body: 'rewards' is unknown: expected observation"),
        ({**_BODY, 'first': 1}, 'first: expected true or false'),
        ({**_BODY, 'info': None}, 'info: expected true or false'),
        ({'observation': [1, 2]}, 'reward: is missing'),
        ({'observation': [1, 2], 'first': False}, 'reward: is missing'),
        ({**_BODY, 'reward': float('nan')}, 'reward: has numbers that are NaN'),
        ({**_BODY, 'reward': [1]}, 'reward: expected float32 of shape []'),
        ('{"observation": [1, 1e999], "reward": 0}', 'observation: has numbers that'),
        ({**_BODY, 'observation': [1]}, 'expected float32 of shape [2], got shape [1]')):
      with self.subTest(body=str(body)[:60]):
        data = body if isinstance(body, (str, bytes)) else json.dumps(body)
        await self.assert_refused(
            self.client.post(session + '/act', data=data), 400, line)
    await self.assert_refused(self._act(begun, first=False), 400, 'first: false at the')
    self.assertEqual(len(self.policy.steps), 1)
    self.assertEqual((await self._act(session)).status, 200)

  async def test_wrong_paths_and_sizes_are_refused(self):
    session = await self._begin()
    await self.assert_refused(
        self.client.post(session + '/act', data=b' ' * 2**18), 413, 'Maximum request')
    await self.assert_refused(self.client.get('/v1'), 404, '404: Not Found')
    response = await self.client.get('/v1/sessions')
    self.assertEqual(response.headers['Allow'], 'POST')
    await self.assert_refused(
        self.client.get('/v1/sessions'), 405, '405: Method Not Allowed')
    await self.assert_refused(
        self.client.post('/v1/sessions/x/act', json=_BODY), 404, 'no such session')

  async def test_a_body_that_does_not_arrive(self):
    session = await self._begin()

    async def body():
      yield b'{'
      await asyncio.sleep(1)

    with mock.patch.object(server, '_BODY_SECONDS', 0.1):
      await self.assert_refused(
          self.client.post(session + '/act', data=body()), 408, 'did not arrive')

  async def test_a_step_that_fails(self):
    session = await self._begin()
    self.policy.error = ValueError('no\nreason')
    with self.assertLogs(level='ERROR'):
      await self.assert_refused(self._act(session), 500, 'the policy failed: no')
    self.policy.error = None
    self.assertEqual((await self._act(session)).status, 200)
    self.assertTrue(self.policy.steps[1][0].is_new)

  async def test_an_action_that_is_not_finite(self):
    self.policy.action = lambda _: np.float32(np.nan)
    await self.assert_refused(
        self._act(await self._begin()), 500, 'the policy returned an action that is NaN')

  async def test_health(self):
    self.assertEqual((await self.client.get('/healthz')).status, 200)
    self.policy.gate.clear()
    answer = self._act(await self._begin())
    await self._wait_for_steps(1)
    with mock.patch.object(server, '_STALL_SECONDS', 0):
      await self.assert_refused(
          self.client.get('/healthz'), 503, 'a step has taken more than 0 s')
    self.policy.gate.set()
    await answer

  async def test_spec_and_metrics(self):
    await self._act(await self._begin())
    response = await self.client.get('/v1/spec')
    self.assertEqual(await response.json(), {
        'observation': {'shape': [2], 'dtype': 'float32'},
        'action': {'shape': [], 'dtype': 'int64'},
        'max_sessions': 4, 'idle_seconds': 600})
    text = await (await self.client.get('/metrics')).text()
    for line in ('gtrxl_serve_sessions 1.0', 'gtrxl_serve_sessions_begun_total 1.0',
                 'gtrxl_serve_batch_size_count 1.0',
                 'gtrxl_serve_act_seconds_count 1.0',
                 'gtrxl_serve_requests_total{method="POST",path="/v1/sessions/{session}'
                 '/act",status="200"} 1.0'):
      self.assertIn(line, text)


if __name__ == '__main__':
  absltest.main()
