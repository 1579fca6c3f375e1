"""The papers' tables, and the commands of their figures and tables, for tests.

`testdata/` has transcriptions of the tables, and `docs/` a table of commands for each
paper.
"""

import argparse
import ast
import inspect
import re
import shlex
from typing import Any, Dict, Iterator, List, NamedTuple

import gin

from binaries import commands_testing
from gtrxl_tf.analysis import models as variants
from gtrxl_tf.launch import prepare  # noqa: F401 (for gin)
from gtrxl_tf.settings import config


class Command(NamedTuple):
  """A command of the docs; those that train nothing have no files and one model."""
  gin_files: List[str]
  gin_bindings: List[str]
  models: Dict[str, variants.Model]  # The keys are labels.
  sweep: List[variants.Point]
  seeds: int

  @property
  def names(self) -> List[str]:
    """The names of its experiments: gin files without their suffix."""
    files = self.gin_files or [x for point in self.sweep for x in point.gin_files]
    return [file.split('/')[-1].removesuffix('.gin') for file in files]

  def parse_each(self) -> Iterator[str]:
    """Parses the settings of each run, and yields the label of its model."""
    for point in self.sweep:
      for label, model in self.models.items():
        gin.clear_config()
        config.parse([*self.gin_files, *point.gin_files, *model.gin_files],
                     [*self.gin_bindings, *point.bindings, *model.bindings])
        yield label


def command(text: str, default_model: str = '') -> Command:
  """Returns a command, from the binary's name on, as a `Command`."""
  parser = argparse.ArgumentParser()
  parser.add_argument('--gin_file', action='append', default=[])
  parser.add_argument('--gin_bindings', action='append', default=[])
  parser.add_argument('--models', default=default_model)
  parser.add_argument('--sweep')
  parser.add_argument('--seeds', type=int, default=1)
  given, _ = parser.parse_known_args(shlex.split(text)[1:])
  models = variants.models([x for x in given.models.split(',') if x])
  return Command(given.gin_file, given.gin_bindings,
                 models or {'': variants.Model([], [])}, variants.sweep(given.sweep),
                 given.seeds)


def commands(page: str, default_model: str = '') -> Dict[str, Command]:
  """Returns the commands in a page's table, by their figure or table."""
  text = (commands_testing.ROOT / page).read_text(encoding='utf-8')
  found = {}
  for line in text.splitlines():
    if line.startswith(('| Figure', '| Table')):
      what = line.split('|')[1].strip()
      assert what not in found, what
      [found[what]] = [
          command(x, default_model) for x in commands_testing.commands(line)]
  return found


def tables(name: str) -> Dict[str, Dict[str, Dict[str, str]]]:
  """Returns the tables of a file of `testdata/` by number.

  Each maps the first cell of a row to its others, by column.
  """
  text = (commands_testing.ROOT / 'testdata' / name).read_text(encoding='utf-8')
  found = {}
  for number, body in re.findall(r'(?m)^## Table (\w+)((?:.*\n(?!## ))*)', text):
    (_, *columns), _, *rows = [
        [cell.strip() for cell in line[1:-1].split('|')]
        for line in body.splitlines() if line.startswith('|')]
    found[number] = {
        row[0]: dict(zip(columns, row[1:], strict=True)) for row in rows}
    assert len(found[number]) == len(rows), number
  return found


def value(cell: str) -> Any:
  """Returns the number or numbers in a cell."""
  return ast.literal_eval(cell)


def setting(name: str) -> Any:
  """Returns the value of a setting in gin, or its default in the code."""
  try:
    found = gin.query_parameter(name)
  except ValueError:
    owner, _, parameter = name.rpartition('.')
    return inspect.signature(
        gin.get_configurable(owner)).parameters[parameter].default
  return setting(str(found)) if str(found).startswith('%') else found
