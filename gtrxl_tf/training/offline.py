"""Trains on recorded episodes: from a dataset to a policy, an evaluation and a curve."""

import math
import pathlib
import time
from typing import Any, Callable, Dict, Literal, Mapping, Optional, Sequence

import dm_env
import numpy as np
import tensorflow as tf

from gtrxl_tf import config
from gtrxl_tf import datasets
from gtrxl_tf.agents.decision import agent as agent_lib
from gtrxl_tf.agents.decision import network as network_lib
from gtrxl_tf.agents.decision import policy as policy_lib
from gtrxl_tf.serving import export
from gtrxl_tf.training import checkpoints as checkpoints_lib
from gtrxl_tf.training import devices
from gtrxl_tf.training import evaluation as evaluation_lib
from gtrxl_tf.training import learner as learner_lib
from gtrxl_tf.training import run_folder
from gtrxl_tf.training import schemes
from gtrxl_tf.training import summaries as summaries_lib
from gtrxl_tf.training import tasks as tasks_lib


@config.configurable
class OfflineExperiment(tasks_lib.TaskExperiment):
  """An agent that learns from a dataset and is judged by playing.

  Args:
    dataset: folder of a dataset that `binaries.collect` or an importer wrote.
    environment: makes an environment; called with `seed`.
    network: makes a network for an `action_spec`.
    agent: makes an agent of a network.
    policy: makes a policy of a network, its `observation_spec` and `action_spec`.
    scheme: which steps a learner step sees, see `schemes`.
    tasks: several tasks to be judged on: the setting of `environment` in which they
      differ, and its values, as in `{'corridor_length': (28, 298)}`.
    learner_steps: how long to train.
    segment_length: K, steps a segment.
    num_segments: N, segments a trajectory in training.
    batch_size: trajectories a learner step, of all replicas together.
    starts: where trajectories start, see `datasets.segments`.
    min_window_return: see `datasets.segments`.
    frame_stack: see `datasets.gather`.
    learning_rate: AdamW's.
    weight_decay: AdamW's.
    beta_1: AdamW's.
    beta_2: AdamW's.
    warmup_steps: learner steps over which the learning rate rises from 0.
    decay: how it falls after that, `linear`ly or as a `cosine`. RATE's code goes on with
      the cosine where the decay should be over, so that it rises again
      (`cyclic_cosine`).
    decay_steps: where the decay is over; by default with the training.
    final_learning_rate: the share of the learning rate that is left then.
    clip_norm: of the gradient.
    return_scale: returns are divided by it, in training and in acting.
    compute_dtype: what the network computes in while it learns; its variables, losses
      and the policy that acts are float32 in either.
    evaluation_period: learner steps between evaluations; None for one at the end.
    evaluation_episodes: episodes an evaluation, of all tasks together.
    checkpoint_period: learner steps between checkpoints.
    checkpoints_kept: how many of the newest are kept.
    keep_checkpoint_every_hours: of the older ones, one in so many hours is kept for
      ever; None for none of them.
    log_period: learner steps between rows of `metrics.csv`.
    seed: of network, batches and environments.

  The defaults are those of RATE (Table 8, T-Maze), but for `learner_steps`, which the
  paper counts in epochs.
  """

  def __init__(
      self,
      dataset: str,
      environment: Callable[..., dm_env.Environment],
      network: Callable[..., network_lib.DecisionNetwork] = network_lib.DecisionNetwork,
      agent: Callable[..., learner_lib.Agent] = agent_lib.DecisionAgent,
      policy: Callable[..., policy_lib.DecisionPolicy] = policy_lib.DecisionPolicy,
      scheme: Callable[..., schemes.Scheme] = schemes.WholeTrajectories,
      tasks: Optional[Mapping[str, Sequence[Any]]] = None,
      learner_steps: config.PositiveInt = 10_000,
      segment_length: config.PositiveInt = 30,
      num_segments: config.PositiveInt = 3,
      batch_size: config.PositiveInt = 64,
      starts: Literal['first', 'random'] = 'first',
      min_window_return: Optional[float] = None,
      frame_stack: config.PositiveInt = 1,
      learning_rate: config.PositiveFloat = 3e-4,
      weight_decay: config.NonNegativeFloat = 0.1,
      beta_1: config.UnitInterval = 0.9,
      beta_2: config.UnitInterval = 0.95,
      warmup_steps: config.NonNegativeInt = 100,
      decay: Literal['linear', 'cosine', 'cyclic_cosine'] = 'linear',
      decay_steps: Optional[config.PositiveInt] = None,
      final_learning_rate: config.UnitInterval = 0.1,
      clip_norm: config.PositiveFloat = 1.0,
      return_scale: config.PositiveFloat = 1.0,
      compute_dtype: Literal['float32', 'bfloat16'] = 'float32',
      evaluation_period: Optional[config.PositiveInt] = None,
      evaluation_episodes: config.PositiveInt = 100,
      checkpoint_period: config.PositiveInt = 1000,
      checkpoints_kept: config.PositiveInt = 3,
      keep_checkpoint_every_hours: Optional[config.PositiveFloat] = None,
      log_period: config.PositiveInt = 20,
      seed: config.NonNegativeInt = 0):
    super().__init__(environment, tasks, None, evaluation_episodes, seed)
    self.dataset = datasets.check(dataset)
    self.learner_steps = learner_steps
    self.batch_size = batch_size
    self.compute_dtype = compute_dtype
    self.evaluation_period = evaluation_period or learner_steps
    self.checkpoint_period = checkpoint_period
    self.checkpoints_kept = checkpoints_kept
    self.keep_checkpoint_every_hours = keep_checkpoint_every_hours
    self.log_period = log_period
    self.clip_norm = clip_norm
    self._network = network
    self._agent = agent
    self._policy = policy
    self._scheme = scheme
    self._trajectories = dict(
        segment_length=segment_length, num_segments=num_segments,
        batch_size=batch_size, seed=seed, return_scale=return_scale,
        frame_stack=frame_stack, starts=starts, min_window_return=min_window_return)
    self._return_scale = return_scale
    self._optimizer = dict(
        learning_rate=_WarmUpAndDecay(
            learning_rate, warmup_steps, decay, decay_steps or learner_steps,
            final_learning_rate),
        weight_decay=weight_decay, beta_1=beta_1, beta_2=beta_2, epsilon=1e-8)
    self._check_specs()

  def _check_specs(self) -> None:
    """The dataset's shapes are those of the environment that judges."""
    frames = self._trajectories['frame_stack']
    def shapes(nest, frames=1):
      stacked = lambda shape: (*shape[:-1], shape[-1] * frames) if shape else shape
      return tf.nest.map_structure(
          lambda spec: (stacked(tuple(spec.shape)), np.dtype(spec.dtype).name), nest)
    for kind, frames in (('observation', frames), ('action', 1)):
      found = shapes(getattr(self.dataset, f'{kind}_spec')(), frames)
      expected = shapes(getattr(self, f'{kind}_spec'))
      if found != expected:
        raise config.ConfigError(
            f'OfflineExperiment.dataset has {kind}s {found}: expected those of '
            f'OfflineExperiment.environment, {expected}')

  def make_agent(self) -> learner_lib.Agent:
    """An agent with a new network, which computes as it is to in training."""
    tf.keras.utils.set_random_seed(self.seed)
    with devices.compute_dtype(self.compute_dtype):
      return self._agent(self.make_network())

  def make_network(self) -> tf.keras.layers.Layer:
    """A network with variables."""
    network = self._make_network()
    network.create_variables(self.observation_spec)
    return network

  def _make_network(self) -> tf.keras.layers.Layer:
    return self._network(action_spec=self.action_spec)

  def make_optimizer(self) -> tf.keras.optimizers.Optimizer:
    """AdamW, on all variables."""
    return tf.keras.optimizers.AdamW(**self._optimizer)

  def make_policy(self, network: network_lib.DecisionNetwork
                  ) -> policy_lib.DecisionPolicy:
    """A policy that acts with `network`."""
    return self._policy(network, self.observation_spec, self.action_spec,
                        return_scale=self._return_scale)

  def make_judge(self, policy, folder: run_folder.RunFolder) -> 'EpisodeJudge':
    """What judges a policy, and writes what it has to show into a run's folder."""
    del folder
    return EpisodeJudge(self, policy)

  def make_scheme(self, agent: learner_lib.Agent) -> schemes.Scheme:
    """What gives the batches."""
    return self._scheme(self._make_trajectories(agent.network.action_space),
                        agent.network.initial_state, self.learner_steps)

  def _make_trajectories(self, space) -> schemes.Trajectories:
    return schemes.Trajectories(self.dataset, space, **self._trajectories)

  def episode(self, space, number: int) -> agent_lib.Segments:
    """The first N segments of an episode of the dataset, as a batch of one.

    Args:
      space: an `ActionSpace`.
      number: of the episode.
    """
    if number >= self.dataset.num_episodes:
      raise IndexError(f'episode {number} of {self.dataset.path}: it has '
                       f'{self.dataset.num_episodes}')
    trajectories = self._make_trajectories(space)
    length = min(int(self.dataset.lengths[number]),
                 trajectories.segment_length * trajectories.num_segments)
    return trajectories.segments(
        trajectories.gather(np.array([number]), length), np.ones(1, bool))

  def check(self) -> None:
    """Computes a loss, and makes a policy."""
    agent = self.make_agent()
    self.make_policy(agent.network)
    agent.loss(self.make_scheme(agent).batch(0))

  def restore_agent(self, checkpoints: pathlib.Path) -> learner_lib.Agent:
    """The agent in the newest checkpoint of a folder, see `checkpoints`."""
    tf.keras.utils.set_random_seed(self.seed)
    agent = self._agent(self.make_network())  # In float32: it is to act.
    checkpoints_lib.restore_agent(checkpoints, agent)
    return agent


