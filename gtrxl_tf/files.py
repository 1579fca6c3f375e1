"""Files that are there whole or not at all, and what shows that they are."""

import os
import pathlib
import zlib

BLOCK_BYTES = 2**24


def write_atomically(path: pathlib.Path, text: str) -> None:
  """Writes a file so that it is there whole or not at all, and on disk."""
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
  """Has the names in `folder` on disk."""
  descriptor = os.open(folder, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)


def checksum(path: pathlib.Path) -> str:
  """CRC-32 of a file, as hexadecimal digits."""
  value = 0
  with open(path, 'rb') as stream:
    while block := stream.read(BLOCK_BYTES):
      value = zlib.crc32(block, value)
  return f'{value:08x}'
