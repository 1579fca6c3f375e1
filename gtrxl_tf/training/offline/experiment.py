"""Experiments that learn from recorded episodes."""

import functools
import pathlib
from typing import Any, Callable, Dict, List, Literal, Optional, Tuple

from absl import logging
from dm_env import specs as dm_specs
import numpy as np
import tensorflow as tf

from gtrxl_tf import datasets
from gtrxl_tf import environments
from gtrxl_tf.agents import agent as agent_lib
from gtrxl_tf.agents import decision
from gtrxl_tf.environments import specs as specs_lib
from gtrxl_tf.networks import action_space
from gtrxl_tf.networks import decision as network_lib
from gtrxl_tf.networks import tap
from gtrxl_tf.settings import config
from gtrxl_tf.training import checkpoints as checkpoints_lib
from gtrxl_tf.training import console
from gtrxl_tf.training import devices
from gtrxl_tf.training import experiment
from gtrxl_tf.training import optimizers
from gtrxl_tf.training import run_folder
from gtrxl_tf.training.offline import samplers

# The name in a checkpoint of what a sampler serializes, see `OfflineTrainer`.
_SAMPLER = 'sampler/.ATTRIBUTES/py_state'


def _comparable(*specs: dm_specs.Array) -> List[Dict[str, Any]]:
  """Returns the properties of specs that all have: imported ones may lack bounds and names."""
  properties = [{'num_values': getattr(spec, 'num_values', None)} for spec in specs]
  for known, spec in zip(properties, specs):
    if hasattr(spec, 'minimum'):
      known['bounds'] = np.float32(specs_lib.bounds(spec)).tolist()
    if hasattr(spec, 'names'):
      known['names'] = list(spec.names)
  shared = set.intersection(*map(set, properties))
  return [{name: value for name, value in known.items() if name in shared}
          for known in properties]


