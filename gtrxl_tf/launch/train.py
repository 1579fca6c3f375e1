"""Trains an experiment: from settings to a policy, an evaluation and a picture."""

import contextlib
import os
import pathlib
import shlex
import shutil
import sys
from typing import Callable, Mapping, Optional, Sequence

import tensorflow as tf

from gtrxl_tf import files
from gtrxl_tf.environments import optional
from gtrxl_tf.launch import exit_codes
from gtrxl_tf.launch import logs
from gtrxl_tf.launch import parts
from gtrxl_tf.launch import prepare
from gtrxl_tf.launch import resuming
from gtrxl_tf.launch import signals
from gtrxl_tf.launch import wandb_run
from gtrxl_tf.settings import config
from gtrxl_tf.training import checkpoints
from gtrxl_tf.training import curves
from gtrxl_tf.training import devices
from gtrxl_tf.training import evaluation as evaluation_lib
from gtrxl_tf.training import experiment as experiment_lib
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import run_folder
from gtrxl_tf.training import tensorboard
from gtrxl_tf.training import trainer
from gtrxl_tf.training.online import reconnect


@exit_codes.returns_code
def train(gin_files: Sequence[str], gin_bindings: Sequence[str], root_dir: str,
          allow_changes: bool = False, wandb: Optional[str] = None,
          supervised: bool = False) -> int:
  """Trains on this machine in the folder `root_dir`, or resumes the run there.

  Args:
    gin_files: files of settings.
    gin_bindings: single settings, which override the files.
    root_dir: the run's folder.
    allow_changes: whether `differences.CHANGEABLE` may differ from what the run in the
      folder was started with.
    wandb: a project of Weights & Biases that the run is sent to, if given.
    supervised: whether to stop when the parent process ends.

  Returns:
    An exit code: 0 done, 1 failed, 2 wrong settings, 130 interrupted.
  """
  if wandb:
    optional.load('wandb', '--wandb', 'wandb')
  asked_to_stop = (signals.stop_requested_by_parent if supervised
                   else signals.stop_requested)
  with asked_to_stop() as should_stop:
    return train_here(gin_files, gin_bindings, run_folder.RunFolder(root_dir),
                      should_stop, allow_changes, wandb=wandb)


def train_here(gin_files: Sequence[str], gin_bindings: Sequence[str],
               folder: run_folder.RunFolder, should_stop: Callable[[], bool],
               allow_changes: bool = False,
               on_row: Callable[[Mapping[str, float]], None] = lambda row: None,
               wandb: Optional[str] = None) -> int:
  """Trains like `train`, and raises the errors that `exit_codes.returns_code` expects.

  It calls `should_stop` between steps, and `on_row` with each row of metrics.
  """
  # A part of a run imports the user's script, which becomes `__main__` afterwards.
  if sys.modules.get('__mp_main__') not in (None, sys.modules['__main__']):
    print('train() was called again when a process of the run imported this script: '
          "expected it below `if __name__ == '__main__':`", flush=True)
    os._exit(exit_codes.REFUSED)
  with parts.failure_recorded(
      'preparation', folder.failures / 'preparation.txt', unexpected_only=True):
    experiment = prepare.prepare(gin_files, gin_bindings)
  if experiment.is_online:
    _check_system(experiment)
    prepare.check_batch(experiment)
  was_run = folder.config.exists()
  with (resuming.claimed(folder, experiment, allow_changes) as begins,
        logs.kept(folder.logs / 'train.log'),
        wandb_run.followed(wandb, folder, 'environment_steps' if experiment.is_online
                           else 'learner_step'),
        parts.failure_recorded('training', folder.failures / 'training.txt',
                               unexpected_only=True)):
    if begins and was_run:
      # The earlier run's tables may come from other settings, or have weights that
      # mark the run as over.
      shutil.rmtree(folder.replay, ignore_errors=True)
    evaluation = None
    if not folder.done.exists():
      print(f'Training in {folder.root}: {experiment.description}.', flush=True)
      with contextlib.closing(experiment.make_console()) as console:
        console.on_row = on_row
        if experiment.is_online and not experiment.takes_turns:
          from gtrxl_tf.launch import supervisor  # It needs fcntl and fork.
          supervisor.Supervisor(experiment, folder).run(should_stop, console)
        else:
          evaluation = parts.train(experiment, trainer.Process(
              folder, tf.distribute.get_strategy(), should_stop, show=console.update))
    return _finish(experiment, folder, should_stop, evaluation)


