"""Atomic writes and checksums of files, and damaged files."""

import os
import pathlib
import zlib

BLOCK_BYTES = 2**24


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


def sync(folder: pathlib.Path) -> None:
  """Flushes a folder's entries to disk (fsync)."""
  descriptor = os.open(folder, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)


def set_aside(path: pathlib.Path) -> pathlib.Path:
  """Renames a damaged file or folder to NAME.damaged; returns its new path.

  Where that name is taken, it is NAME.damaged2, and so on.
  """
  number, aside = 1, path.with_name(f'{path.name}.damaged')
  while aside.exists():
    number += 1
    aside = path.with_name(f'{path.name}.damaged{number}')
  path.rename(aside)
  return aside


def checksum(path: pathlib.Path) -> str:
  """Returns the CRC-32 of a file as hexadecimal digits."""
  value = 0
  with open(path, 'rb') as stream:
    while block := stream.read(BLOCK_BYTES):
      value = zlib.crc32(block, value)
  return f'{value:08x}'
