"""The parts of an online run, each as the work of one process.

A part runs in its own process, which a binary or the supervisor starts. Each function
returns an exit code, see `exit_codes`.
"""

import contextlib
import os
import pathlib
import traceback
from typing import Callable, Iterator, NamedTuple, Optional, Sequence, Union

from absl import logging
import tensorflow as tf

from gtrxl_tf import environments
from gtrxl_tf import files
from gtrxl_tf import machine
from gtrxl_tf.launch import exit_codes
from gtrxl_tf.launch import prepare
from gtrxl_tf.launch import signals
from gtrxl_tf.replay import connection
from gtrxl_tf.settings import config
from gtrxl_tf.training import devices
from gtrxl_tf.training import evaluation
from gtrxl_tf.training import experiment as experiment_lib
from gtrxl_tf.training import gauges as gauges_lib
from gtrxl_tf.training import run_folder
from gtrxl_tf.training import trainer
from gtrxl_tf.training.offline import trainer as offline_trainer
from gtrxl_tf.training.online import actor
from gtrxl_tf.training.online import environment_host
from gtrxl_tf.training.online import evaluator
from gtrxl_tf.training.online import experiment as online_experiment
from gtrxl_tf.training.online import inference as inference_lib
from gtrxl_tf.training.online import keepalive
from gtrxl_tf.training.online import placement
from gtrxl_tf.training.online import reconnect
from gtrxl_tf.training.online import server as server_lib
from gtrxl_tf.training.online import trainer as online_trainer


class Settings(NamedTuple):
  """The settings that every part is started with.

  Attributes:
    gin_files: files of settings.
    gin_bindings: single settings, which override the files.
    metrics_host: see `gauges.Gauges`.
    metrics_port: see `gauges.Gauges`.
    threads: the threads of TensorFlow, see `devices.set_threads`.
    supervised: whether the process that started the part supervises it, and has checked
      the settings.
    failure: a file for the error that ends the part, see `failure_recorded`.
    start: the number of this start of the part, which no earlier start of it in the run
      had. With the run's seed it decides episodes and noise.
  """
  gin_files: Sequence[str] = ()
  gin_bindings: Sequence[str] = ()
  metrics_host: str = 'localhost'
  metrics_port: Optional[int] = None
  threads: Optional[int] = None
  supervised: bool = False
  failure: Optional[str] = None
  start: int = 0


class Part(NamedTuple):
  """The objects that a part needs to run."""
  experiment: online_experiment.OnlineExperiment
  should_stop: Callable[[], bool]
  gauges: gauges_lib.Gauges


def train(experiment: experiment_lib.Experiment, process: trainer.Process
          ) -> Optional[evaluation.Evaluation]:
  """Trains in this process to the end, or until it should stop; see `Trainer.run`.

  Returns:
    The last evaluation, if training evaluates and came to its end.
  """
  kind = (online_trainer.OnlineTrainer if experiment.is_online
          else offline_trainer.OfflineTrainer)
  made = kind(experiment, process)
  return made.evaluation if made.run() else None


@exit_codes.returns_code
def serve(settings: Settings, port: int) -> None:
  """Runs the Reverb server."""
  with started('server', settings) as part:
    server_lib.serve(part.experiment, port, part.should_stop, part.gauges)


@exit_codes.returns_code
def act(settings: Settings, server: str, index: int) -> None:
  """Runs an actor of the Reverb server at HOST:PORT; see `Actor`."""
  with started('actor', settings) as part:
    replay = connection.connect(reconnect.check_address(server), part.experiment.layout)
    actor.Actor(
        part.experiment, replay, index, part.should_stop, settings.start,
        part.gauges).run()


@exit_codes.returns_code
def play(settings: Settings, inference: str, process: int) -> None:
  """Steps environments, for which the inference server at HOST:PORT acts.

  The number of the `process` decides which actors it plays; see `EnvironmentHost`.
  """
  # The settings are not checked, since this part makes little of what they name.
  with started('actor', settings, check=False) as part:
    experiment = part.experiment
    placed = experiment.inference or placement.Inference()
    environment_host.EnvironmentHost(
        experiment, reconnect.check_address(inference, 'inference'),
        placed.actors_of(process, experiment.num_actors), part.should_stop,
        settings.start, part.gauges).run()


