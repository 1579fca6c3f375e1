"""Gauges and a health check of a running part, served over HTTP."""

import copy
import math
import re
from typing import Callable, Iterable, Mapping, Optional

import prometheus_client

from gtrxl_tf.settings import config
from gtrxl_tf.training import watchdog as watchdog_lib


class Gauges:
  """Numbers under `/metrics`, in Prometheus' format, and a health check.

  A number is named `gtrxl_<part>_<name>`. `/healthz` answers 200, or 503 while the
  watchdog given to `show_health` reports a stall.
  """

  def __init__(self, part: str, host: str = 'localhost', port: Optional[int] = None):
    """Starts to listen; without a port nothing listens, and `show` does nothing."""
    self._part = part
    self._gauges = {}
    self._registry = None
    self._watchdog: Optional[watchdog_lib.Watchdog] = None
    if port is None:
      return
    self._registry = prometheus_client.CollectorRegistry()
    for collector in (prometheus_client.ProcessCollector,
                      prometheus_client.PlatformCollector):
      collector(registry=self._registry)
    try:
      server, _ = prometheus_client.start_http_server(port, host, self._registry)
    except OSError as error:
      raise config.ConfigError(
          f'metrics at {host}:{port}: {error.strerror or error}') from error
    server.set_app(self._with_health(server.get_app()))

  def _with_health(self, metrics: Callable) -> Callable:
    """Returns a WSGI application that adds `/healthz` to the one given."""
    def application(environ, start_response) -> Iterable[bytes]:
      if environ['PATH_INFO'] != '/healthz':
        return metrics(environ, start_response)
      watchdog = self._watchdog
      stalled = watchdog is not None and watchdog.stalled()
      start_response('503 Service Unavailable' if stalled else '200 OK',
                     [('Content-Type', 'text/plain')])
      return [b'no progress for %d s\n' % watchdog.seconds if stalled else b'ok\n']
    return application

  def of_part(self, part: str) -> 'Gauges':
    """Returns gauges at the same address, with the name of another part."""
    made = copy.copy(self)
    made._part, made._gauges = part, {}  # pylint: disable=protected-access
    return made

  def show_health(self, watchdog: watchdog_lib.Watchdog) -> None:
    """Serves `/healthz` and the gauge `seconds_without_progress`, from a watchdog."""
    self._watchdog = watchdog
    if self.listens:
      self._gauge('seconds_without_progress').set_function(lambda: watchdog.seconds)

  @property
  def listens(self) -> bool:
    """Whether the gauges are served."""
    return self._registry is not None

  def show(self, values: Mapping[str, float]) -> None:
    """Sets gauges; a gauge whose value is NaN stays unchanged."""
    if not self.listens:
      return
    for name, value in values.items():
      if not math.isnan(value):
        self._gauge(name).set(value)

  def _gauge(self, name: str) -> prometheus_client.Gauge:
    key = re.sub(r'\W', '_', name)  # Prometheus would refuse a second one for `a-b`.
    if key not in self._gauges:
      self._gauges[key] = prometheus_client.Gauge(
          f'gtrxl_{self._part}_{key}', name.replace('_', ' '), registry=self._registry)
    return self._gauges[key]
