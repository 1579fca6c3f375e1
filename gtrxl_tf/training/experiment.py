"""The base of all experiments: the settings they share, and what each kind can do."""

import abc
import contextlib
import math
import pathlib
import re
import tempfile
import time
from typing import Any, Callable, Dict, List, Literal, Mapping, Optional, Sequence, Tuple, Union

import dm_env
import numpy as np
import tensorflow as tf
import tree

from gtrxl_tf import environments
from gtrxl_tf.agents import agent as agent_lib
from gtrxl_tf.networks import tensor_specs
from gtrxl_tf.serving import exported
from gtrxl_tf.settings import config
from gtrxl_tf.settings import differences
from gtrxl_tf.settings import seeds as seeds_lib
from gtrxl_tf.training import checkpoints as checkpoints_lib
from gtrxl_tf.training import console
from gtrxl_tf.training import evaluation as evaluation_lib
from gtrxl_tf.training import learner
from gtrxl_tf.training import optimizers
from gtrxl_tf.training import run_folder

# Columns of `metrics.csv` that are the run's: no metric of an agent may replace them.
_RUN_COLUMNS = ('learner_step', 'environment_steps', 'seconds', 'cpu_seconds', 'return',
                'success', 'gradient_norm')


@config.configurable
class Experiment(abc.ABC):
  """One agent on one environment, and how it is trained and evaluated.

  Every process of a run makes it from the same settings. Making it starts no process
  and writes no file, so that unusable settings are found first.

  The settings below are set for `Experiment`, whatever its kind: `Experiment.seed = 1`.
  A kind is a subclass with further settings.

  Args:
    environment: makes a `dm_env.Environment` or a `gymnasium.Env`; called with `seed`.
    wrappers: change every environment, in order, as in `[@RepeatAction, @FrameStack]`;
      see `environments.wrappers`.
    network: makes a network for an `action_spec`; by default the kind's.
    agent: makes an agent of a network, or of several; by default the kind's.
    tasks: several tasks in one run: the setting of `environment` in which they differ,
      and its values, as in `{'level': ('rooms_watermaze', 'skymaze')}`.
    score: computes a number from the mean returns of tasks, by the tasks' names; or
      several numbers by name, of which `'score'` ranks runs.
    reference_lines: lines in the pictures that compare runs, by a column (`'return'`,
      the name of a score, or `'success'` where tasks have a panel) and a label:
      `{'score': {'human': 100}}`.
    optimizer: the optimizer and its settings; by default the kind's.
    checkpoints: when checkpoints are saved, and which are kept.
    evaluation_episodes: episodes of an evaluation, for each task.
    compute_dtype: the type in which the network that learns computes. Its variables,
      all losses, and networks that act are float32 in either case.
    log_period: learner steps between rows of `metrics.csv`.
    seed: the seed of networks, batches, environments and actions.

  Attributes:
    kind: the name of the kind in checkpoints.
    learns_while_acting: whether the policy learns while it acts, and is therefore
      evaluated by learning processes.
    is_online: whether actors play while it trains.
    takes_turns: whether they do so in the learner's process.
    learner_steps: how many learner steps training takes; None if that is not set.
    num_epochs: how often a learner step uses each row of its batch.
    num_minibatches: gradient steps of an epoch.
    batch_size: rows of a batch, for all replicas together.
    evaluation_episodes: episodes of an evaluation, for all tasks together.
    settings: all settings that it was made from, as parts of a run compare them; None
      if it was not made from gin, see `launch.prepare`.
    environment_name: the name of the (first) task's environment, such as its id.
    observation_spec: the observation spec of an environment.
    action_spec: the action spec of an environment.
  """
  kind: str
  learns_while_acting = False
  is_online = False
  takes_turns = False
  settings: Optional[differences.Settings] = None
  learner_steps: Optional[int] = None
  num_epochs = 1
  num_minibatches = 1
  batch_size: int
  environment_name = ''
  default_network: Callable[..., tf.keras.layers.Layer]
  default_agent: Callable[..., agent_lib.Agent]
  default_optimizer: type[optimizers.OptimizerSettings]
  default_checkpoints = checkpoints_lib.Settings

  def __init__(
      self,
      environment: Optional[Callable[..., dm_env.Environment]] = None,
      network: Optional[Callable[..., tf.keras.layers.Layer]] = None,
      agent: Optional[Callable[..., agent_lib.Agent]] = None,
      tasks: Optional[Mapping[str, Sequence[Any]]] = None,
      score: Optional[
          Callable[[Mapping[str, float]], Union[float, Mapping[str, float]]]] = None,
      reference_lines: Optional[Mapping[str, Mapping[str, float]]] = None,
      optimizer: Optional[optimizers.OptimizerSettings] = None,
      checkpoints: Optional[checkpoints_lib.Settings] = None,
      evaluation_episodes: config.PositiveInt = 100,
      compute_dtype: Literal['float32', 'bfloat16'] = 'float32',
      log_period: config.PositiveInt = 10,
      seed: config.Seed = 0,
      wrappers: Optional[Sequence[Callable[..., dm_env.Environment]]] = None):
    self._environment = environment
    self._wrappers = wrappers
    self._network = network or self.default_network
    self._agent = agent or self.default_agent
    self._task_settings = environments.task_settings('Experiment', tasks)
    self._score = score
    self.reference_lines = reference_lines or {}
    self.optimizer = optimizer or self.default_optimizer()
    self.checkpoints = checkpoints or self.default_checkpoints()
    self.evaluation_episodes = evaluation_episodes * len(self._task_settings)
    self.compute_dtype = compute_dtype
    self.log_period = log_period
    self.seed = seed
    self._prototype: Optional[environments.BatchedEnvironment] = None
    self.observation_spec, self.action_spec = self._make_specs()

  def _make_specs(self) -> Tuple[Any, Any]:
    """Returns the specs of observation and action."""
    if self._environment is None:
      raise config.ConfigError('Experiment.environment is not set, and has no default')
    self._prototype = self.make_environments(1, seeds_lib.Stream.SPECS)
    setting = f'{config.name_of(self._network)}.normalize_observations'
    normalizes = differences.given().get(setting) == 'True'
    self._prototype.watched = ('image',) if normalizes else ('image', 'number')
    self.environment_name = self._prototype.name
    return self._prototype.observation_spec(), self._prototype.action_spec()

  def close_prototype(self) -> None:
    """Closes the environment that the specs were taken from, if it is open."""
    prototype, self._prototype = self._prototype, None
    if prototype is not None:
      prototype.close()

  def _play(self) -> None:
    """Plays an episode with random actions for two seconds at most, new integers first."""
    random, tried, ended = np.random.default_rng(self.seed), set(), False
    seen = self._prototype.reset()
    end = time.monotonic() + 2
    while time.monotonic() < end:
      num_tried, last = len(tried), seen.last()[0]
      action = environments.random_action(
          self.action_spec, tree.map_structure(lambda x: x[0], seen.observation), random,
          None if last else tried)
      ended |= last
      if ended and not last and (len(tried) == num_tried or num_tried >= 50):
        return
      seen = self._prototype.step(tree.map_structure(lambda x: x[np.newaxis], action))

  # Environments and their tasks.

  @property
  def task_names(self) -> List[str]:
    """The name of each task; one empty name if there is only one task."""
    return [str(*settings.values()) if settings else ''
            for settings in self._task_settings]

  def make_environments(
      self, count: int, stream: seeds_lib.Stream, *numbers: int, first: int = 0,
      wrap: Callable[[dm_env.Environment], dm_env.Environment] = lambda made: made
      ) -> environments.BatchedEnvironment:
    """Makes `count` environments, seeded by the experiment's seed and the `stream`.

    Args:
      count: E.
      stream: the purpose of the environments.
      *numbers: tell several batches of the same stream apart.
      first: number of the first environment, which decides the tasks they play.
      wrap: called with each environment; returns its replacement in the batch.
    """
    *seeds, of_actions = map(int, seeds_lib.sequence(
        self.seed, stream, *numbers).generate_state(count + 1))
    tasks = self.tasks_of(count, first)
    batch = environments.BatchedEnvironment(
        [wrap(self._make_environment(seed, self._task_settings[task]))
         for seed, task in zip(seeds, tasks)], tasks, of_actions)
    batch.watched = ()  # All parts of a run would warn.
    return batch

  def tasks_of(self, count: int, first: int) -> np.ndarray:
    """Returns the numbers of the tasks that environments play, int32 `[count]`.

    The first has the number `first`; number i plays task i modulo the number of tasks.
    """
    return np.arange(first, first + count, dtype=np.int32) % len(self._task_settings)

  def _make_environment(self, seed: int, settings: Mapping[str, Any]
                        ) -> dm_env.Environment:
    return environments.make(
        'Experiment', self._environment, seed, self._wrappers, **settings)

  def make_evaluation_environments(
      self, num_episodes: Optional[int] = None,
      most: int = evaluation_lib.NUM_ENVIRONMENTS, number: int = 0
      ) -> environments.BatchedEnvironment:
    """Makes the environments that an evaluation plays, equally many for each task.

    Args:
      num_episodes: episodes of all tasks together; by default the experiment's.
      most: the most environments, if there are no more tasks than that.
      number: tells apart evaluations of different episodes.
    """
    tasks = len(self.task_names)
    per_task = math.ceil((num_episodes or self.evaluation_episodes) / tasks)
    rounds = math.ceil(per_task / max(most // tasks, 1))
    return self.make_environments(
        tasks * math.ceil(per_task / rounds), seeds_lib.Stream.EVALUATION,
        *[number] * bool(number))

  def make_evaluator(self, policy: Any, folder: Optional[run_folder.RunFolder] = None,
                     num_episodes: Optional[int] = None, number: int = 0
                     ) -> evaluation_lib.Evaluator:
    """Makes the evaluator of a policy, which plays the tasks of the experiment.

    Args:
      policy: the policy to evaluate; its weights may change between evaluations.
      folder: the run's folder, for pictures; None for no pictures.
      num_episodes: episodes of each task; by default the experiment's.
      number: tells apart evaluations of different episodes.
    """
    del folder
    total = self.evaluation_episodes
    if num_episodes:
      total = min(total, num_episodes * len(self._task_settings))
    return evaluation_lib.EpisodeEvaluator(
        policy, self.make_evaluation_environments(total, number=number), total,
        self.task_names)

  def informed_return(self, num_episodes: int = 100) -> Optional[float]:
    """Returns the mean return of the informed policy, if the environments have one."""
    means = []
    for settings in self._task_settings:
      with contextlib.closing(self._make_environment(self.seed, settings)) as environment:
        if not isinstance(environment, environments.MemoryTask):
          return None
        means.append(environments.informed_return(environment, num_episodes))
    return float(np.mean(means))

  def compute_scores(self, returns: Sequence[float], tasks: Sequence[int]
                     ) -> Dict[str, float]:
    """Returns the scores of episodes by name; one score is named 'score'.

    There are none if the experiment has no score; NaN if a task has no episode yet.
    """
    if self._score is None:
      return {}
    names = self.task_names
    by_task = {name: [] for name in names}
    for value, task in zip(returns, tasks):
      by_task[names[task]].append(value)
    found = self._score(
        {name: np.mean(x) if x else np.nan for name, x in by_task.items()})
    if not isinstance(found, Mapping):
      found = {'score': found}
    return {name: float(value) if all(by_task.values()) else float('nan')
            for name, value in found.items()}

  # The agent.

  @abc.abstractmethod
  def make_agent(self) -> agent_lib.Agent:
    """Makes an agent; the network that learns computes in `compute_dtype`."""

  @abc.abstractmethod
  def restore_agent(self, checkpoints: pathlib.Path) -> agent_lib.Agent:
    """Makes the agent of the newest checkpoint in a folder, see `checkpoints`."""

  def make_optimizer(self) -> learner.Optimizer:
    """Makes the optimizer."""
    return self.optimizer.make(self.learner_steps)

  @abc.abstractmethod
  def learned_network(self, agent: agent_lib.Agent) -> tf.keras.layers.Layer:
    """Returns the network of `agent` whose weights act after training."""

  def kept_network(self, folder: run_folder.RunFolder) -> tf.keras.layers.Layer:
    """Makes a network with a run's best weights, or else with the newest."""
    network = self.learned_network(self.restore_agent(folder.checkpoints))
    if best := checkpoints_lib.load_best(folder.checkpoints):
      for variable, value in zip(network.variables, best.weights):
        variable.assign(value)
    return network

  @abc.abstractmethod
  def make_policy(self, network: tf.keras.layers.Layer) -> Any:
    """Makes a policy that acts with `network`."""

  @abc.abstractmethod
  def make_batch(self, agent: agent_lib.Agent) -> Any:
    """Makes a batch that the loss of `agent` takes, for checks and measurements."""

  @abc.abstractmethod
  def describe_row(self, batch: Any) -> str:
    """Describes the number of steps in a row of a batch, for tables."""

  def check(self) -> None:
    """Plays an episode, makes every part once, acts, and computes a loss."""
    if self._prototype is not None:
      with tempfile.TemporaryFile('w+', encoding='utf-8') as printed:
        try:
          with contextlib.redirect_stdout(printed):
            self._play()
        except environments.EnvironmentFailed:
          printed.seek(0)
          print(printed.read()[-1000:], end='')
          raise
    self.compute_scores([], [])  # The run's record then has the score's settings.
    agent = self.make_agent()
    network = self.learned_network(agent)
    made = {id(variable) for variable in network.variables}
    policy = self.make_policy(network)
    time_step = tensor_specs.zeros(policy.time_step_spec, [2])  # Zero means FIRST.
    policy.action(time_step, policy.get_initial_state(2))
    method = f'{type(agent).__name__}.loss'
    _, metrics = agent_lib.checked_loss(method, agent.loss(self.make_batch(agent)))
    late = [variable.name for variable in network.variables if id(variable) not in made]
    if late:  # Actors and servers do not have it yet when weights come.
      raise config.ConfigError(
          f'{type(network).__name__}: variable {late[0]} was made by the first call: '
          'expected the core, torso or head that has it to make it in build()')
    for name in metrics:
      if name in _RUN_COLUMNS or not re.fullmatch(r'[\w./-]+', name):
        raise config.ConfigError(
            f'{method} returns a metric {name!r}: expected a name of letters, digits, _, '
            f'., / and - that is none of {", ".join(_RUN_COLUMNS)}')

  # A run.

  def check_resumes(self, checkpoint: str, agent: agent_lib.Agent) -> None:
    """Raises a `ConfigError` if a checkpoint's run has learned from other data."""

  @property
  @abc.abstractmethod
  def description(self) -> str:
    """A short description of the training, shown after the name of the folder."""

  @abc.abstractmethod
  def make_console(self) -> console.Console:
    """Makes the line that shows how far training has come."""

  def restore_policy(self, folder: run_folder.RunFolder) -> Any:
    """Returns the policy of a run; here the exported one."""
    if not folder.policy.exists():
      raise config.ConfigError(
          f'{folder.policy} does not exist: a run writes it when it is done, and '
          '`gtrxl export` at any time')
    return exported.load(folder.policy, specs=(self.observation_spec, self.action_spec))

  def evaluate(self, folder: run_folder.RunFolder, should_stop: Callable[[], bool]
               ) -> Optional[evaluation_lib.Evaluation]:
    """Plays with the policy of a finished run; returns None if it should stop."""
    with contextlib.closing(
        self.make_evaluator(self.restore_policy(folder), folder)) as evaluator:
      return evaluator.evaluate(should_stop, after_training=True)

  def evaluate_best(self, folder: run_folder.RunFolder, should_stop: Callable[[], bool]
                    ) -> Optional[evaluation_lib.Evaluation]:
    """Plays new episodes with the best policy of a finished run, if it was kept."""
    if not folder.best.exists():
      return None
    with contextlib.closing(
        self.make_evaluator(self.best_policy(folder), number=1)) as evaluator:
      return evaluator.evaluate(should_stop)

  def best_policy(self, folder: run_folder.RunFolder) -> Any:
    """Returns the policy of a run's best evaluation, or else that of its last weights."""
    if not folder.best.exists():
      return self.restore_policy(folder)
    return exported.load(folder.best, specs=(self.observation_spec, self.action_spec))

  def describe(self, folder: run_folder.RunFolder,
               evaluation: evaluation_lib.Evaluation, informed: Optional[float]) -> str:
    """Describes a finished run for a person, by the evaluation at its end."""
    del folder
    return evaluation_lib.describe(
        evaluation, informed, self.task_names,
        self.compute_scores(evaluation.returns, evaluation.tasks))
