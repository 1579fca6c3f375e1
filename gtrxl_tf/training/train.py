"""Trains on one machine: from settings to a policy, an evaluation and a picture."""

import contextlib
import csv
import io
import math
import os
import sys
import time
from typing import Callable, Mapping, Optional, Sequence, Tuple

from absl import logging
import gin
import numpy as np
import tensorflow as tf

from gtrxl_tf import config
from gtrxl_tf import configurables  # pylint: disable=unused-import
from gtrxl_tf import files
from gtrxl_tf.plots import curves
from gtrxl_tf.training import actor as actor_lib
from gtrxl_tf.training import checkpoints as checkpoints_lib
from gtrxl_tf.training import console as console_lib
from gtrxl_tf.training import devices
from gtrxl_tf.training import evaluation as evaluation_lib
from gtrxl_tf.training import experiment as experiment_lib
from gtrxl_tf.training import gauges as gauges_lib
from gtrxl_tf.training import history_experiment
from gtrxl_tf.training import learner as learner_lib
from gtrxl_tf.training import offline as offline_lib
from gtrxl_tf.training import parts
from gtrxl_tf.training import patience
from gtrxl_tf.training import run_folder
from gtrxl_tf.training import signals
from gtrxl_tf.training import supervisor as supervisor_lib
from gtrxl_tf.training import tasks as tasks_lib


def prepare(gin_files: Sequence[str], gin_bindings: Sequence[str]
            ) -> tasks_lib.TaskExperiment:
  """Reads settings and makes every part once, so that what is wrong shows now.

  Returns:
    A `HistoryExperiment` if the settings name a collector for one, an
    `OfflineExperiment` if they name a dataset, else an `Experiment`.

  Raises:
    config.ConfigError: with one line that names the setting.
  """
  config.parse(gin_files, gin_bindings)
  try:
    experiment = _kind()()
    experiment.check()
  except (ValueError, TypeError) as error:
    raise config.ConfigError(config.one_line(error)) from error
  return experiment


def _kind():
  """The class of the experiment that the settings are of."""
  for setting, kind in (
      ('HistoryExperiment.collector', history_experiment.HistoryExperiment),
      ('OfflineExperiment.dataset', offline_lib.OfflineExperiment)):
    try:
      gin.query_parameter(setting)
      return kind
    except ValueError:
      pass
  return experiment_lib.Experiment


def train(gin_files: Sequence[str], gin_bindings: Sequence[str], root_dir: str) -> int:
  """Runs an experiment in the folder `root_dir`, or goes on with the one there.

  Returns:
    An exit code: 0 done, 1 failed, 2 wrong settings, 130 interrupted.
  """
  return _refusing(lambda should_stop: _train(
      prepare(gin_files, gin_bindings), run_folder.RunFolder(root_dir), _run_parts,
      tf.distribute.get_strategy(), should_stop))


def learn(gin_files: Sequence[str], gin_bindings: Sequence[str], root_dir: str,
          server: Optional[str], strategy: str = 'default', tpu: Optional[str] = None,
          metrics_host: str = 'localhost', metrics_port: Optional[int] = None) -> int:
  """Does as `train`, with actors and a server that are started elsewhere.

  Args:
    gin_files: settings.
    gin_bindings: settings.
    root_dir: the run's folder. Workers that learn together share it.
    server: address of the Reverb server; None for an experiment on a dataset.
    strategy: of `devices.make_strategy`.
    tpu: of the same.
    metrics_host: of `gauges.Gauges`.
    metrics_port: of the same.

  Returns:
    An exit code: 0 done or told to stop, 1 failed, 2 wrong settings.
  """
  def run(should_stop):
    tf.get_logger().setLevel('WARNING')  # Strategies tell of every collective.
    made = devices.make_strategy(strategy, tpu)  # Before anything of TensorFlow.
    experiment = prepare(gin_files, gin_bindings)
    if isinstance(experiment, offline_lib.OfflineExperiment) == bool(server):
      raise config.ConfigError(
          '--server: expected the address of a Reverb server if there are actors, and '
          f'none if there is a dataset; got {server}')
    if server:
      patience.check_address(server)
    gauges = gauges_lib.Gauges('learner', metrics_host, metrics_port)
    run_learner = lambda experiment, folder, should_stop: parts.learn(
        experiment, server, folder, should_stop, made, gauges)
    code = _train(experiment, run_folder.RunFolder(root_dir), run_learner, made,
                  should_stop, gauges)
    return 0 if code == 130 else code
  return _refusing(run)


