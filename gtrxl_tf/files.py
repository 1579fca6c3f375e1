"""Atomic writes and checksums of files, and damaged files."""

import csv
import io
import json
import os
import pathlib
from typing import Any, Dict, Iterable
import zlib

try:
  import fcntl
except ImportError:  # Windows.
  fcntl = None

_BLOCK_BYTES = 2**24


class DamagedFile(ValueError):
  """A file that is not as it was written. The message is one line."""


def write_atomically(path: pathlib.Path, text: str) -> None:
  """Writes a file atomically and waits until it is on disk."""
  partial = path.with_name(path.name + '.partial')
  try:
    with open(partial, 'w', encoding='utf-8') as file:
      file.write(text)
      file.flush()
      os.fsync(file.fileno())
    os.replace(partial, path)
  except BaseException:
    partial.unlink(missing_ok=True)
    raise
  sync(path.parent)


def write_csv(path: pathlib.Path, rows: Iterable[Iterable[Any]]) -> None:
  """Writes rows of cells as a CSV file, atomically."""
  table = io.StringIO()
  csv.writer(table, lineterminator='\n').writerows(rows)
  write_atomically(path, table.getvalue())


def sync(folder: pathlib.Path) -> None:
  """Flushes a folder's entries to disk (fsync)."""
  descriptor = os.open(folder, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)


def lock(file: Any, wait: bool = False) -> None:
  """Locks an open file until it is closed, on systems that can.

  Raises:
    BlockingIOError: another process has locked it, and this one should not wait.
  """
  if fcntl:
    fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def checksum(path: pathlib.Path) -> str:
  """Returns the CRC-32 of a file as hexadecimal digits."""
  value = 0
  with open(path, 'rb') as stream:
    while block := stream.read(_BLOCK_BYTES):
      value = zlib.crc32(block, value)
  return f'{value:08x}'


def write_sealed(path: pathlib.Path, contents: Dict[str, Any]) -> None:
  """Writes a dictionary as JSON, atomically and with a checksum, for `read_sealed`."""
  sealed = {**contents, 'crc32': seal(contents)}
  write_atomically(path, json.dumps(sealed, indent=1) + '\n')


def seal(contents: Dict[str, Any]) -> str:
  """Returns a dictionary's checksum, which its order does not change."""
  return f'{zlib.crc32(json.dumps(contents, sort_keys=True).encode()):08x}'


def read_sealed(path: pathlib.Path, *keys: str) -> Dict[str, Any]:
  """Reads what `write_sealed` wrote.

  Args:
    path: the file.
    *keys: expected among the contents.

  Raises:
    DamagedFile: it is missing, was changed, or lacks a key.
  """
  try:
    contents = json.loads(path.read_bytes())
    found = contents.pop('crc32', None)
    expected = seal(contents)
  except FileNotFoundError as error:
    raise DamagedFile(f'{path}: missing') from error
  except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
    raise DamagedFile(f'{path}: damaged: {error}') from error
  if found != expected:
    raise DamagedFile(f'{path}: was changed after it was written: its checksum is '
                      f'{expected}: expected {str(found):.20}')
  if not set(keys) <= contents.keys():
    raise DamagedFile(f'{path}: has {", ".join(contents)}: expected it to have '
                      f'{", ".join(keys)}')
  return contents
