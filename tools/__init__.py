"""Measurements and checks for those who work on the library; run them from a clone.

They are not in the wheel. Nothing in gtrxl_tf/ or binaries/ imports them, except tests.
No test imports a tool that has flags: flags of two programs would clash.
"""

from typing import Any, Sequence

from gtrxl_tf.launch import program
from gtrxl_tf.settings import config


def check_online(experiment: Any, flag: str, files: Sequence[str]) -> None:
  """Raises a `ConfigError` if the files of a flag do not describe an online run."""
  if not experiment.is_online:
    raise config.ConfigError(
        f'--{flag}={",".join(files)}: expected settings of an online run')


def check_numbers(flag: str, values: Sequence[str], least: int = 1) -> None:
  """Refuses a list of a flag that contains anything but numbers of `least` or more."""
  if not all(x.isdecimal() and int(x) >= least for x in values):
    program.refuse(f'--{flag}={",".join(values)}: expected numbers >= {least}')


def print_row(cells: Sequence[Any]) -> None:
  """Prints a row of a Markdown table."""
  print('| ' + ' | '.join(map(str, cells)) + ' |', flush=True)
