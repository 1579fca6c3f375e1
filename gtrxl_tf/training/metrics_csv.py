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
    """Opens the file and drops the rows after `resume_step`, which will be repeated."""
    rows = [row for row in read_metrics(path)
            if row.get('learner_step', math.inf) <= resume_step]
    self._path = path
    self._waiting: List[Dict[str, float]] = []
    self._columns: List[str] = list(rows[0]) if rows else []
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [map(_format, row.values()) for row in rows]
    text = ''.join(map(_line, [self._columns, *lines] if rows else []))
    # A full disk, on which a learner may be started again, has room for a shorter file.
    if path.exists() and path.read_bytes().startswith(text.encode()):
      os.truncate(path, len(text.encode()))
    else:
      files.write_atomically(path, text)

  def append(self, row: Dict[str, float]) -> None:
    """Writes a row. A column that this row or an earlier one does not have is NaN there."""
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

  Lines that cannot be read are left out, such as a last one that is still being written.
  """
  if not path.exists():
    return []
  header, _, text = path.read_text(encoding='utf-8', errors='replace').partition('\n')
  return _rows(header, text)


def _rows(header: str, text: str) -> List[Dict[str, float]]:
  """Returns the complete lines of a text that have a number for each column."""
  columns, rows = next(csv.reader([header]), []), []
  for line in text.split('\n')[:-1]:
    try:
      rows.append(dict(zip(columns, map(float, line.split(',')), strict=True)))
    except ValueError:
      pass
  return rows if columns else []


def last_metrics(path: pathlib.Path) -> Optional[Dict[str, float]]:
  """Reads the last row of a `metrics.csv` without the rows before it; None without rows."""
  rows, _ = _tail(path, 1)
  return rows[-1] if rows else None


def metrics_after(path: pathlib.Path, step: float) -> List[Dict[str, float]]:
  """Reads the rows after a learner step without most of the rows before it."""
  factor, is_all = 1, False
  while not is_all:
    rows, is_all = _tail(path, factor)
    if rows and rows[0]['learner_step'] <= step:
      break
    factor *= 4
  return [row for row in rows if row['learner_step'] > step]


def _tail(path: pathlib.Path, factor: int) -> Tuple[List[Dict[str, float]], bool]:
  """Returns the last rows of a file, `factor` or more, and whether these are all."""
  if not path.exists():
    return [], True
  with open(path, 'rb') as file:
    header = file.readline()
    # Rows are about as long as the header, and the last one may be incomplete.
    begin = path.stat().st_size - factor * (4096 + 4 * len(header))
    file.seek(max(len(header) - 1, begin, 0))
    _, _, text = file.read().decode(errors='replace').partition('\n')
  return _rows(header.decode(errors='replace').strip(), text), begin < len(header)
