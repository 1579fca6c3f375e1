"""An HTTP server of an exported policy, which holds the memory of each client.

  POST   /v1/sessions           begins a session: {"session": ID}
  POST   /v1/sessions/ID/act    {"observation": ..., "reward": 0.5}: {"action": ...}
  DELETE /v1/sessions/ID        ends it
  GET    /v1/spec               what observations and actions look like
  GET    /healthz, /metrics     for Kubernetes, for Prometheus

A request that cannot be answered gets a status of 400 or above and {"error": LINE}.
docs/serving.md describes the protocol.
"""

import asyncio
import concurrent.futures
import dataclasses
import functools
import json
import logging
import pathlib
import secrets
import time
from typing import Any, AsyncIterator, Callable, Dict, Optional, Tuple

from aiohttp import web
import numpy as np
import prometheus_client
import tensorflow as tf

from gtrxl_tf import machine
from gtrxl_tf.serving import exported
from gtrxl_tf.serving import json_values
from gtrxl_tf.settings import config

_BODY_SECONDS = 10      # For the body of a request to arrive.
_STOP_SECONDS = 20      # For requests in progress, after SIGTERM.
_STALL_SECONDS = 60     # After which a step counts as hung.
_NUMBER_BYTES = 64      # Allowed for each number of an observation.
_OTHER_BYTES = 2**16    # Allowed for the rest of a body.
_LATENCIES = (.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5)

_REWARD = tf.TensorSpec([], tf.float32)

_dumps = functools.partial(json.dumps, allow_nan=False)


@dataclasses.dataclass
class _Session:
  """A client's session."""
  row: int          # Row of its memory in the policy.
  used: float       # When it last acted, or began: time.monotonic().
  is_new: bool = True
  is_busy: bool = False