@config.configurable
class OfflineExperiment(experiment.Experiment):
  """An experiment that trains on a dataset and evaluates its policy by playing.

  `Experiment.network` makes a network for an `action_spec`; `Experiment.agent` makes an
  agent from a network. The defaults are `DecisionNetwork`, `DecisionAgent` and `AdamW`.
  Evaluations play `Experiment.environment` and `Experiment.tasks`.

  Args:
    dataset: folder of a dataset that `gtrxl collect` or an importer wrote.
    policy: makes a policy from a network, `observation_spec`, `action_spec`,
      `return_scale` and `return_discount`.
    sampler: selects the steps of each batch, see `samplers`.
    learner_steps: learner steps of the run.
    segment_length: K, steps per segment.
    num_segments: N, segments per trajectory in training.
    batch_size: trajectories per learner step, over all replicas.
    starts: where trajectories start: at the first step of an episode ('first'), at
      random steps whose window lies within the episode ('random'), or at any ('any').
    min_window_return: not for 'first': the least sum of rewards within a window.
    frame_stack: how many steps' observations are stacked along their last axis, the
      newest last, as `FrameStack` does while the agent plays.
    return_scale: returns are divided by it, in training and in acting.
    return_discount: the discount of returns in training, and of a `TAPPolicy`'s plans.
      A `DecisionPolicy` needs 1, as it subtracts rewards from the target as they are.
    end_reward: in training, the reward of steps that end the task; by default that of
      the dataset.
    evaluation_period: learner steps between evaluations; None for one at the end.
    steps_per_call: learner steps that Python starts at once, on batches that it makes
      while the steps before run. Small steps need less CPU time with more of them, and
      accelerators wait less. A call ends early where a row of metrics, a checkpoint or
      an evaluation is due, so more than `Experiment.log_period` are useless. Its batches
      need more memory. Results are those of 1 up to rounding without dropout; with it,
      rounding draws other masks (`cores/dropout.py`). Not in the papers.
    **shared: the settings of `Experiment`.

  The defaults are RATE's (Table 8, T-Maze), except `learner_steps`, which the paper
  gives in epochs.
  """
  kind = 'OfflineExperiment'
  default_network = network_lib.DecisionNetwork
  default_agent = decision.DecisionAgent
  default_optimizer = optimizers.AdamW

  def __init__(
      self,
      dataset: str,
      policy: Callable[..., decision.DecisionPolicy] = decision.DecisionPolicy,
      sampler: Callable[..., samplers.Sampler] = samplers.WholeTrajectories,
      learner_steps: config.PositiveInt = 10_000,
      segment_length: config.PositiveInt = 30,
      num_segments: config.PositiveInt = 3,
      batch_size: config.PositiveInt = 64,
      starts: Literal['first', 'random', 'any'] = 'first',
      min_window_return: Optional[float] = None,
      frame_stack: config.PositiveInt = 1,
      return_scale: config.PositiveFloat = 1.0,
      return_discount: config.UnitInterval = 1.0,
      end_reward: Optional[float] = None,
      evaluation_period: Optional[config.PositiveInt] = None,
      steps_per_call: config.PositiveInt = 1,
      **shared):
    super().__init__(**shared)
    try:
      self.dataset = datasets.check(
          dataset, datasets.Specs(self.observation_spec, self.action_spec))
    except datasets.DatasetError as error:
      raise config.ConfigError(f'OfflineExperiment.dataset: {error}') from error
    self.learner_steps = learner_steps
    self.batch_size = batch_size
    self.evaluation_period = evaluation_period or learner_steps
    self.steps_per_call = steps_per_call
    self._policy = policy
    self._sampler = sampler
    reads = dict(starts=starts, min_window_return=min_window_return,
                 frame_stack=frame_stack, return_scale=return_scale)
    self._trajectories = dict(
        segment_length=segment_length, num_segments=num_segments,
        batch_size=batch_size, seed=self.seed, **reads)
    # Settings that have no meaning for histories.
    self._of_episodes = dict(reads, return_discount=return_discount, end_reward=end_reward)
    self._returns = dict(return_scale=return_scale, return_discount=return_discount)
    # What is learned from; scores of the data are those of its own rewards.
    self._learned_data = self.dataset.relabeled(return_discount, end_reward)
    self._check_specs()

  def _check_specs(self) -> None:
    """Checks that the dataset's shapes and actions are those of the environment."""
    recorded = self.dataset.environment
    if recorded and recorded != self.environment_name:
      logging.warning('OfflineExperiment.dataset was recorded in %s; the policy plays %s',
                      recorded, self.environment_name)

    def shapes(nest):
      return tf.nest.map_structure(
          lambda spec: (spec.shape, specs_lib.narrowed(spec.dtype).name), nest)

    observation_spec = self.dataset.observation_spec()
    if self._trajectories['frame_stack'] > 1:
      observation_spec = environments.stacked_spec(
          observation_spec, self._trajectories['frame_stack'])
    for kind, spec in (('observation', observation_spec),
                       ('action', self.dataset.action_spec())):
      found, expected = shapes(spec), shapes(getattr(self, f'{kind}_spec'))
      if found != expected:
        raise config.ConfigError(
            f'OfflineExperiment.dataset has {kind}s {found}: expected those of '
            f'Experiment.environment, {expected}')
    for found, expected in zip(*map(
        tf.nest.flatten, (self.dataset.action_spec(), self.action_spec))):
      found, expected = _comparable(found, expected)
      if found != expected:
        raise config.ConfigError(
            f'OfflineExperiment.dataset has actions with {found}: expected those of '
            f'Experiment.environment, with {expected}')

  def make_agent(self) -> agent_lib.Agent:
    tf.keras.utils.set_random_seed(self.seed)
    with devices.compute_dtype(self.compute_dtype):
      return self._agent(self.make_network())

  def restore_agent(self, checkpoints: pathlib.Path) -> agent_lib.Agent:
    tf.keras.utils.set_random_seed(self.seed)
    agent = self._agent(self.make_network())  # In float32, because it will act.
    if not self.optimizer.ema_momentum:
      checkpoints_lib.restore_agent(checkpoints, agent)
      return agent
    optimizer = self.make_optimizer()
    optimizer.build(agent.learned_variables)
    checkpoints_lib.restore_agent(checkpoints, agent, optimizer=optimizer)
    # The averages become the weights.
    optimizer.finalize_variable_values(agent.learned_variables)
    return agent

  def learned_network(self, agent: agent_lib.Agent) -> tf.keras.layers.Layer:
    return agent.network

  def make_network(self) -> tf.keras.layers.Layer:
    """Makes a network with variables."""
    network = self._make_network()
    network.create_variables(self.observation_spec)
    if getattr(network, 'oracle', None) and self._trajectories['starts'] != 'first':
      raise config.ConfigError(
          f"OfflineExperiment.starts = {self._trajectories['starts']!r} with "
          "DecisionNetwork.oracle: expected 'first', where the oracle looks")
    if network.observation_statistics is not None:
      network.observation_statistics.assign(*self._observation_statistics)
    if isinstance(network, tap.TAPNetwork):
      network.assign_statistics(
          self._observation_statistics, self.dataset.statistics('action'),
          # These are the data's own rewards, as in the authors' code. The few large
          # values of `end_reward` would make the deviation much larger.
          self.dataset.statistics('reward'),
          self._learned_data.statistics('return_to_go'))
    return network

  @functools.cached_property
  def _observation_statistics(self) -> Tuple[Any, Any]:
    """Mean and deviation of the dataset's observations, stacked like its frames."""
    frames = self._trajectories['frame_stack']
    return tuple(
        tf.nest.map_structure(lambda x: np.tile(x, frames) if frames > 1 else x, nest)
        for nest in self.dataset.observation_statistics())

  def _make_network(self) -> tf.keras.layers.Layer:
    return self._network(action_spec=self.action_spec)

  def make_policy(self, network: network_lib.DecisionNetwork
                  ) -> decision.DecisionPolicy:
    """Makes a policy that acts with `network`."""
    return self._policy(network, self.observation_spec, self.action_spec,
                        **self._returns)

  def restore_policy(self, folder: run_folder.RunFolder) -> decision.DecisionPolicy:
    """Makes the policy of the newest checkpoint, with the current settings."""
    return self.make_policy(self.restore_agent(folder.checkpoints).network)

  def make_sampler(self, agent: agent_lib.Agent) -> samplers.Sampler:
    """Makes the sampler, which makes the batches."""
    made = self._sampler(self._make_trajectories(agent.network.action_space),
                         agent.network.initial_state, self.learner_steps)
    if made.one_step_per_call and self.steps_per_call > 1:
      raise config.ConfigError(
          f'OfflineExperiment.steps_per_call = {self.steps_per_call}: expected 1 with '
          f'the sampler {type(made).__name__} as it is set')
    starts = self._trajectories['starts']
    if isinstance(made, samplers.MemoryPool) and starts != 'first':
      raise config.ConfigError(
          f"OfflineExperiment.starts = {starts!r} with @MemoryPool: expected 'first', "
          'where the clue is')
    if (isinstance(made, samplers.WholeTrajectories) and made.curriculum
        and starts != 'first'):
      raise config.ConfigError(
          f'OfflineExperiment.starts = {starts!r} with WholeTrajectories.curriculum = '
          "True: expected 'first', as it goes by the length of episodes")
    return made

  def check_resumes(self, checkpoint: str, agent: agent_lib.Agent) -> None:
    self.make_sampler(agent).deserialize(
        tf.train.load_checkpoint(checkpoint).get_tensor(_SAMPLER))

  def make_batch(self, agent: agent_lib.Agent) -> Any:
    """Makes the first batch."""
    return self.make_sampler(agent).batch(0)

  def describe_row(self, batch: Any) -> str:
    return f'{batch.valid.shape[1]}'

  def _make_trajectories(self, space: action_space.ActionSpace
                         ) -> samplers.Trajectories:
    return samplers.Trajectories(self._learned_data, space, **self._trajectories)

  def episode(self, space: action_space.ActionSpace, number: int
              ) -> network_lib.Segments:
    """Returns the first N segments of an episode of the dataset, as a batch of one."""
    if number >= self.dataset.num_episodes:
      raise IndexError(f'episode {number} of {self.dataset.path}: it has '
                       f'{self.dataset.num_episodes}')
    trajectories = self._make_trajectories(space)
    length = min(int(self.dataset.lengths[number]),
                 trajectories.segment_length * trajectories.num_segments)
    return trajectories.segments(
        trajectories.gather(np.array([number]), length), np.ones(1, bool))

  @property
  def description(self) -> str:
    length = self._trajectories['segment_length'] * self._trajectories['num_segments']
    cut = (self.dataset.kind == 'episodes' and self._trajectories['starts'] == 'first'
           and np.max(self.dataset.lengths, initial=0) > length)
    part = f'first {length} steps of the ' if cut else ''
    return (f'on the {part}{self.dataset.num_episodes:,} {self.dataset.kind} of '
            f'{self.dataset.path}')

  def make_console(self) -> console.Console:
    return console.Console(self.learner_steps, 'learner')
