"""Experiments in which actors play while a learner trains."""

import functools
import math
import pathlib
from typing import Any, Dict, Literal, Optional, Tuple

import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf.agents import agent as agent_lib
from gtrxl_tf.agents import policy as policy_lib
from gtrxl_tf.agents import r2d2
from gtrxl_tf.agents import vmpo
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.replay import packed_weights
from gtrxl_tf.replay import prioritized
from gtrxl_tf.replay import unroll
from gtrxl_tf.settings import config
from gtrxl_tf.training import checkpoints as checkpoints_lib
from gtrxl_tf.training import console
from gtrxl_tf.training import devices
from gtrxl_tf.training import experiment
from gtrxl_tf.training import learner
from gtrxl_tf.training import optimizers
from gtrxl_tf.training.online import placement


@config.configurable
class OnlineExperiment(experiment.Experiment):
  """An experiment with actors, a queue and a learner.

  `Experiment.environment` must be set. `Experiment.network` makes an `ActorCritic` for
  an `action_spec`; `Experiment.agent` makes an `OnlineAgent` from two such networks, an
  `online` one, which learns, and a `target` one, a copy that lags. The defaults are
  `ActorCritic`, `VMPOAgent` and `Adam`.

  If there are several tasks, the same number of environments plays each. Network and
  agent have one value function for each task (`num_values`), but the policy is not told
  which task it plays. Actors run at their own pace, so two runs with the same seed are
  similar but not identical, except with `num_actors = 0`.

  Args:
    environment_steps: how many actions the run takes; or frames, see the next setting.
    frames_per_action: the environment's action repeat if `environment_steps` counts
      frames; 1 if it counts actions. The attribute `environment_steps`, all logs and
      curves count actions.
    unroll_length: T, actions of an unroll (GTrXL: 95).
    batch_size: unrolls of a learner step (GTrXL: 128).
    num_epochs: how often a learner step uses each unroll of its batch. More than one
      learns from fewer environment steps; the papers use each once. A learner step
      counts as one whatever its number of gradient steps: in the age of data, the
      target update period, checkpoints and the log. An unroll is still in a single
      batch, and checkpoints are saved between batches.
    num_minibatches: gradient steps of an epoch, each on an equal share of the unrolls
      (V-MPO: 1). It divides the unrolls of a replica.
    num_actors: how many actor processes there are, even if they are started one by one.
      With 0 the learner's process also acts: it plays until it has a batch, learns from
      it, and so on. Two runs with the same seed are then equal. It needs no second
      process, so it works in a notebook, in a debugger and on systems without fork.
    environments_per_actor: environments that an actor steps in one batch; it divides
      `batch_size`, because an actor's unrolls travel together. The paper does not give
      it; with 32 a small network's step is efficient.
    max_head_start: each environment of an actor begins with up to this many random
      actions. Without them, episodes of fixed length would begin and end at the same
      time in all environments; the paper has too many actors for that.
    queue_batches: batches that may wait in the queue before actors wait. Not in the
      paper; the smallest number keeps the data freshest.
    max_age: learner steps after which an unroll is too old to be trained on, counted
      from when its weights were published. Not in the paper; by default
      `batches_per_weights` if that is set, and else the agent's.
    batches_per_weights: how many batches the actors make with the same weights before
      they wait for newer ones; None: they never wait, as in the papers. With 1, an agent
      that publishes after every learner step learns on-policy: acting and learning take
      turns, and a batch is first used with the weights that acted in all of it. The
      actors share these batches equally, so `num_actors` divides `batches_per_weights`
      x `batch_size` / `environments_per_actor`. After half a minute without newer
      weights an actor acts again with those it has, since an unroll may have been lost.
      If none was, `max_age` refuses the additional ones.
    stall_seconds: seconds without a usable unroll after which a warning says what the
      learner waits for, and its health check fails. An actor without an unroll warns,
      too. A part that hangs in a single call for three times as long ends, and is
      started again. Not in the paper; ten minutes are more than a first step takes to
      compile.
    replay: the table that an off-policy agent, such as R2D2, samples from; None for the
      others, which use each unroll of the queue once.
    exploration: how the actors of such an agent explore. Evaluators and the exported
      policy then take the best action.
    num_evaluations: evaluations by the learner's process during training, at equal
      distances, of 50 episodes a task. They decide which weights `Checkpoints.keep`
      keeps. Not in the papers; ten show a policy that unlearns. Several workers, and
      runs with an `evaluator`, have none.
    evaluator: whether `gtrxl train` plays with the newest weights during training,
      which takes processor time from the other parts.
    transfer_dtype: the type in which weights and records of memory travel between
      processes. With `bfloat16` they have half the bytes, and 8 significant bits. Networks
      still compute in float32, and the learner keeps its weights; statistics are not
      rounded. The policy that acts then differs a little from the learner's
      (docs/performance.md); an unroll holds the one that acted. Not in the papers.
    transport: how unrolls and weights travel between the processes that `gtrxl train`
      starts: through memory that they share, or through a Reverb server, as between
      processes on several machines.
    inference: where inference servers act for the actors, which then only step
      environments; None: each actor acts with a network of its own.
    **shared: the settings of `Experiment`.
  """
  kind = 'OnlineExperiment'
  is_online = True
  default_network = actor_critic.ActorCritic
  default_agent = vmpo.VMPOAgent
  default_optimizer = optimizers.Adam

  def __init__(
      self,
      environment_steps: config.PositiveInt = 1_000_000,
      frames_per_action: config.PositiveInt = 1,
      unroll_length: config.NumSteps = 95,
      batch_size: config.PositiveInt = 128,
      num_epochs: config.PositiveInt = 1,
      num_minibatches: config.PositiveInt = 1,
      num_actors: config.NonNegativeInt = 1,
      environments_per_actor: config.PositiveInt = 32,
      max_head_start: config.NonNegativeInt = 0,
      queue_batches: config.PositiveInt = 1,
      max_age: Optional[config.PositiveInt] = None,
      batches_per_weights: Optional[config.PositiveInt] = None,
      stall_seconds: config.PositiveFloat = 600.0,
      transfer_dtype: Literal['float32', 'bfloat16'] = 'float32',
      transport: Literal['memory', 'reverb'] = 'memory',
      num_evaluations: config.NonNegativeInt = 10,
      evaluator: bool = False,
      inference: Optional[placement.Inference] = None,
      replay: Optional[prioritized.Replay] = None,
      exploration: Optional[r2d2.EpsilonGreedy] = None,
      **shared):
    self.takes_turns = not num_actors
    if self.takes_turns and (evaluator or inference):
      raise config.ConfigError(
          'OnlineExperiment.num_actors = 0: expected at least 1 with '
          f'OnlineExperiment.{"evaluator" if evaluator else "inference"}, which needs '
          'processes')
    num_actors = max(1, num_actors)
    if batch_size % environments_per_actor:
      raise config.ConfigError(
          f'OnlineExperiment.batch_size = {batch_size}: expected a multiple of '
          f'OnlineExperiment.environments_per_actor = {environments_per_actor}')
    if batch_size % num_minibatches:
      raise config.ConfigError(
          f'OnlineExperiment.batch_size = {batch_size}: expected a multiple of '
          f'OnlineExperiment.num_minibatches = {num_minibatches}')
    super().__init__(**shared)
    if self.optimizer.ema_momentum:
      raise config.ConfigError(
          f'{config.name_of(type(self.optimizer))}.ema_momentum = '
          f'{self.optimizer.ema_momentum}: expected 0.0 with an OnlineExperiment, '
          'whose actors play with the weights of its agent')
    if num_actors * environments_per_actor % len(self._task_settings):
      raise config.ConfigError(
          f'Experiment.tasks has {len(self._task_settings)} values: expected a divisor '
          'of OnlineExperiment.num_actors x OnlineExperiment.environments_per_actor = '
          f'{num_actors} x {environments_per_actor}, so that every task has the same '
          'share of the data')
    items = (batches_per_weights or 0) * batch_size // environments_per_actor
    if items % num_actors:
      raise config.ConfigError(
          f'OnlineExperiment.num_actors = {num_actors}: expected a divisor of '
          'OnlineExperiment.batches_per_weights x OnlineExperiment.batch_size / '
          f'OnlineExperiment.environments_per_actor = {batches_per_weights} x {batch_size} '
          f'/ {environments_per_actor} = {items}, so that all actors make equally many '
          'unrolls before they wait')
    if inference and (inference.max_batch or math.inf) < environments_per_actor:
      raise config.ConfigError(
          f'Inference.max_batch = {inference.max_batch}: expected at least '
          f'OnlineExperiment.environments_per_actor = {environments_per_actor}')
    new_unrolls = batch_size
    if replay:
      new_unrolls = replay.unrolls_per_step or batch_size
      _check_replay(replay, new_unrolls, unroll_length, environments_per_actor,
                    environment_steps, frames_per_action, {
                        'batches_per_weights': (batches_per_weights, None),
                        'max_age': (max_age, None),
                        # Its policy has no rates of exploration.
                        'inference': (inference and '@Inference()', None),
                        'num_minibatches': (num_minibatches, 1)})
    self.environment_steps = math.ceil(environment_steps / frames_per_action)
    self.unroll_length = unroll_length
    self.batch_size = batch_size
    self.num_epochs = num_epochs
    self.num_minibatches = num_minibatches
    self.num_actors = num_actors
    self.environments_per_actor = environments_per_actor
    self.max_head_start = max_head_start
    self.items_per_batch = batch_size // environments_per_actor
    self.new_items = new_unrolls // environments_per_actor  # For each learner step.
    self.queue_size = queue_batches * self.new_items
    self.batches_per_weights = batches_per_weights
    self.unrolls_per_weights = items // num_actors or None
    self.stall_seconds = stall_seconds
    self.half_transfer = transfer_dtype == 'bfloat16'
    self.transport = transport
    self.num_evaluations = num_evaluations
    self.evaluator = evaluator
    self.inference = inference
    self.replay = replay
    self.overlap = replay.overlap if replay else 0  # Actions that unrolls share.
    self.exploration = exploration
    self._max_age = max_age

  @functools.cached_property
  def acting_network(self) -> actor_critic.ActorCritic:
    """A network with variables, one for each process that acts."""
    return self.make_network()

  def make_network(self) -> actor_critic.ActorCritic:
    """Makes another network with variables."""
    num_tasks = len(self._task_settings)
    network = self._network(action_spec=self.action_spec,
                            **({'num_values': num_tasks} if num_tasks > 1 else {}))
    core = network.core
    if core.segment_length > 1 or isinstance(core, cores.RATE):
      raise config.ConfigError(
          f'ActorCritic.core = {type(core).__name__} works in segments: expected a '
          'core that does not, such as TransformerXL, in an '
          'OnlineExperiment, whose unrolls do not begin where segments do')
    if core.drops:
      name = type(core).__name__
      raise config.ConfigError(
          f'{name}.dropout or {name}.attention_dropout is not 0: expected 0 in an '
          'OnlineExperiment, whose agents drop nothing')
    network.create_variables(self.observation_spec)
    return network

  def make_agent(self) -> agent_lib.OnlineAgent:
    # tf.random.set_seed does not reach the initializers of Keras.
    tf.keras.utils.set_random_seed(self.seed)
    with devices.compute_dtype(self.compute_dtype):
      online = self.make_network()
    agent = self._agent(online=online, target=self.make_network())
    for name, needed in ('replay', '@Replay()'), ('exploration', '@EpsilonGreedy()'):
      given = getattr(self, name)
      if (given is not None) != agent.from_replay:
        raise config.ConfigError(
            f'OnlineExperiment.{name} = {given and config.name_of(type(given))}: '
            f'expected {needed if agent.from_replay else None} with the agent '
            f'{config.name_of(type(agent))}')
    period = agent.publish_period
    for name, given in (('batches_per_weights', self.batches_per_weights),
                        ('max_age', self._max_age)):
      if given is not None and given < period:  # The learner would wait for ever.
        raise config.ConfigError(
            f'OnlineExperiment.{name} = {given}: expected at least {period}, the learner '
            'steps until the agent publishes newer weights')
    return agent

  def make_optimizer(self, progress: Optional[tf.Variable] = None
                     ) -> learner.Optimizer:
    """Makes the optimizer.

    Args:
      progress: the share of the run that is over. Schedules follow it since the number
        of learner steps is not known: the first row of an episode is not an environment
        step. None if the optimizer is not for a run.
    """
    new_steps = self.new_items * self.environments_per_actor * (
        self.unroll_length - self.overlap)
    batches = math.ceil(self.environment_steps / new_steps)
    return self.optimizer.make(
        batches * self.num_epochs * self.num_minibatches, progress)

  def restore_agent(self, checkpoints: pathlib.Path) -> agent_lib.OnlineAgent:
    agent = self.make_agent()
    checkpoints_lib.restore_agent(checkpoints, agent)
    return agent

  def learned_network(self, agent: agent_lib.OnlineAgent) -> tf.keras.layers.Layer:
    return agent.acting_network

  def max_age(self, agent: agent_lib.OnlineAgent) -> float:
    """Returns the bound on the age of data, in learner steps."""
    if self.replay:
      return math.inf
    return self._max_age or self.batches_per_weights or agent.default_max_age

  def make_policy(self, network: actor_critic.ActorCritic, greedy: bool = False,
                  with_record: bool = False, actor: Optional[int] = None
                  ) -> policy_lib.ActorCriticPolicy:
    """Makes a policy that acts with `network`; see `ActorCriticPolicy`.

    Args:
      network: the network that acts.
      greedy: whether to take the most likely action. With `exploration`, all policies
        do but those of actors.
      with_record: whether a step's `info` has the core's record.
      actor: the index of the actor that plays with it.
    """
    if self.exploration and actor is not None:
      num = self.environments_per_actor
      first = actor % self.num_actors * num  # One started by hand may have any index.
      return r2d2.EpsilonGreedyPolicy(
          self.exploration.rates(first, num, self.num_actors * num, len(self.task_names)),
          network, self.observation_spec, self.action_spec, with_record,
          self.half_transfer)
    return policy_lib.ActorCriticPolicy(
        network, self.observation_spec, self.action_spec,
        greedy or self.exploration is not None, with_record, self.half_transfer)

  @property
  def memory_length(self) -> int:
    """M: the number of records that an unroll refers to."""
    return self.acting_network.core.memory_length

  def row_spec(self) -> unroll.Unroll:
    """Returns the specs of the rows that an actor writes at every step, `[E, ...]`."""
    num = self.environments_per_actor

    def batched(spec: Any) -> tf.TensorSpec:
      return tf.TensorSpec((num, *spec.shape), spec.dtype)

    policy = self.make_policy(self.acting_network, with_record=True)
    scalars = tf.TensorSpec((num,), tf.float32)
    return unroll.Unroll(
        observation=tf.nest.map_structure(batched, self.observation_spec),
        step_type=tf.TensorSpec((num,), tf.int32), reward=scalars, discount=scalars,
        action=tf.nest.map_structure(batched, policy.policy_state_spec.previous_action),
        policy=tf.nest.map_structure(batched, policy.info_spec.policy),
        record=tf.nest.map_structure(batched, policy.info_spec.record),
        episode_return=scalars, episode_success=scalars,
        task=tf.TensorSpec((num,), tf.int32),
        target_step=tf.TensorSpec((), tf.int64), unroll_id=tf.TensorSpec((), tf.int64))

  @functools.cached_property
  def layout(self) -> unroll.Layout:
    """What the processes of the run exchange."""
    return unroll.Layout(
        self.row_spec(), self.unroll_length, self.memory_length, self.overlap,
        self.queue_size, self.num_actors,
        packed_weights.specs(self.acting_network.variables, self.half_transfer),
        self.half_transfer)

  def unroll_signature(self) -> unroll.Unroll:
    """Returns the specs of an item of the queue."""
    return self.layout.signature

  def make_batch(self, agent: agent_lib.OnlineAgent) -> Any:
    """Makes one unroll of zeros, `[1, time, ...]`, as the agent's loss takes it."""
    del agent

    def zeros(spec: tf.TensorSpec) -> tf.Tensor:
      return tf.zeros((1, spec.shape[0], *spec.shape[2:]), spec.dtype)

    made = tf.nest.map_structure(zeros, self.unroll_signature())
    return unroll.Sample(made, tf.ones([1])) if self.replay else made

  def describe_row(self, batch: Any) -> str:
    del batch
    return f'{self.unroll_length} + {self.memory_length}'

  @property
  def description(self) -> str:
    acts = '' if self.inference is None else f', for which {self.inference.description}'
    if self.takes_turns:
      return (f'{self.environments_per_actor} environments and the learner take turns in '
              'one process')
    server = '1 server, ' if self.transport == 'reverb' else ''
    return (f'{server}1 learner, {self.num_actors} actor(s) of '
            f'{self.environments_per_actor} environments{acts}')

  def make_console(self) -> console.Console:
    return console.Console(self.environment_steps)


def _check_replay(replay: prioritized.Replay, new_unrolls: int, unroll_length: int,
                  environments: int, environment_steps: int, frames_per_action: int,
                  fixed: Dict[str, Tuple[Any, Any]]) -> None:
  """Refuses settings that do not fit a replay table; `fixed` has given and expected."""
  for name, (value, expected) in fixed.items():
    if value != expected:
      raise config.ConfigError(
          f'OnlineExperiment.{name} = {value}: expected {expected} with '
          'OnlineExperiment.replay')
  if new_unrolls % environments:
    raise config.ConfigError(
        f'Replay.unrolls_per_step = {new_unrolls}: expected a multiple of '
        f'OnlineExperiment.environments_per_actor = {environments}')
  if replay.overlap >= unroll_length:
    raise config.ConfigError(
        f'Replay.overlap = {replay.overlap}: expected less than '
        f'OnlineExperiment.unroll_length = {unroll_length}')
  first = replay.min_unrolls * (unroll_length - replay.overlap) * frames_per_action
  if environment_steps < first:
    raise config.ConfigError(
        f'OnlineExperiment.environment_steps = {environment_steps}: expected at least '
        f'{first}, the steps of Replay.min_unrolls = {replay.min_unrolls}')