class Server:
  """An HTTP server that keeps sessions of an exported policy.

  The policy steps in its own thread. Requests that arrive meanwhile wait, and the next
  step serves all of them, up to `max_batch`.
  """

  def __init__(self, policy: exported.ExportedPolicy, idle_seconds: float,
               max_batch: int):
    """Creates the server; it listens when its `app` is run.

    Args:
      policy: has a row of memory for each session.
      idle_seconds: how long an idle session is kept.
      max_batch: the most sessions that one step serves.
    """
    self._policy = policy
    self._idle_seconds = idle_seconds
    self._max_batch = max_batch
    self._sessions: Dict[str, _Session] = {}
    self._free = list(range(policy.num_rows))
    self._waiting: asyncio.Queue[Tuple[exported.Turn, asyncio.Future]] = asyncio.Queue()
    self._step_began: Optional[float] = None
    self._thread = concurrent.futures.ThreadPoolExecutor(1, 'policy')
    self._metrics = _Metrics(self._num_sessions)

  def app(self) -> web.Application:
    """Makes the application that answers requests."""
    numbers = sum(
        spec.shape.num_elements()
        for spec in json_values.leaves(self._policy.observation_spec, '').values())
    app = web.Application(middlewares=[self._answer],
                          client_max_size=_OTHER_BYTES + _NUMBER_BYTES * numbers)
    app.add_routes([
        web.post('/v1/sessions', self._begin),
        web.post('/v1/sessions/{session}/act', self._act),
        web.delete('/v1/sessions/{session}', self._end),
        web.get('/v1/spec', self._spec),
        web.get('/healthz', self._health),
        web.get('/metrics', self._show_metrics)])
    app.cleanup_ctx.append(self._background)
    return app

  @web.middleware
  async def _answer(self, request: web.Request, handler: Callable) -> web.Response:
    """Turns errors into answers of one line, and counts requests."""
    headers = {}
    try:
      response = await handler(request)
    except json_values.Refused as error:
      status, message = error.status, str(error)
    except web.HTTPException as error:  # No such path, wrong method, body too large.
      status, message = error.status, (error.text or error.reason).split('\n')[0]
      headers = {name: x for name, x in error.headers.items() if name == 'Allow'}
    except Exception:  # pylint: disable=broad-except
      logging.exception('%s %s failed', request.method, request.path)
      status, message = 500, 'internal error: see the log of the server'
    else:
      status, message = response.status, None
    if message is not None:
      response = _json({'error': message}, status, headers)
    resource = request.match_info.route.resource
    self._metrics.requests.labels(
        request.method if resource else '', resource.canonical if resource else 'other',
        status).inc()
    return response

  async def _background(self, app: web.Application) -> AsyncIterator[None]:
    """Takes steps while the application runs."""
    del app
    task = asyncio.create_task(self._take_steps())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    self._thread.shutdown()

  async def _take_steps(self) -> None:
    loop = asyncio.get_running_loop()
    while True:
      batch = [await self._waiting.get()]
      while len(batch) < self._max_batch and not self._waiting.empty():
        batch.append(self._waiting.get_nowait())
      turns, futures = zip(*batch)
      self._step_began = time.monotonic()
      answers, failed = [None] * len(turns), None
      try:
        answers = await loop.run_in_executor(self._thread, self._policy.step, turns)
      except Exception as error:  # pylint: disable=broad-except
        logging.exception('A step for %d sessions failed', len(turns))
        failed = json_values.Refused(f'the policy failed: {config.one_line(error)}', 500)
      self._metrics.step_seconds.observe(time.monotonic() - self._step_began)
      self._metrics.batch_size.observe(len(turns))
      self._step_began = None
      for future, answer in zip(futures, answers):
        if not future.done():
          if failed:
            future.set_exception(failed)
          else:
            future.set_result(answer)

  def _num_sessions(self) -> int:
    """Returns how many sessions there are, after it has dropped the idle ones."""
    for name, session in list(self._sessions.items()):
      if self._is_idle(session):
        self._drop(name)
        self._metrics.expired.inc()
    return len(self._sessions)

  def _is_idle(self, session: _Session) -> bool:
    return (session.used < time.monotonic() - self._idle_seconds
            and not session.is_busy)

  def _drop(self, name: str) -> None:
    self._free.append(self._sessions.pop(name).row)

  def _session(self, request: web.Request) -> _Session:
    """Returns the session that a path names."""
    session = self._sessions.get(request.match_info['session'])
    if session is None or self._is_idle(session):
      raise json_values.Refused('no such session: it never began, was ended, or was idle '
                                f'for {self._idle_seconds:g} s', 404)
    if session.is_busy:
      raise json_values.Refused(
          'the session is busy: an earlier request is in progress', 409)
    return session

  async def _begin(self, request: web.Request) -> web.Response:
    del request
    if self._num_sessions() == self._policy.num_rows:
      raise json_values.Refused(
          f'all {self._policy.num_rows} sessions are in use: try again later', 503)
    name = secrets.token_urlsafe(16)
    self._sessions[name] = _Session(self._free.pop(), time.monotonic())
    self._metrics.begun.inc()
    return _json({'session': name}, 201)

  async def _end(self, request: web.Request) -> web.Response:
    self._session(request)
    self._drop(request.match_info['session'])
    return web.Response(status=204)

  async def _act(self, request: web.Request) -> web.Response:
    began = time.monotonic()
    self._session(request)  # Refused before the body is read.
    body = await _read_json(request)
    session = self._session(request)  # It may have acted or ended meanwhile.
    turn, with_info = self._turn(session, body)
    future = asyncio.get_running_loop().create_future()
    session.is_busy = True
    try:
      self._waiting.put_nowait((turn, future))
      answer = await future
      session.is_new = False
    finally:
      session.is_busy = False
      session.used = time.monotonic()
    self._metrics.act_seconds.observe(session.used - began)
    if not all(np.isfinite(x).all() for x in answer.action.values()):
      raise json_values.Refused('the policy returned an action that is NaN or infinite', 500)
    body = {'action': json_values.write(
        self._policy.action_spec, answer.action, 'action')}
    if with_info:
      body['info'] = json_values.write_flat(answer.info)
    return _json(body)

  def _turn(self, session: _Session, body: Any) -> Tuple[exported.Turn, bool]:
    """Checks a request's body."""
    json_values.keys(body, 'body', ['observation'], ['reward', 'first', 'info'])
    first = body.get('first', session.is_new)
    for name, value in ('first', first), ('info', body.get('info', False)):
      if not isinstance(value, bool):
        raise json_values.Refused(f'{name}: expected true or false')
    if session.is_new and not first:
      raise json_values.Refused(
          'first: false at the first step of a session: its memory is empty')
    reward = body.get('reward')
    if reward is None:
      if not first:
        raise json_values.Refused('reward: is missing: expected that of the last action')
      reward = 0.0
    reward = json_values.read(_REWARD, reward, 'reward')['reward']
    observation = json_values.read(
        self._policy.observation_spec, body['observation'], 'observation')
    return (exported.Turn(session.row, session.is_new, first, reward, observation),
            body.get('info', False))

  async def _spec(self, request: web.Request) -> web.Response:
    del request
    return _json({
        'observation': json_values.describe(self._policy.observation_spec),
        'action': json_values.describe(self._policy.action_spec),
        'max_sessions': self._policy.num_rows, 'idle_seconds': self._idle_seconds})

  async def _health(self, request: web.Request) -> web.Response:
    del request
    began = self._step_began
    if began is not None and time.monotonic() - began > _STALL_SECONDS:
      raise json_values.Refused(f'a step has taken more than {_STALL_SECONDS} s', 503)
    return _json({'status': 'ok'})

  async def _show_metrics(self, request: web.Request) -> web.Response:
    del request
    return web.Response(
        body=prometheus_client.generate_latest(self._metrics.registry),
        headers={'Content-Type': prometheus_client.CONTENT_TYPE_LATEST})