class _WarmUpAndDecay(tf.keras.optimizers.schedules.LearningRateSchedule):
  """Rises linearly, and falls to a share of its height."""

  def __init__(self, peak: float, warmup_steps: int, decay: str, decay_steps: int,
               final: float):
    self._settings = dict(peak=peak, warmup_steps=warmup_steps, decay=decay,
                          decay_steps=decay_steps, final=final)

  def __call__(self, step):
    peak, warmup, decay, end, final = self._settings.values()
    step = tf.cast(step, tf.float32)
    rise = (step + 1) / max(warmup, 1)
    part = tf.maximum((step - warmup) / max(end - warmup, 1), 0)
    if decay != 'cyclic_cosine':
      part = tf.minimum(part, 1)
    if decay == 'linear':
      fall = 1 - (1 - final) * part
    else:  # Cut off where it is less, as in RATE and its forebears.
      fall = tf.maximum(final, 0.5 * (1 + tf.cos(math.pi * part)))
    return peak * tf.minimum(rise, fall)

  def get_config(self) -> Dict[str, Any]:
    return self._settings


class EpisodeJudge:
  """Judges a policy by episodes of an experiment's tasks.

  Attributes:
    columns: the names of what `evaluate` finds.
    evaluation: the last one.
  """

  def __init__(self, experiment: OfflineExperiment, policy: Any):
    """Compiles the policy, whose weights may change.

    Args:
      experiment: has the tasks.
      policy: a TF-Agents policy, or one that was loaded.
    """
    self.evaluation: Optional[evaluation_lib.Evaluation] = None
    self._experiment = experiment
    names = [name for name in experiment.task_names if name]
    self.columns = ['return', 'success', *(f'success_{name}' for name in names)]
    self._evaluator = evaluation_lib.Evaluator(
        policy, evaluation_lib.make_environments(experiment))

  def evaluate(self) -> Dict[str, float]:
    """Plays."""
    self.evaluation = played = self._evaluator.play(
        self._experiment.evaluation_episodes)
    successes, tasks = np.array(played.successes), np.array(played.tasks)
    of_tasks = [np.mean(successes[tasks == task])
                for task, name in enumerate(self._experiment.task_names) if name]
    return dict(zip(self.columns, map(float, [
        np.mean(played.returns), np.mean(successes), *of_tasks])))


