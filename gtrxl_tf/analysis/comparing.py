"""A comparison called from Python: several cores and seeds, one after another."""

import os
import pathlib
from typing import Any, Mapping, Optional, Sequence, Union

from gtrxl_tf.analysis import comparison_runs
from gtrxl_tf.launch import session
from gtrxl_tf.settings import gin_files
from gtrxl_tf.settings import shortcuts


def compare(environment: Any, *, root_dir: Union[str, os.PathLike],
            cores: Sequence[str] = ('gtrxl', 'lstm', 'memoryless'), seeds: int = 3,
            agent: Any = None, steps: Optional[int] = None, num_actors: int = 0,
            dataset: Optional[str] = None,
            settings: Optional[Mapping[str, Any]] = None) -> str:
  """Trains each core with each seed as `gtrxl_tf.train` does, and reports on all runs.

  The folders are those of `gtrxl compare`, and so are the tables and pictures.

  Args:
    environment: see `shortcuts.gin`.
    root_dir: a folder for all runs. The same call continues what is there.
    cores: names of files in gin/cores or, with a dataset, in gin/rate/models.
    seeds: runs of each core, with the seeds 0, 1, ...
    agent: see `shortcuts.gin`.
    steps: see `shortcuts.gin`.
    num_actors: see `gtrxl_tf.train`.
    dataset: see `shortcuts.gin`.
    settings: see `gtrxl_tf.train`.

  Returns:
    The tables as Markdown. In a notebook, the picture is shown.
  """
  given = dict(agent=agent, steps=steps, dataset=dataset)
  root = pathlib.Path(root_dir)
  for seed in range(seeds):
    for core in cores:
      run = session.train(
          environment, core=core, **given, root_dir=root / core / f'seed_{seed}',
          seed=seed, num_actors=num_actors, settings=settings)
      if not run.done:
        return f'Interrupted in {run.root_dir}. The same call continues.'
  with gin_files.own_gin():
    files, lines = shortcuts.gin(environment, cores[0], **given)
    lines += [f'OnlineExperiment.num_actors = {num_actors}'] * (dataset is None)
    text = comparison_runs.Comparison(
        root, files, [*lines, *shortcuts.lines(settings or {})],
        cores if dataset is None else [f'rate/models/{core}.gin' for core in cores],
        range(seeds), None, True, 'gtrxl_tf.compare').report()
  session.show_picture(root / 'comparison.png')
  return text
