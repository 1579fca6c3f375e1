"""The memory and the addresses of this machine, or of the container of this process."""

import contextlib
import ctypes
import errno
import math
import pathlib
import socket
from typing import List

_MEMINFO = pathlib.Path('/proc/meminfo')
# The memory of a container or service, in both versions of cgroups: files of its limit,
# its use and its statistics, and the entry there that counts caches of files, which are
# a part of its use that the kernel can reclaim.
_CGROUPS = (('/sys/fs/cgroup/memory.max', '/sys/fs/cgroup/memory.current',
             '/sys/fs/cgroup/memory.stat', 'file'),
            ('/sys/fs/cgroup/memory/memory.limit_in_bytes',
             '/sys/fs/cgroup/memory/memory.usage_in_bytes',
             '/sys/fs/cgroup/memory/memory.stat', 'total_cache'))

_M_ARENA_MAX = -8  # From <malloc.h>.


def limit_heaps(num: int) -> None:
  """Limits how many heaps the C library's `malloc` keeps, if it is glibc.

  By default new threads get new heaps, up to eight for each core, and memory that was
  freed in one heap is not used for another. An actor grew by 7 to 16 MiB whenever the
  server was restarted and Reverb's client made new threads; with two heaps by 2 to 9.
  """
  with contextlib.suppress(OSError, AttributeError):
    ctypes.CDLL(None).mallopt(_M_ARENA_MAX, num)


def free_bytes() -> float:
  """Returns the memory that this process may still take; infinite if unknown."""
  free = math.inf
  with contextlib.suppress(OSError, KeyError, ValueError, IndexError):
    free = 1024 * _table(_MEMINFO)['MemAvailable:']
  for limit, used, stat, cache in _CGROUPS:
    # A limit may be 'max'.
    with contextlib.suppress(OSError, KeyError, ValueError, IndexError):
      limit, used = (int(pathlib.Path(x).read_text()) for x in (limit, used))
      free = min(free, limit - used + _table(pathlib.Path(stat))[cache])
  return free


def _table(path: pathlib.Path) -> dict[str, int]:
  lines = [line.split() for line in path.read_text(encoding='utf-8').splitlines()]
  return {line[0]: int(line[1]) for line in lines}


def addresses(host: str, port: int) -> List[str]:
  """Returns the addresses of a host at which this machine can listen.

  `localhost` often names ::1 where IPv6 is switched off, as in a container. That one is
  left out.

  Raises:
    OSError: the port is taken, or the host is not this machine.
  """
  found, lacking = [], None
  for family, kind, _, _, address in socket.getaddrinfo(
      host.strip('[]'), port, type=socket.SOCK_STREAM):
    try:
      with socket.socket(family, kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
    except OSError as error:
      if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
        raise
      lacking = error
    else:
      found.append(address[0])
  if not found:
    raise lacking
  return list(dict.fromkeys(found))


def host_and_port(host: str, port: int) -> str:
  """Returns HOST:PORT, with an address of IPv6 in brackets."""
  host = host.strip('[]')
  return f'[{host}]:{port}' if ':' in host else f'{host}:{port}'
