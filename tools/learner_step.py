r"""Measures learner steps: their time, and the memory that training takes.

  python -m tools.learner_step --gin_file=gin/gtrxl/dmlab30.gin --batch_size=2
  python -m tools.learner_step \
      --sweep=training_memory_90.gin,training_memory_270.gin \
      --models=dt.gin,rate.gin,rate.gin+segment_by_segment.gin

It prints a table with a row for each of --models at each point of --sweep; both are as
in `gtrxl compare`.

An online batch is blank, which costs as much as a full one: shapes are static. DeepMind
Lab is not needed; a stand-in gives its specs.
"""

from concurrent.futures import process
import sys
from typing import Dict, Iterator

from absl import flags

from gtrxl_tf.analysis import models as variants
from gtrxl_tf.launch import program
from gtrxl_tf.settings import config
import tools
from tools import learner_cost

_GIN_FILE = flags.DEFINE_multi_string(
    'gin_file', [], "The experiment's settings; later files override.")
_GIN_BINDINGS = flags.DEFINE_multi_string(
    'gin_bindings', [], 'Single settings, which override the files.')
_MODELS = flags.DEFINE_list(
    'models', '', 'Names from gin/cores, or FILE or FILE+FILE+...; by default the '
    'experiment as it is.')
_SWEEP = flags.DEFINE_string(
    'sweep', None, 'SETTING=VALUE,VALUE,... or FILE,FILE,...')
_BATCH_SIZE = flags.DEFINE_integer(
    'batch_size', None, "Rows of a batch; by default the experiment's.", lower_bound=1)
_PROCESSES = flags.DEFINE_integer(
    'processes', 3, 'Processes that measure each row; the table has the medians.',
    lower_bound=1)


def _rows() -> Iterator[Dict[str, str]]:
  swept = variants.swept(_SWEEP.value)
  models = variants.models(_MODELS.value) or {'as it is': variants.Model([], [])}
  for point in variants.sweep(_SWEEP.value):
    first = None
    for label, model in models.items():
      cost = learner_cost.measure_apart(
          _PROCESSES.value, [*_GIN_FILE.value, *point.gin_files, *model.gin_files],
          [*_GIN_BINDINGS.value, *point.bindings, *model.bindings], _BATCH_SIZE.value)
      first = first or cost
      cost['less by'] = first['tensors, MiB'] / cost['tensors, MiB']
      yield {**({swept: point.value} if swept else {}), 'model': label,
             **{title: format(cost[title], form)
                for title, form in learner_cost.COLUMNS.items()}}


def main() -> None:
  try:
    tools.print_table(_rows())
  except config.ConfigError as error:
    sys.exit(f'Stopped: {error}')
  except process.BrokenProcessPool:
    sys.exit('Stopped: the process was killed; it may have run out of memory.')
  print(f'\n{learner_cost.CAPTION}')


if __name__ == '__main__':
  program.run(main)
