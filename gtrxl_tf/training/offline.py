"""Trains on recorded episodes: from a dataset to a policy, an evaluation and a curve."""

import math
import time
from typing import Any, Callable, Dict, Iterator, Optional

import dm_env
import numpy as np
import tensorflow as tf

from gtrxl_tf import config
from gtrxl_tf import datasets
from gtrxl_tf import environments
from gtrxl_tf.agents.decision import agent as agent_lib
from gtrxl_tf.agents.decision import network as network_lib
from gtrxl_tf.agents.decision import policy as policy_lib
from gtrxl_tf.serving import export
from gtrxl_tf.training import evaluation as evaluation_lib
from gtrxl_tf.training import learner as learner_lib
from gtrxl_tf.training import run_folder


@config.configurable
class OfflineExperiment:
  """A decision agent that learns from a dataset and is judged by playing.

  Args:
    dataset: folder of a dataset that `binaries.collect` or an importer wrote.
    environment: makes an environment; called with `seed`.
    network: makes a network for an `action_spec`.
    policy: makes a policy of a network, its `observation_spec` and `action_spec`.
    learner_steps: how long to train.
    segment_length: K, steps a segment.
    num_segments: N, segments a trajectory in training.
    batch_size: trajectories a learner step.
    learning_rate: AdamW's.
    weight_decay: AdamW's.
    beta_1: AdamW's.
    beta_2: AdamW's.
    warmup_steps: learner steps over which the learning rate rises from 0.
    final_learning_rate: the share of the learning rate that is left at the end; it
      falls linearly after the warm-up.
    clip_norm: of the gradient.
    return_scale: returns are divided by it, in training and in acting.
    evaluation_period: learner steps between evaluations; None for one at the end.
    evaluation_episodes: episodes an evaluation.
    checkpoint_period: learner steps between checkpoints.
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
      policy: Callable[..., policy_lib.DecisionPolicy] = policy_lib.DecisionPolicy,
      learner_steps: config.PositiveInt = 10_000,
      segment_length: config.PositiveInt = 30,
      num_segments: config.PositiveInt = 3,
      batch_size: config.PositiveInt = 64,
      learning_rate: config.PositiveFloat = 3e-4,
      weight_decay: config.NonNegativeFloat = 0.1,
      beta_1: config.UnitInterval = 0.9,
      beta_2: config.UnitInterval = 0.95,
      warmup_steps: config.NonNegativeInt = 100,
      final_learning_rate: config.UnitInterval = 0.1,
      clip_norm: config.PositiveFloat = 1.0,
      return_scale: config.PositiveFloat = 1.0,
      evaluation_period: Optional[config.PositiveInt] = None,
      evaluation_episodes: config.PositiveInt = 100,
      checkpoint_period: config.PositiveInt = 1000,
      log_period: config.PositiveInt = 20,
      seed: config.NonNegativeInt = 0):
    self.dataset = datasets.check(dataset)
    self.learner_steps = learner_steps
    self.evaluation_period = evaluation_period or learner_steps
    self.evaluation_episodes = evaluation_episodes
    self.checkpoint_period = checkpoint_period
    self.log_period = log_period
    self.clip_norm = clip_norm
    self.seed = seed
    self._environment = environment
    self._network = network
    self._policy = policy
    self._segment_length = segment_length
    self._num_segments = num_segments
    self._batch_size = batch_size
    self._return_scale = return_scale
    self._optimizer = dict(
        learning_rate=_WarmUpAndDecay(
            learning_rate, warmup_steps, learner_steps, final_learning_rate),
        weight_decay=weight_decay, beta_1=beta_1, beta_2=beta_2, epsilon=1e-8)
    played = self._environment(seed=seed)
    self.observation_spec = played.observation_spec()
    self.action_spec = played.action_spec()
    played.close()
    self._check_specs()

  def _check_specs(self) -> None:
    """The dataset's shapes are those of the environment that judges."""
    shapes = lambda nest: tf.nest.map_structure(
        lambda spec: (tuple(spec.shape), np.dtype(spec.dtype).name), nest)
    for kind in ('observation', 'action'):
      found = shapes(getattr(self.dataset, f'{kind}_spec')())
      expected = shapes(getattr(self, f'{kind}_spec'))
      if found != expected:
        raise config.ConfigError(
            f'OfflineExperiment.dataset has {kind}s {found}: expected those of '
            f'OfflineExperiment.environment, {expected}')

  def make_agent(self) -> agent_lib.DecisionAgent:
    """An agent with a new network."""
    tf.keras.utils.set_random_seed(self.seed)
    network = self._network(action_spec=self.action_spec)
    network.create_variables(self.observation_spec)
    return agent_lib.DecisionAgent(network)

  def make_optimizer(self) -> tf.keras.optimizers.Optimizer:
    return tf.keras.optimizers.AdamW(**self._optimizer)

  def make_policy(self, network: network_lib.DecisionNetwork
                  ) -> policy_lib.DecisionPolicy:
    """A policy that acts with `network`."""
    return self._policy(network, self.observation_spec, self.action_spec,
                        return_scale=self._return_scale)

  def make_environments(self) -> environments.BatchedEnvironment:
    """Those that the policy is judged in, the same at every evaluation."""
    count = min(self.evaluation_episodes, evaluation_lib.NUM_ENVIRONMENTS)
    seeds = np.random.SeedSequence(
        [self.seed, evaluation_lib.STREAM]).generate_state(count)
    return environments.BatchedEnvironment(
        [self._environment(seed=int(seed)) for seed in seeds])

  def informed_return(self, num_episodes: int = 100) -> Optional[float]:
    """Mean return of the environment's informed policy, if it has one."""
    environment = self._environment(seed=self.seed)
    if not isinstance(environment, environments.MemoryTask):
      return None
    return environments.informed_return(environment, num_episodes)

  def batches(self, agent: agent_lib.DecisionAgent, first_batch: int = 0
              ) -> Iterator[agent_lib.Segments]:
    """What the learner learns from, from batch number `first_batch` on."""
    space = agent.network.action_space
    for batch in datasets.segments(
        self.dataset, self._segment_length, self._num_segments, self._batch_size,
        self.seed, first_batch=first_batch):
      is_first = np.zeros(batch.mask.shape, bool)
      is_first[:, 0] = True
      yield agent_lib.Segments(
          return_to_go=tf.constant(batch.return_to_go / self._return_scale),
          observation=tf.nest.map_structure(tf.constant, batch.observation),
          action=space.from_environment(batch.action),
          is_first=tf.constant(is_first), valid=tf.constant(batch.mask))