class _Metrics:
  """The numbers that `/metrics` shows."""

  def __init__(self, num_sessions: Callable[[], int]):
    self.registry = prometheus_client.CollectorRegistry()
    prometheus_client.ProcessCollector(registry=self.registry)
    prometheus_client.PlatformCollector(registry=self.registry)
    make = functools.partial(self._make, prometheus_client.Histogram, buckets=_LATENCIES)
    self._make(prometheus_client.Gauge, 'sessions', 'Sessions now.').set_function(
        num_sessions)
    self.begun = self._make(
        prometheus_client.Counter, 'sessions_begun', 'Sessions that began.')
    self.expired = self._make(
        prometheus_client.Counter, 'sessions_expired', 'Idle sessions that were dropped.')
    self.requests = self._make(
        prometheus_client.Counter, 'requests', 'Requests.',
        labelnames=['method', 'path', 'status'])
    self.act_seconds = make('act_seconds', 'Time to answer a request to act.')
    self.step_seconds = make('step_seconds', 'Time of a step of the policy.')
    self.batch_size = make('batch_size', 'Clients that a step served.',
                           buckets=[2**i for i in range(11)])

  def _make(self, kind: Any, name: str, text: str, **settings) -> Any:
    return kind(f'gtrxl_serve_{name}', text, registry=self.registry, **settings)


async def _read_json(request: web.Request) -> Any:
  try:
    body = await asyncio.wait_for(request.read(), _BODY_SECONDS)
  except asyncio.TimeoutError:
    raise json_values.Refused(
        f'the body did not arrive within {_BODY_SECONDS} s', 408) from None
  except (ConnectionError, web.RequestPayloadError) as error:  # Cut off, or garbled.
    raise json_values.Refused('the body did not arrive whole') from error
  try:
    return json.loads(body)
  except RecursionError:
    raise json_values.Refused('the body is nested too deeply') from None
  except ValueError as error:  # Includes text that is not UTF-8.
    raise json_values.Refused(f'the body is not JSON: {error}') from None


def _json(value: Any, status: int = 200, headers: Any = None) -> web.Response:
  return web.json_response(value, status=status, headers=headers, dumps=_dumps)


def serve(policy_dir: pathlib.Path, host: str, port: int, max_sessions: int,
          idle_seconds: float, max_batch: int) -> None:
  """Serves an exported policy until SIGTERM or SIGINT.

  Requests in progress at that time are still answered.

  Args:
    policy_dir: the folder of the policy.
    host: where to listen.
    port: the port to listen on.
    max_sessions: the most sessions at a time; memory for all is reserved at the start.
    idle_seconds: see `Server`.
    max_batch: see `Server`.
  """
  policy = exported.ExportedPolicy(policy_dir, max_sessions)
  server = Server(policy, idle_seconds, max_batch)
  # aiohttp logs a traceback for each request that is not HTTP, and answers it with 400.
  # `Server` logs our own errors.
  logging.getLogger('aiohttp.server').setLevel(logging.CRITICAL)

  def say_ready(*_: Any) -> None:
    print(f'Serving {policy_dir} at http://{machine.host_and_port(host, port)}, for up to '
          f'{max_sessions} sessions with memories of {policy.row_bytes / 1024:,.1f} KiB',
          flush=True)

  try:
    web.run_app(server.app(), host=machine.addresses(host, port), port=port,
                print=say_ready, access_log=None, shutdown_timeout=_STOP_SECONDS)
  except OSError as error:
    raise config.ConfigError(
        f'{host}:{port}: cannot listen: {error.strerror or error}') from error