def run_part(part: str, gin_files: Sequence[str], gin_bindings: Sequence[str],
             run: Callable[..., None], metrics_host: str = 'localhost',
             metrics_port: Optional[int] = None, threads: int = 1) -> int:
  """Runs a part of an online experiment, other than the learner, in this process.

  Args:
    part: its name.
    gin_files: settings.
    gin_bindings: settings.
    run: is given the experiment, what says whether to stop, and gauges.
    metrics_host: of `gauges.Gauges`.
    metrics_port: of the same.
    threads: of TensorFlow; 0 for as many as there are cores.

  Returns:
    An exit code: 0 the run is over or it was told to stop, 1 failed, 2 wrong settings.
  """
  logging.set_verbosity(logging.INFO)
  tf.config.threading.set_intra_op_parallelism_threads(threads)
  tf.config.threading.set_inter_op_parallelism_threads(threads)

  def made_and_run(should_stop):
    experiment = prepare(gin_files, gin_bindings)
    if isinstance(experiment, offline_lib.OfflineExperiment):
      raise config.ConfigError(
          f'the settings are of training on a dataset, which has no {part}')
    gauges = gauges_lib.Gauges(part, metrics_host, metrics_port)
    try:
      run(experiment, should_stop, gauges)
    except actor_lib.ActingFailed as error:
      print(f'Stopped: {error}', file=sys.stderr)
      return 1
    logging.info('%s: ends', part)
    return 0

  return _refusing(made_and_run)


def _refusing(run: Callable[[Callable[[], bool]], int]) -> int:
  """What `run`, given what says whether to stop, returns; 2 and a line on stderr if it
  refuses to."""
  try:
    with signals.stop_requested() as should_stop:
      return run(should_stop)
  except (config.ConfigError, run_folder.InUseError) as error:
    print(f'Not started: {error}', file=sys.stderr)
    return 2
  except (checkpoints_lib.SaveFailed, OSError) as error:
    if isinstance(error, OSError) and error.errno not in run_folder.NO_ROOM:
      raise
    print(f'Stopped: {error}. The same command goes on when there is room.',
          file=sys.stderr)
    return 1


def _train(experiment: tasks_lib.TaskExperiment, folder: run_folder.RunFolder,
           run_online: Callable[..., Optional[str]], strategy: tf.distribute.Strategy,
           should_stop: Callable[[], bool],
           gauges: Optional[gauges_lib.Gauges] = None) -> int:
  """Runs an experiment.

  Args:
    experiment: to run.
    folder: of the run.
    run_online: trains an online experiment in a folder until it should stop; returns
      why it failed, if it did.
    strategy: of an offline experiment.
    should_stop: asked all the time.
    gauges: are shown what is logged of an offline experiment.

  Returns:
    An exit code.
  """
  is_chief = devices.is_chief(strategy)
  with folder.in_use() if is_chief else contextlib.nullcontext():
    # Before anything in the folder is changed.
    checkpoints_lib.check(
        folder.checkpoints, type(experiment).__name__, experiment.make_agent)
    if is_chief:
      files.write_atomically(folder.config, gin.operative_config_str())
    evaluation = None
    if not folder.done.exists():
      if is_chief:
        folder.diverged.unlink(missing_ok=True)
      failure = None
      if isinstance(experiment, offline_lib.OfflineExperiment):
        failure, evaluation = _run_offline(
            experiment, folder, strategy, should_stop, gauges)
      else:
        failure = run_online(experiment, folder, should_stop)
      if failure is None and folder.diverged.exists():
        failure = folder.diverged.read_text(encoding='utf-8').strip()
      if failure is not None:
        print(f'Stopped: {failure}', file=sys.stderr)
        return 1
      if is_chief and not folder.done.exists():
        print(f'Interrupted. The same command goes on from {folder.checkpoints}.')
        return 130
    if is_chief:
      evaluation = evaluation or _evaluate(experiment, folder, should_stop)
      if evaluation is None:
        print('Interrupted in the evaluation. The same command begins it again.')
        return 130
      _show(experiment, folder, evaluation)
  return 0


