"""A run's settings, metrics and results at Weights & Biases."""

import contextlib
import math
import os
import statistics
import threading
from typing import Dict, Iterator, List, Optional

from absl import logging

from gtrxl_tf.settings import config
from gtrxl_tf.settings import differences
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import run_folder

_SECONDS = 2.0  # Between looks at `metrics.csv`.
_SECONDS_TO_FINISH = 60.0


@contextlib.contextmanager
def followed(project: Optional[str], folder: run_folder.RunFolder, axis: str
             ) -> Iterator[None]:
  """Sends what a run writes into its folder to wandb, within a context.

  A thread does so: training never waits for wandb, and an error is a warning. A run that
  resumes goes on in the run of wandb whose id is in the folder. Without a `project`,
  nothing happens. The column `axis` is the one over which the others are drawn.
  """
  if not project:
    yield
    return
  # A resumed learner repeats the steps since its checkpoint, and writes them again.
  last = metrics_csv.last_metrics(folder.metrics) if folder.wandb.exists() else None
  os.environ.setdefault('WANDB_SILENT', 'true')
  ended = threading.Event()
  thread = threading.Thread(target=_follow, daemon=True, args=(
      project, folder, axis, last['learner_step'] if last else -1, ended))
  thread.start()
  try:
    yield
  finally:
    ended.set()
    thread.join(_SECONDS_TO_FINISH)
    if thread.is_alive():
      logging.warning('wandb has not taken everything after %.0f s: `wandb sync` sends '
                      'what is in %s/wandb', _SECONDS_TO_FINISH, folder.root)


def _follow(project: str, folder: run_folder.RunFolder, axis: str, step: float,
            ended: threading.Event) -> None:
  """Sends the rows after a learner step, and the results when the run has ended."""
  try:
    import wandb  # pylint: disable=import-outside-toplevel
    with wandb.init(
        project=project, name=folder.root.name, dir=folder.root, resume='allow',
        id=folder.wandb.read_text() if folder.wandb.exists() else None,
        settings={'console': 'off'}) as run:
      folder.wandb.write_text(run.id)
      print(f'wandb: {run.url or run.dir}', flush=True)
      run.config.update(
          differences.parse(folder.config.read_text()), allow_val_change=True)
      run.define_metric('*', step_metric=axis)
      is_last = False
      while not is_last:
        is_last = ended.wait(_SECONDS)
        for row in metrics_csv.metrics_after(folder.metrics, step):
          run.log(_means([row]))
          step = row['learner_step']
      if folder.evaluation.exists():
        run.log({'curve': wandb.Image(str(folder.curve))})
        for path in folder.evaluation, folder.scores:
          for name, mean in _means(metrics_csv.read_metrics(path)).items():
            run.summary[f'evaluation/{name}'] = mean
  except Exception as error:  # pylint: disable=broad-exception-caught
    logging.warning('wandb: %s; the run goes on without it', config.one_line(error))


def _means(rows: List[Dict[str, float]]) -> Dict[str, float]:
  """Returns the means of the columns of rows, without NaN."""
  means = {name: statistics.fmean(row[name] for row in rows)
           for name in (rows[0] if rows else ()) if name not in ('episode', 'task')}
  return {name: mean for name, mean in means.items() if not math.isnan(mean)}