class _WarmUpAndDecay(tf.keras.optimizers.schedules.LearningRateSchedule):
  """Rises linearly, and falls linearly to a share of its height."""

  def __init__(self, peak: float, warmup_steps: int, total_steps: int, final: float):
    self._settings = dict(peak=peak, warmup_steps=warmup_steps,
                          total_steps=total_steps, final=final)

  def __call__(self, step):
    peak, warmup, total, final = self._settings.values()
    step = tf.cast(step, tf.float32)
    rise = (step + 1) / max(warmup, 1)
    fall = 1 - (1 - final) * (step - warmup) / max(total - warmup, 1)
    return peak * tf.minimum(1., tf.minimum(rise, fall))

  def get_config(self) -> Dict[str, Any]:
    return self._settings


class OfflineTraining:
  """Trains an offline experiment in this process, and judges it from time to time."""

  def __init__(self, experiment: OfflineExperiment, folder: run_folder.RunFolder,
               strategy: tf.distribute.Strategy):
    """Creates agent and learner, and restores the newest checkpoint if there is one."""
    self._experiment = experiment
    self._folder = folder
    with strategy.scope():
      self._agent = experiment.make_agent()
      optimizer = experiment.make_optimizer()
    self._learner = learner_lib.Learner(
        self._agent, optimizer, strategy, experiment.clip_norm)
    self._seconds = tf.Variable(0.0, dtype=tf.float64)
    self._checkpoints = tf.train.CheckpointManager(
        tf.train.Checkpoint(agent=self._agent, optimizer=optimizer,
                            seconds=self._seconds),
        str(folder.checkpoints), max_to_keep=1)
    self._checkpoints.restore_or_initialize()
    self._step = int(self._learner.steps)
    self._metrics = run_folder.MetricsWriter(folder.metrics, self._step)
    self._evaluator = evaluation_lib.Evaluator(
        experiment.make_policy(self._agent.network), experiment.make_environments())

  def run(self, should_stop: Callable[[], bool], show: Callable[[str], None]) -> bool:
    """Trains to the end; returns whether it came to it or was told to stop."""
    experiment = self._experiment
    started = time.time() - float(self._seconds)
    batches = experiment.batches(self._agent, first_batch=self._step)
    while self._step < experiment.learner_steps and not should_stop():
      metrics = self._learner.step(next(batches))
      self._step += 1
      evaluates = (self._step % experiment.evaluation_period == 0
                   or self._step == experiment.learner_steps)
      if evaluates or self._step % experiment.log_period == 0:
        values = {name: float(value) for name, value in metrics.items()}
        if not all(map(math.isfinite, values.values())):
          raise FloatingPointError(
              f'loss or gradient is not finite at learner step {self._step}: {values}')
        played = self._evaluate() if evaluates else {}
        row = {'learner_step': self._step, 'seconds': time.time() - started, **values,
               'return': math.nan, 'success': math.nan, **played}
        self._metrics.append(row)
        show(f'{self._step:,} of {experiment.learner_steps:,} steps | '
             f'loss {values["loss"]:.4f}' + ''.join(
                 f' | {name} {value:.2f}' for name, value in played.items()))
      if self._step % experiment.checkpoint_period == 0:
        self._save(started)
    self._save(started)
    return self._step >= experiment.learner_steps

  def _evaluate(self) -> Dict[str, float]:
    played = self._evaluator.play(self._experiment.evaluation_episodes)
    return {'return': float(np.mean(played.returns)),
            'success': float(np.mean(played.successes))}

  def _save(self, started: float) -> None:
    self._seconds.assign(time.time() - started)
    self._checkpoints.save(checkpoint_number=self._step)

  def export(self) -> None:
    """Writes the policy to `policy/`."""
    export.save_policy(
        self._experiment.make_policy(self._agent.network), self._folder.policy)
