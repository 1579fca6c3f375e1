"""An online experiment: its settings, and its parts as each process needs them."""

import functools
import pathlib
from typing import Any, Callable, Literal, Mapping, Optional, Sequence

import dm_env
import tensorflow as tf

from gtrxl_tf import config
from gtrxl_tf import cores
from gtrxl_tf.agents import policy as policy_lib
from gtrxl_tf.agents.vmpo import agent as vmpo_agent
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.replay import unroll as unroll_lib
from gtrxl_tf.training import checkpoints as checkpoints_lib
from gtrxl_tf.training import devices
from gtrxl_tf.training import tasks as tasks_lib


@config.configurable
class Experiment(tasks_lib.TaskExperiment):
  """One agent on one environment, with actors, a queue and a learner.

  Every process of a run makes it from the same settings. Nothing is started and
  nothing is written by making it: a setting that cannot be used shows here.

  Args:
    environment: makes an environment; called with `seed`. Any `dm_env.Environment`.
    network: makes a network for an `action_spec`, and of several tasks for as many
      `num_values`; by default an `ActorCritic`.
    agent: makes an agent from an online and a target network.
    tasks: several tasks in one run: the setting of `environment` in which they differ,
      and its values, as in `{'level': ('rooms_watermaze', 'skymaze')}`. The run's
      environments play them in turn; network and agent see `num_values` value
      functions, one a task, but the policy is not told which task it plays.
    score: from the mean return of each task, by the value's name, to one number.
    environment_steps: how many actions the run takes.
    unroll_length: T, actions an unroll (the paper's 95).
    batch_size: unrolls a learner step (the paper's 128).
    num_actors: actor processes.
    environments_per_actor: environments that an actor steps in one batch; it divides
      `batch_size`, since an actor's unrolls travel together. The paper does not say;
      32 keep a small network's step busy.
    max_head_start: environments of an actor have up to so many random actions behind
      them when it begins, each another number. For episodes of fixed length, which
      otherwise begin and end together for ever: the paper's actors are too many to.
    learning_rate: Adam's (V-MPO: 1e-4, with its other settings as TensorFlow has them).
    queue_batches: batches that may wait in the queue before actors do. Not in the
      paper; the smallest keeps data newest.
    max_age: learner steps after which an unroll is too old to be trained on, counted
      since its weights were the newest target network's. Not in the paper; by default
      twice the target update period.
    checkpoint_period: learner steps between checkpoints.
    checkpoints_kept: how many of the newest are kept.
    keep_checkpoint_every_hours: of the older ones, one in so many hours is kept for
      ever; None for none of them.
    log_period: learner steps between rows of `metrics.csv`.
    stall_seconds: after how long without a learner step a warning says what the learner
      waits for, and its health check fails. Not in the paper; ten minutes are more than
      a first step takes to compile.
    evaluator: whether `binaries.train` plays with the newest weights while it trains,
      which takes time from the rest of the machine.
    evaluation_episodes: episodes an evaluation, while or when training is done.
    compute_dtype: what the network that learns computes in. Its variables, losses, duals
      and statistics are float32 in either, and so are networks that act.
    seed: of networks, environments and actions. Actors run at their own pace, so two
      runs of one seed are alike but not equal.
  """

  def __init__(
      self,
      environment: Callable[..., dm_env.Environment],
      network: Callable[..., actor_critic.ActorCritic] = actor_critic.ActorCritic,
      agent: Callable[..., vmpo_agent.VMPOAgent] = vmpo_agent.VMPOAgent,
      tasks: Optional[Mapping[str, Sequence[Any]]] = None,
      score: Optional[Callable[[Mapping[str, float]], float]] = None,
      environment_steps: config.PositiveInt = 1_000_000,
      unroll_length: config.PositiveInt = 95,
      batch_size: config.PositiveInt = 128,
      num_actors: config.PositiveInt = 1,
      environments_per_actor: config.PositiveInt = 32,
      max_head_start: config.NonNegativeInt = 0,
      learning_rate: config.PositiveFloat = 1e-4,
      queue_batches: config.PositiveInt = 1,
      max_age: Optional[config.PositiveInt] = None,
      checkpoint_period: config.PositiveInt = 100,
      checkpoints_kept: config.PositiveInt = 3,
      keep_checkpoint_every_hours: Optional[config.PositiveFloat] = None,
      log_period: config.PositiveInt = 10,
      stall_seconds: config.PositiveFloat = 600.0,
      evaluator: bool = False,
      evaluation_episodes: config.PositiveInt = 100,
      compute_dtype: Literal['float32', 'bfloat16'] = 'float32',
      seed: config.NonNegativeInt = 0):
    if batch_size % environments_per_actor:
      raise config.ConfigError(
          f'Experiment.batch_size = {batch_size}: expected a multiple of '
          f'Experiment.environments_per_actor = {environments_per_actor}')
    super().__init__(environment, tasks, score, evaluation_episodes, seed)
    if len(self._task_settings) > num_actors * environments_per_actor:
      raise config.ConfigError(
          f'Experiment.tasks has {len(self._task_settings)} values: expected no more '
          f'than there are environments, {num_actors} x {environments_per_actor}')
    self.environment_steps = environment_steps
    self.unroll_length = unroll_length
    self.batch_size = batch_size
    self.num_actors = num_actors
    self.environments_per_actor = environments_per_actor
    self.max_head_start = max_head_start
    self.items_per_batch = batch_size // environments_per_actor
    self.queue_size = queue_batches * self.items_per_batch
    self.checkpoint_period = checkpoint_period
    self.checkpoints_kept = checkpoints_kept
    self.keep_checkpoint_every_hours = keep_checkpoint_every_hours
    self.evaluator = evaluator
    self.compute_dtype = compute_dtype
    self.log_period = log_period
    self.stall_seconds = stall_seconds
    self._network = network
    self._agent = agent
    self._learning_rate = learning_rate
    self._max_age = max_age

  @functools.cached_property
  def acting_network(self) -> actor_critic.ActorCritic:
    """A network with variables, one for each process that acts."""
    return self._make_network()

  def _make_network(self) -> actor_critic.ActorCritic:
    num_tasks = len(self._task_settings)
    network = self._network(action_spec=self.action_spec,
                            **({'num_values': num_tasks} if num_tasks > 1 else {}))
    core = network.core
    if core.segment_length > 1 or isinstance(core, cores.RATE):
      raise config.ConfigError(
          f'ActorCritic.core = {type(core).__name__} works in segments: expected a core '
          'that does not, such as TransformerXL with recurrence "xl", in an Experiment, '
          'whose unrolls share a step and so do not start where segments do')
    network.create_variables(self.observation_spec)
    return network

  def make_agent(self) -> vmpo_agent.VMPOAgent:
    """An agent with new networks."""
    # Not tf.random.set_seed, which does not reach the initializers of Keras.
    tf.keras.utils.set_random_seed(self.seed)
    with devices.compute_dtype(self.compute_dtype):
      online = self._make_network()
    return self._agent(online=online, target=self._make_network())

  def restore_agent(self, checkpoints: pathlib.Path) -> vmpo_agent.VMPOAgent:
    """The agent in the newest checkpoint of a folder, see `checkpoints`."""
    agent = self.make_agent()
    checkpoints_lib.restore_agent(checkpoints, agent)
    return agent

  def check(self) -> None:
    """Computes the loss of an unroll of zeros."""
    self.make_agent().loss(self.blank_batch())

  def make_optimizer(self) -> tf.keras.optimizers.legacy.Optimizer:
    """Adam as V-MPO has it. The legacy class is one fused op a variable: it traces in
    half the time of the newer one."""
    return tf.keras.optimizers.legacy.Adam(self._learning_rate, epsilon=1e-8)

  def max_age(self, agent: vmpo_agent.VMPOAgent) -> int:
    """The bound on the age of data, in learner steps."""
    return self._max_age or 2 * agent.target_update_period

  def make_policy(self, network: actor_critic.ActorCritic, greedy: bool = False,
                  with_record: bool = False) -> policy_lib.ActorCriticPolicy:
    """A policy that acts with `network`."""
    return policy_lib.ActorCriticPolicy(
        network, self.observation_spec, self.action_spec, greedy, with_record)

  @property
  def memory_length(self) -> int:
    """M: records that an unroll refers to."""
    return self.acting_network.core.memory_length

  def row_spec(self) -> unroll_lib.Unroll:
    """Specs of what an actor writes at every step."""
    num = self.environments_per_actor
    batched = lambda spec: tf.TensorSpec((num, *spec.shape), spec.dtype)
    policy = self.make_policy(self.acting_network, with_record=True)
    scalars = tf.TensorSpec((num,), tf.float32)
    return unroll_lib.Unroll(
        observation=tf.nest.map_structure(batched, self.observation_spec),
        step_type=tf.TensorSpec((num,), tf.int32), reward=scalars, discount=scalars,
        action=tf.nest.map_structure(
            batched, policy.policy_state_spec.previous_action),
        policy=tf.nest.map_structure(batched, policy.info_spec.policy),
        record=tf.nest.map_structure(batched, policy.info_spec.record),
        episode_return=scalars, episode_success=scalars,
        task=tf.TensorSpec((num,), tf.int32),
        target_step=tf.TensorSpec((), tf.int64), unroll_id=tf.TensorSpec((), tf.int64))

  def blank_batch(self) -> unroll_lib.Unroll:
    """One unroll of zeros, `[1, time, ...]`, as an agent's loss gets them."""
    zeros = lambda spec: tf.zeros((1, spec.shape[0], *spec.shape[2:]), spec.dtype)
    return tf.nest.map_structure(zeros, unroll_lib.signature(
        self.row_spec(), self.unroll_length, self.memory_length))
