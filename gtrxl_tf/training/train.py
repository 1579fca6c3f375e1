"""Trains on one machine: from settings to a policy, an evaluation and a picture."""

import csv
import io
import math
import os
import signal
import sys
import threading
from typing import Optional, Sequence

import gin
import numpy as np

from gtrxl_tf import config
from gtrxl_tf import configurables  # pylint: disable=unused-import
from gtrxl_tf.analysis import curves
from gtrxl_tf.training import console as console_lib
from gtrxl_tf.training import evaluation as evaluation_lib
from gtrxl_tf.training import experiment as experiment_lib
from gtrxl_tf.training import run_folder
from gtrxl_tf.training import supervisor as supervisor_lib


def prepare(gin_files: Sequence[str], gin_bindings: Sequence[str]
            ) -> experiment_lib.Experiment:
  """Reads settings and makes every part once, so that what is wrong shows now.

  Raises:
    config.ConfigError: with one line that names the setting.
  """
  config.parse(gin_files, gin_bindings)
  try:
    experiment = experiment_lib.Experiment()
    experiment.make_agent().loss(experiment.blank_batch())
  except (ValueError, TypeError) as error:
    raise config.ConfigError(config.one_line(error)) from error
  return experiment


def train(gin_files: Sequence[str], gin_bindings: Sequence[str], root_dir: str) -> int:
  """Runs an experiment in the folder `root_dir`, or goes on with the one there.

  Returns:
    An exit code: 0 done, 1 failed, 2 wrong settings, 130 interrupted.
  """
  try:
    experiment = prepare(gin_files, gin_bindings)
  except config.ConfigError as error:
    print(f'Not started: {error}', file=sys.stderr)
    return 2
  folder = run_folder.RunFolder(root_dir)
  folder.root.mkdir(parents=True, exist_ok=True)
  run_folder.write_atomically(folder.config, gin.operative_config_str())
  if not folder.done.exists():
    folder.diverged.unlink(missing_ok=True)
    code = _run_parts(experiment, folder)
    if code:
      return code
  _evaluate(experiment, folder)
  return 0


def _run_parts(experiment: experiment_lib.Experiment, folder: run_folder.RunFolder
               ) -> int:
  supervisor = supervisor_lib.Supervisor(
      gin.config_str(), str(folder.root), experiment.num_actors)
  console = console_lib.Console(experiment.environment_steps)
  interrupted = threading.Event()
  handlers = {s: signal.signal(s, lambda *_: interrupted.set())
              for s in (signal.SIGINT, signal.SIGTERM)}
  failure: Optional[str] = None
  print(f'Training in {folder.root}: 1 server, 1 learner, {experiment.num_actors} '
        f'actor(s) of {experiment.environments_per_actor} environments.', flush=True)
  try:
    supervisor.start()
    while not (interrupted.wait(0.5) or supervisor.ended()):
      supervisor.restart_the_dead()
      console.update(run_folder.last_metrics(folder.metrics))
  except supervisor_lib.PartFailed as error:
    failure = str(error)
  finally:
    console.close()
    supervisor.stop()
    for signum, handler in handlers.items():
      signal.signal(signum, handler)
  if folder.diverged.exists():
    failure = folder.diverged.read_text().strip()
  if failure is not None:
    print(f'Stopped: {failure}', file=sys.stderr)
    return 1
  if not folder.done.exists():
    print(f'Interrupted. The same command goes on from {folder.checkpoints}.')
    return 130
  return 0


def _evaluate(experiment: experiment_lib.Experiment, folder: run_folder.RunFolder
              ) -> None:
  """Plays episodes with the exported policy; writes and prints what there is to see."""
  names = experiment.task_names
  count = max(min(evaluation_lib.NUM_ENVIRONMENTS, experiment.evaluation_episodes),
              len(names))
  evaluation = evaluation_lib.evaluate(
      folder.policy, experiment.make_environments(count, evaluation_lib.STREAM),
      experiment.evaluation_episodes)
  table = io.StringIO()
  rows = csv.writer(table, lineterminator='\n')
  rows.writerow(['episode', 'return', 'success', 'task'])
  rows.writerows(
      [i, *episode] for i, episode in enumerate(zip(*evaluation)))
  run_folder.write_atomically(folder.evaluation, table.getvalue())

  informed = experiment.informed_return()
  metrics = run_folder.read_metrics(folder.metrics)
  curves.draw(folder.curve, {'training': [metrics]}, folder.root.name, informed)
  print(describe(
      evaluation, informed, names,
      experiment.score_of(evaluation.returns, evaluation.tasks)))
  print(f'Curve: {folder.curve}')
  print(f'Evaluate again, or serve {folder.policy}:  '
        f'{os.path.relpath(sys.executable)} -m binaries.evaluate '
        f'--root_dir={folder.root}')


def describe(evaluation: evaluation_lib.Evaluation, informed: Optional[float],
             task_names: Sequence[str] = ('',), score: Optional[float] = None) -> str:
  """A line about an evaluation, and one about each task if there are several."""
  num = len(evaluation.returns)
  error = np.std(evaluation.returns) / math.sqrt(num)
  line = (f'Evaluation over {num} episodes: return '
          f'{np.mean(evaluation.returns):.2f} ± {error:.2f} (s.e.)')
  if informed is not None:
    line += f', informed policy {informed:.2f}'
  if not np.any(np.isnan(evaluation.successes)):
    line += f', success {np.mean(evaluation.successes):.2f}'
  if score is not None:
    line += f', score {score:.1f}'
  lines = [line]
  if len(task_names) > 1:
    for task, name in enumerate(task_names):
      returns = np.array(evaluation.returns)[np.array(evaluation.tasks) == task]
      lines.append(f'  {name}: {np.mean(returns):.2f} over {len(returns)} episodes')
  return '\n'.join(lines)
