"""The rows of `metrics.csv` and of files like it: numbers by column."""

import csv
import io
import math
import os
import pathlib
from typing import Dict, Iterable, List, Optional, Tuple

from absl import logging

from gtrxl_tf import files


class MetricsWriter:
  """Appends rows to `metrics.csv`, with six digits per number and one write per row.

  A row that cannot be written, as on a full disk, is written with the next one. The
  error is logged; the file has complete lines only, and training continues.
  """

  def __init__(self, path: pathlib.Path, resume_step: float = math.inf):
    """Opens the file and drops the rows after `resume_step`, which will be repeated.

    A file with lines that cannot be read is kept as `metrics.csv.damaged`, and its
    other rows are copied to the new file.
    """
    rows, unreadable = _read(path)
    if unreadable or (rows and 'learner_step' not in rows[0]):
      rows = [row for row in rows if 'learner_step' in row]
      logging.warning('%s was damaged and is now %s; %d of its rows can be read',
                      path, files.set_aside(path).name, len(rows))
    rows = [row for row in rows if row['learner_step'] <= resume_step]
    self._path = path
    self._waiting: List[Dict[str, float]] = []
    self._columns: List[str] = list(rows[0]) if rows else []
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [map(_format, row.values()) for row in rows]
    files.write_atomically(path, ''.join(
        map(_line, [self._columns, *lines] if rows else [])))

  def append(self, row: Dict[str, float]) -> None:
    """Writes a row.

    A new key becomes a column, which is NaN in the rows before. A column that the row
    does not have, as when a run goes on without its score, is NaN in this row. If
    somebody has removed the file, a new one begins.
    """
    self._waiting.append(row)
    try:
      self._write_waiting()
    except OSError as error:
      logging.error('%s: %s; training continues', self._path, error)
    else:
      self._waiting = []

  def _write_waiting(self) -> None:
    """Writes the rows that wait, all or none."""
    size = self._path.stat().st_size if self._path.exists() else 0
    before = self._columns if size else []
    columns = list(dict.fromkeys([*before, *(x for row in self._waiting for x in row)]))
    text = ''.join(_line(_format(row.get(column, math.nan)) for column in columns)
                   for row in self._waiting)
    if not before:
      text = _line(columns) + text
    elif columns != before:
      _, *rows = self._path.read_text(encoding='utf-8').splitlines()
      files.write_atomically(self._path, _line(columns) + ''.join(
          row + ',nan' * (len(columns) - len(before)) + '\n' for row in rows))
      size = self._path.stat().st_size
    self._columns = columns
    try:
      with open(self._path, 'a', encoding='utf-8') as file:
        file.write(text)
    except OSError:
      os.truncate(self._path, size)
      raise


def _line(cells: Iterable[str]) -> str:
  line = io.StringIO()
  csv.writer(line, lineterminator='\n').writerow(cells)  # A task may have a comma.
  return line.getvalue()


def _format(value: float) -> str:
  return str(int(value)) if float(value).is_integer() else f'{value:.6g}'


def read_metrics(path: pathlib.Path) -> List[Dict[str, float]]:
  """Reads the rows of a `metrics.csv`; none if there is no file yet.

  A last line that is still being written is left out. Lines that cannot be read are
  left out with a warning.
  """
  rows, unreadable = _read(path)
  if unreadable:
    logging.warning('%s: %d lines cannot be read', path, unreadable)
  return rows


def _read(path: pathlib.Path) -> Tuple[List[Dict[str, float]], int]:
  """Returns the rows of a file, and how many of its lines cannot be read."""
  if not path.exists():
    return [], 0
  text = path.read_text(encoding='utf-8', errors='replace')
  lines = text.split('\n')[:-1]
  columns = _cells(lines[0]) if lines else []
  if not columns and lines:
    return [], len(lines)
  rows = [_row(columns, line) for line in lines[1:]]
  readable = [row for row in rows if row is not None]
  return readable, len(rows) - len(readable)


def _cells(line: str) -> List[str]:
  """Returns the cells of a line; none if it is damaged."""
  try:
    return [] if '\ufffd' in line else next(csv.reader([line]), [])
  except csv.Error:
    return []


def _row(columns: List[str], line: str) -> Optional[Dict[str, float]]:
  """Returns a row of numbers; None if the line does not have one per column."""
  try:
    return dict(zip(columns, map(float, _cells(line)), strict=True))
  except ValueError:
    return None


def last_metrics(path: pathlib.Path) -> Optional[Dict[str, float]]:
  """Reads the last row of a `metrics.csv` without the rows before it.

  It returns None if the row cannot be read.
  """
  rows, _ = _tail(path, 1)
  return rows[-1] if rows else None


def metrics_after(path: pathlib.Path, step: float) -> List[Dict[str, float]]:
  """Reads the rows after a learner step without most of the rows before it."""
  factor, is_all = 1, False
  while not is_all:
    rows, is_all = _tail(path, factor)
    rows = [row for row in rows if row is not None]
    if rows and rows[0]['learner_step'] <= step:
      break
    factor *= 4
  return [row for row in rows if row['learner_step'] > step]


def _tail(path: pathlib.Path, factor: int
          ) -> Tuple[List[Optional[Dict[str, float]]], bool]:
  """Returns the last rows of a file, `factor` or more, and whether these are all.

  A row that cannot be read is None.
  """
  if not path.exists():
    return [], True
  with open(path, 'rb') as file:
    header = file.readline()
    # Rows are about as long as the header, and the last one may be incomplete.
    begin = path.stat().st_size - factor * (4096 + 4 * len(header))
    file.seek(max(len(header) - 1, begin, 0))
    tail = file.read().decode(errors='replace')
  columns = _cells(header.decode(errors='replace').strip())
  return [_row(columns, line) for line in tail.split('\n')[1:-1] if columns], (
      begin < len(header))