class OfflineTraining:
  """Trains an offline experiment in this process, and judges it from time to time.

  Of several workers that train together each has such an object and the same folder.
  All make the same batches, of which each takes its share; the chief alone judges, and
  writes into the folder.

  Attributes:
    judge: has the last evaluation; None of a worker that is not the chief.
  """

  def __init__(self, experiment: OfflineExperiment, folder: run_folder.RunFolder,
               strategy: tf.distribute.Strategy):
    """Creates agent and learner, and restores the newest checkpoint if there is one.

    Raises:
      config.ConfigError: the replicas cannot share a batch, or do not go on from the
        same checkpoint.
    """
    devices.rows_per_replica(experiment.batch_size, strategy)
    self._experiment = experiment
    self._folder = folder
    self._strategy = strategy
    with strategy.scope():
      self._agent = experiment.make_agent()
      optimizer = experiment.make_optimizer()
    self._learner = learner_lib.Learner(
        self._agent, optimizer, strategy, experiment.clip_norm)
    self._scheme = experiment.make_scheme(self._agent)
    self._seconds = tf.Variable(0.0, dtype=tf.float64)
    self._checkpoints = checkpoints_lib.Checkpoints(
        folder.checkpoints, experiment.checkpoints_kept,
        experiment.keep_checkpoint_every_hours, kind=type(experiment).__name__,
        agent=self._agent, writes=devices.is_chief(strategy), optimizer=optimizer,
        scheme=self._scheme, seconds=self._seconds)
    self._checkpoints.restore()
    self._step = self._saved_step = self._learner.steps
    devices.check_equal(self._step, strategy, f'learner steps in {folder.checkpoints}')
    # What plays is in float32, and not spread over replicas.
    plain = (experiment.compute_dtype == 'float32'
             and strategy is tf.distribute.get_strategy())
    self._acting = self._agent.network if plain else experiment.make_network()
    self.judge = None
    if devices.is_chief(strategy):
      self._metrics = run_folder.MetricsWriter(folder.metrics, self._step)
      self._summaries = summaries_lib.Summaries(folder.summaries)
      self.judge = experiment.make_judge(
          experiment.make_policy(self._acting), folder)
    self._played = {}  # The means of the last evaluation.
    self._started = time.time() - float(self._seconds)
    self._previous_log = (time.time(), self._step)

  def run(self, should_stop: Callable[[], bool],
          show: Callable[[Dict[str, float]], None]) -> bool:
    """Trains to the end; returns whether it came to it or was told to stop.

    Args:
      should_stop: asked before every step.
      show: called with rows of metrics, in which return and success are those of the
        last evaluation.

    Raises:
      learner.Diverged: loss or gradient is not finite. No checkpoint was saved since it
        was.
      checkpoints.SaveFailed: the last checkpoint could not be saved.
    """
    experiment = self._experiment
    stopped = lambda: devices.any_worker(should_stop(), self._strategy)
    while self._step < experiment.learner_steps and not stopped():
      batch = devices.share_out(self._scheme.batch(self._step), self._strategy)
      metrics = self._learner.step(batch)
      self._scheme.observe(self._step, metrics)
      self._step += 1
      due = lambda period: self._step % period == 0
      ends = self._step == experiment.learner_steps
      judges = ends or due(experiment.evaluation_period)
      saves = ends or due(experiment.checkpoint_period)
      if judges or saves or due(experiment.log_period):
        metrics = self._check_finite(metrics)
        if self.judge is not None:
          self._log(metrics, self._evaluate() if judges else {}, show)
      if saves:
        self._save(last=ends)
    if self._step > self._saved_step:
      self._check_finite(metrics)
      self._save(last=True)
    devices.any_worker(False, self._strategy)  # None goes before the chief has saved.
    return self._step >= experiment.learner_steps

  def _check_finite(self, metrics) -> Dict[str, float]:
    return learner_lib.check_finite(
        metrics, self._step, self._checkpoints.latest)

  def _evaluate(self) -> Dict[str, float]:
    self._update_acting_network()
    return self.judge.evaluate()

  def _update_acting_network(self) -> None:
    if self._acting is not self._agent.network:
      for acting, learned in zip(self._acting.variables, self._agent.network.variables):
        acting.assign(learned)

  def _log(self, metrics, played, show) -> None:
    now = time.time()
    then, step_then = self._previous_log
    nothing = dict.fromkeys(self.judge.columns, math.nan)
    row = {
        'learner_step': self._step, 'seconds': now - self._started,
        **nothing, **played,
        'learner_steps_per_second': (self._step - step_then) / max(now - then, 1e-6),
        **metrics}
    self._metrics.append(row)
    self._summaries.write(self._step, row)
    self._played = played or self._played
    show({**row, **nothing, **self._played})
    self._previous_log = (time.time(), self._step)  # Without the evaluation.

  def _save(self, last: bool) -> None:
    self._seconds.assign(time.time() - self._started)
    if self._checkpoints.save(self._step, last):
      self._saved_step = self._step
    if self.judge is not None:
      self._summaries.flush()

  def export(self) -> None:
    """Writes the policy to `policy/`, if this is the chief."""
    if self.judge is not None:
      self._update_acting_network()
      export.save_policy(
          self._experiment.make_policy(self._acting), self._folder.policy)
