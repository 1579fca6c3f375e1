"""Measurements and checks for those who work on the library; run them from a clone.

They are not in the wheel. Nothing in gtrxl_tf/ or binaries/ imports them, except tests.
No test imports a tool that has flags: flags of two programs would clash.
"""

from concurrent import futures
import multiprocessing
from typing import Any, Callable, Iterable, Mapping, Sequence

from gtrxl_tf.launch import program
from gtrxl_tf.settings import config


def check_online(experiment: Any, files: Sequence[str]) -> None:
  """Raises a `ConfigError` if the files of --gin_file do not describe an online run."""
  if not experiment.is_online:
    raise config.ConfigError(
        f'--gin_file={",".join(files)}: expected settings of an online run')


def numbers(flag: Any) -> Sequence[int]:
  """Returns the numbers in a flag's list; refuses anything but numbers of 1 or more."""
  if not all(x.isdecimal() and int(x) for x in flag.value):
    program.refuse(f'--{flag.name}={",".join(flag.value)}: expected numbers >= 1')
  return [*map(int, flag.value)]


def call_apart(function: Callable[..., Any], *args) -> Any:
  """Calls a function in a new process, which shares no memory, caches or settings.

  Raises:
    process.BrokenProcessPool: it was killed, for example when memory ran out.
  """
  with futures.ProcessPoolExecutor(1, multiprocessing.get_context('spawn')) as pool:
    return pool.submit(function, *args).result()


def print_table(rows: Iterable[Mapping[str, Any]]) -> None:
  """Prints a Markdown table, each row as soon as it is there; its keys are the titles."""
  for i, row in enumerate(rows):
    cells = [*map(str, row.values())]
    rule = ['--:' if cell.strip('-')[:1].isdigit() else '---' for cell in cells]
    for line in (cells,) if i else (row, rule, cells):
      print('| ' + ' | '.join(line) + ' |', flush=True)