@exit_codes.returns_code
def train_as_learner(settings: parts.Settings, root_dir: str, server: Optional[str],
                     strategy_name: str = 'default', tpu: Optional[str] = None,
                     allow_changes: bool = False,
                     inference: Optional[trainer.InferenceAddress] = None) -> None:
  """Trains like `train`, with actors and a server that are started elsewhere.

  It returns 0 if it was told to stop, too. Workers that train together share the folder
  `root_dir`. There is no `server` if the experiment is on a dataset. With `inference` the
  process also acts for actors. See `devices.make_strategy` for `strategy_name` and `tpu`.
  """
  tf.get_logger().setLevel('WARNING')  # Strategies log every collective.
  folder = run_folder.RunFolder(root_dir)
  devices.set_threads(settings.threads)
  # This comes before any other use of TensorFlow.
  strategy = devices.make_strategy(
      strategy_name, tpu, inference.device if inference else None)
  is_chief = devices.is_chief(strategy)
  if is_chief and settings.failure is None:
    settings = settings._replace(failure=str(folder.failures / 'learner.txt'))
  with parts.started('learner', settings._replace(threads=None)) as part:
    experiment = part.experiment
    _check_server(experiment, server)
    if not is_chief:  # As in `resuming.claimed`: otherwise the worker waits for the chief.
      checkpoints.check(folder.checkpoints, experiment.kind, experiment.make_agent)
      resuming.check_settings(folder, allow_changes)
    with (resuming.claimed(folder, experiment, allow_changes) if is_chief
          else contextlib.nullcontext()):
      evaluation = None
      # The chief has removed the mark of a run that is extended. The others may still
      # have seen it.
      if devices.any_worker(not folder.done.exists(), strategy):
        if is_chief and not server:
          print(f'Training in {folder.root}: {experiment.description}.', flush=True)
        with contextlib.closing(experiment.make_console()) as console:
          show = (lambda row: None) if server else console.update  # Parts keep logs.
          evaluation = parts.train(experiment, trainer.Process(
              folder, strategy, part.should_stop, server, part.gauges, show, inference))
      if is_chief:
        _finish(experiment, folder, part.should_stop, evaluation)


def _check_system(experiment: experiment_lib.Experiment) -> None:
  if experiment.takes_turns:
    return
  if sys.platform != 'linux':
    raise config.ConfigError(
        f'OnlineExperiment.num_actors = {experiment.num_actors}: expected 0 on '
        f'{sys.platform}, as processes share memory on Linux alone')
  if experiment.transport == 'reverb':
    optional.load('reverb', "OnlineExperiment.transport = 'reverb'", 'online')


def _check_server(experiment: experiment_lib.Experiment, server: Optional[str]) -> None:
  if experiment.is_online != bool(server):
    raise config.ConfigError(
        '--server: expected the address of a Reverb server if there are actors, and '
        f'none if there is a dataset; got {server}')
  if experiment.takes_turns:
    raise config.ConfigError(
        'OnlineExperiment.num_actors = 0: expected at least 1 with --server')
  if server:
    reconnect.check_address(server)


def _finish(experiment: experiment_lib.Experiment, folder: run_folder.RunFolder,
            should_stop: Callable[[], bool],
            evaluation: Optional[evaluation_lib.Evaluation]) -> int:
  """Evaluates a run that is done, and shows its results; returns an exit code."""
  if not folder.done.exists():
    print('Interrupted. Run the same command to ' + (
        f'continue from {folder.checkpoints}.'
        if folder.has_checkpoint else 'begin again: there is no checkpoint yet.'))
    return exit_codes.INTERRUPTED
  if evaluation is None:
    evaluation = experiment.evaluate(folder, should_stop)
  best = evaluation and experiment.evaluate_best(folder, should_stop)
  if evaluation is None or best is None and folder.best.exists():
    print('Interrupted in the evaluation. Run the same command to repeat it.')
    return exit_codes.INTERRUPTED
  _show(experiment, folder, evaluation, best)
  return exit_codes.DONE


def draw_curve(experiment: experiment_lib.Experiment, folder: run_folder.RunFolder
               ) -> Optional[float]:
  """Draws the learning curve; returns the informed policy's return, if there is one."""
  informed = experiment.informed_return()
  runs = {'training': [metrics_csv.read_metrics(folder.metrics)]}
  curves.draw(folder.curve, runs, folder.root.name, informed,
              lines=experiment.reference_lines.get(curves.measure_column(runs), {}))
  return informed


def _write_episodes(path: pathlib.Path, evaluation: evaluation_lib.Evaluation) -> None:
  columns = dict(zip(('return', 'success', 'task', 'length'), (
      evaluation.returns, evaluation.successes, evaluation.tasks, evaluation.lengths)))
  columns = {name: x for name, x in columns.items() if x}
  files.write_csv(path, [
      ['episode', *columns],
      *([i, *episode] for i, episode in enumerate(zip(*columns.values())))])


def _show(experiment: experiment_lib.Experiment, folder: run_folder.RunFolder,
          evaluation: evaluation_lib.Evaluation,
          best: Optional[evaluation_lib.Evaluation]) -> None:
  """Writes and prints the results of a run that is done."""
  scores = experiment.compute_scores(evaluation.returns, evaluation.tasks)
  if scores:
    files.write_csv(folder.scores, [scores, scores.values()])
  _write_episodes(folder.evaluation, evaluation)
  informed = draw_curve(experiment, folder)
  board = tensorboard.Summaries(folder.summaries / 'evaluation')
  board.picture('episodes/curve', folder.curve)
  board.flush()
  print(experiment.describe(folder, evaluation, informed))
  if best:
    _write_episodes(folder.best_evaluation, best)
    kept = checkpoints.load_best(folder.checkpoints)
    print(f'Best policy, of learner step {kept.learner_step:,}, on new episodes: {best!r}')
  print(f'Curve: {folder.curve}')
  for what, name, flag, path in (
      ('Evaluate again', 'evaluate', 'root_dir', folder.root),
      ('Serve the policy', 'serve', 'policy_dir', folder.best if best else folder.policy)):
    print(f'{what}:  gtrxl {name} --{flag}={shlex.quote(str(path))}')
