"""Numbers of a running part, for Prometheus to read."""

import math
import re
from typing import Mapping, Optional

import prometheus_client

from gtrxl_tf import config


class Gauges:
  """Numbers under `/metrics`, in the format of Prometheus: `gtrxl_<part>_<name>`."""

  def __init__(self, part: str, host: str = 'localhost', port: Optional[int] = None):
    """Starts to listen.

    Args:
      part: of the run.
      host: to listen at. By default no other machine can read the numbers.
      port: to listen on; if None, nothing listens and `show` does nothing.

    Raises:
      config.ConfigError: the address cannot be listened on.
    """
    self._part = part
    self._gauges = {}
    self._registry = None
    if port is None:
      return
    self._registry = prometheus_client.CollectorRegistry()
    for collector in (prometheus_client.ProcessCollector,
                      prometheus_client.PlatformCollector):
      collector(registry=self._registry)
    try:
      prometheus_client.start_http_server(port, host, self._registry)
    except OSError as error:
      raise config.ConfigError(
          f'metrics at {host}:{port}: {error.strerror or error}') from error

  @property
  def listens(self) -> bool:
    """Whether the numbers can be read."""
    return self._registry is not None

  def show(self, values: Mapping[str, float]) -> None:
    """Sets numbers; NaN leaves a number as it was."""
    if not self.listens:
      return
    for name, value in values.items():
      if math.isnan(value):
        continue
      if name not in self._gauges:
        self._gauges[name] = prometheus_client.Gauge(
            f'gtrxl_{self._part}_' + re.sub(r'\W', '_', name), name.replace('_', ' '),
            registry=self._registry)
      self._gauges[name].set(value)