@exit_codes.returns_code
def infer(settings: Settings, server: str, port: int, host: str = 'localhost',
          device: Optional[str] = None) -> None:
  """Runs an inference server; see `InferenceServer`."""
  with started('inference', settings) as part:
    inference_lib.InferenceServer(
        part.experiment, reconnect.check_address(server), port, part.should_stop,
        settings.start, part.gauges, host, device).run()


@exit_codes.returns_code
def learn(settings: Settings, server: str, root_dir: str,
          inference: Optional[trainer.InferenceAddress] = None) -> None:
  """Runs the learner of a supervised run, with the Reverb server at HOST:PORT."""
  folder = run_folder.RunFolder(root_dir)
  with started('learner', settings) as part, folder.one_learner():
    train(part.experiment, trainer.Process(
        folder, tf.distribute.get_strategy(), part.should_stop, server, part.gauges,
        inference=inference))


@exit_codes.returns_code
def evaluate(settings: Settings, server: str, root_dir: str) -> None:
  """Runs an evaluator of the weights at a Reverb server, HOST:PORT."""
  folder = run_folder.RunFolder(root_dir)
  if settings.failure is None:
    settings = settings._replace(failure=str(folder.failures / 'evaluator.txt'))
  with started('evaluator', settings) as part:
    evaluator.OnlineEvaluator(
        part.experiment, reconnect.check_address(server), folder, part.should_stop,
        part.gauges).run()


@contextlib.contextmanager
def started(name: str, settings: Settings, check: bool = True) -> Iterator[Part]:
  """Sets up this process for a part, and makes the objects that the part needs."""
  logging.set_verbosity(logging.INFO)
  devices.set_threads(settings.threads)
  # One heap for each thread that computes. Threads of Reverb's clients can share them.
  machine.limit_heaps(max(2, settings.threads or os.cpu_count()))
  asked_to_stop = (signals.stop_requested_by_parent if settings.supervised
                   else signals.stop_requested)
  with asked_to_stop() as should_stop, keepalive.keep_alive(), failure_recorded(
      name, settings.failure, unexpected_only=not settings.supervised):
    experiment = prepare.prepare(
        settings.gin_files, settings.gin_bindings, check=check and not settings.supervised)
    if not experiment.is_online and name != 'learner':
      raise config.ConfigError(
          f'the settings are for training on a dataset, which has no {name}')
    yield Part(experiment, should_stop, gauges_lib.Gauges(
        name, settings.metrics_host, settings.metrics_port))
  logging.info('%s: ends', name)


@contextlib.contextmanager
def failure_recorded(name: str, path: Union[str, os.PathLike, None],
                     unexpected_only: bool = False) -> Iterator[None]:
  """Writes the error that ends the context into a file, as one line and a traceback.

  An error that `exit_codes` does not expect becomes a `RunFailed` with that line.

  Args:
    name: the beginning of the line, such as the name of a part; '' for none.
    path: the file. None to leave errors as they are.
    unexpected_only: whether to write no file for an error that is expected.
  """
  try:
    yield
  except Exception as error:
    if isinstance(error.__cause__, environments.EnvironmentFailed):
      error = error.__cause__  # `prepare` refused the environment.
    expected = exit_codes.is_expected(error)
    if path is None or expected and unexpected_only:
      raise error
    path, line, where = pathlib.Path(path), str(error), ''
    if not expected:
      kind = ('' if isinstance(error, environments.EnvironmentFailed)
              else f'{type(error).__name__}: ')
      line = f'{name}{": " if name else ""}{kind}{config.one_line(error)}'
    with contextlib.suppress(OSError):  # A full disk is not worth another error.
      # An error in the settings must not create a run's folder.
      path.parent.mkdir(parents=not expected, exist_ok=True)
      files.write_atomically(path, f'{line}\n\n{traceback.format_exc()}')
      where = f' (traceback: {path})'
    if expected:
      raise
    raise exit_codes.RunFailed(line + where) from error