def _run_offline(experiment: offline_lib.OfflineExperiment,
                 folder: run_folder.RunFolder, strategy: tf.distribute.Strategy,
                 should_stop: Callable[[], bool], gauges: Optional[gauges_lib.Gauges]
                 ) -> Tuple[Optional[str], Optional[evaluation_lib.Evaluation]]:
  """Trains in this process; returns why it failed, if it did, and the evaluation at the
  end, if it came to it."""
  console = console_lib.Console(experiment.learner_steps, 'learner')
  dataset = experiment.dataset
  print(f'Training in {folder.root} on the {dataset.num_episodes:,} {dataset.kind} of '
        f'{dataset.path}.', flush=True)
  def show(row):
    console.update(row)
    if gauges is not None:
      gauges.show(row)
  try:
    training = offline_lib.OfflineTraining(experiment, folder, strategy)
    if training.run(should_stop, show) and devices.is_chief(strategy):
      training.export()
      files.write_atomically(folder.done, 'The run took all its steps.\n')
      return None, training.judge.evaluation
  except learner_lib.Diverged as error:
    if devices.is_chief(strategy):
      files.write_atomically(folder.diverged, f'{error}\n')
    return str(error), None
  finally:
    console.close()
  return None, None


def _run_parts(experiment: experiment_lib.Experiment, folder: run_folder.RunFolder,
               should_stop: Callable[[], bool]) -> Optional[str]:
  """Trains with actors, learner and server; returns why it failed, if it did."""
  supervisor = supervisor_lib.Supervisor(
      gin.config_str(), str(folder.root), experiment.num_actors, experiment.evaluator)
  console = console_lib.Console(experiment.environment_steps)
  print(f'Training in {folder.root}: 1 server, 1 learner, {experiment.num_actors} '
        f'actor(s) of {experiment.environments_per_actor} environments.', flush=True)
  try:
    supervisor.start()
    while not (should_stop() or supervisor.ended()):
      time.sleep(0.5)
      supervisor.restart_the_dead()
      console.update(run_folder.last_metrics(folder.metrics))
  except supervisor_lib.PartFailed as error:
    return str(error)
  finally:
    console.close()
    supervisor.stop()
  return None


def _evaluate(experiment: tasks_lib.TaskExperiment, folder: run_folder.RunFolder,
              should_stop: Callable[[], bool]) -> Optional[evaluation_lib.Evaluation]:
  """Plays with the policy of a run that is done, unless it should stop."""
  if isinstance(experiment, history_experiment.HistoryExperiment):
    # Not with the exported one, which draws actions that no seed decides.
    agent = experiment.restore_agent(folder.checkpoints)
    judge = experiment.make_judge(experiment.make_policy(agent.network), folder)
    judge.evaluate()
    return judge.evaluation
  return evaluation_lib.evaluate(
      folder.policy, evaluation_lib.make_environments(experiment),
      experiment.evaluation_episodes, should_stop)


def _show(experiment: tasks_lib.TaskExperiment, folder: run_folder.RunFolder,
          evaluation: evaluation_lib.Evaluation) -> None:
  """Writes and prints what there is to see of a run that is done."""
  names = experiment.task_names
  table = io.StringIO()
  rows = csv.writer(table, lineterminator='\n')
  rows.writerow(['episode', 'return', 'success', 'task'])
  rows.writerows(
      [i, *episode] for i, episode in enumerate(zip(*evaluation)))
  files.write_atomically(folder.evaluation, table.getvalue())

  informed = experiment.informed_return()
  metrics = run_folder.read_metrics(folder.metrics)
  curves.draw(folder.curve, {'training': [metrics]}, folder.root.name, informed)
  if isinstance(experiment, history_experiment.HistoryExperiment):
    print(describe_learning(metrics[-1]))
    print(f'Learning process: {folder.learning_process}')
  else:
    print(describe(
        evaluation, informed, names,
        experiment.score_of(evaluation.returns, evaluation.tasks)))
  print(f'Curve: {folder.curve}')
  print(f'Evaluate again, or serve {folder.policy}:  '
        f'{os.path.relpath(sys.executable)} -m binaries.evaluate '
        f'--root_dir={folder.root}')


def describe_learning(found: Mapping[str, float]) -> str:
  """A line about learning processes, of what judges them found."""
  return (f'In the last fifth of learning processes: return {found["return"]:.2f}, '
          f'of the source {found["source_return"]:.2f}, ratio {found["ratio"]:.2f}, '
          f'success {found["success"]:.2f}')


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
      played = np.array(evaluation.tasks) == task
      line = (f'  {name}: {np.mean(np.array(evaluation.returns)[played]):.2f} over '
              f'{np.sum(played)} episodes')
      success = np.mean(np.array(evaluation.successes)[played])
      lines.append(line + ('' if np.isnan(success) else f', success {success:.2f}'))
  return '\n'.join(lines)
