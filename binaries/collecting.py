"""Runs the commands that collect datasets, and handles their errors."""

from __future__ import annotations

from concurrent.futures import process
import pathlib
import sys
import typing
from typing import Any, Callable, Sequence

from gtrxl_tf.launch import program

if typing.TYPE_CHECKING:
  from gtrxl_tf import datasets


def run(gin_files: Sequence[str], gin_bindings: Sequence[str], output_dir: str,
        make_collector: Callable[[], Any],
        collect: Callable[[Any], datasets.Dataset]) -> None:
  """Collects a dataset and prints its description, or exits with one line.

  The traceback of an unexpected error is written beside the folder, as
  `OUTPUT_DIR.failure.txt`.

  Args:
    gin_files: files of settings.
    gin_bindings: single settings, which override the files.
    output_dir: the dataset's folder.
    make_collector: called after the settings are read.
    collect: called with the collector; returns the dataset.
  """
  # pylint: disable=import-outside-toplevel
  from gtrxl_tf import datasets
  from gtrxl_tf import environments
  from gtrxl_tf.datasets import inspection
  from gtrxl_tf.launch import exit_codes
  from gtrxl_tf.launch import parts
  from gtrxl_tf.launch import prepare  # noqa: F401 (for gin)
  from gtrxl_tf.settings import config

  failure = pathlib.Path(f'{output_dir.rstrip("/")}.failure.txt')
  try:
    with parts.failure_recorded('', failure, unexpected_only=True):
      try:
        config.parse(gin_files, gin_bindings)
        collector = make_collector()
      except environments.EnvironmentFailed:
        raise
      except ValueError as error:
        program.refuse(config.one_line(error))
      try:
        dataset = collect(collector)
      except (config.ConfigError, datasets.DatasetError) as error:
        sys.exit(f'Stopped: {error}')
      except process.BrokenProcessPool:
        sys.exit('Stopped: a process was killed. Run the same command to continue.')
  except (exit_codes.RunFailed, OSError) as error:  # An OSError if the disk is full.
    sys.exit(f'Stopped: {error}')
  except KeyboardInterrupt:
    print('\nInterrupted. Run the same command to continue.')
    sys.exit(130)
  failure.unlink(missing_ok=True)  # From an earlier attempt.
  print(inspection.describe(dataset))
