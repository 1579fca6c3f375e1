"""Evaluates policies that learn while they act, by learning processes."""

import functools
import pathlib
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

import dm_env
import numpy as np
import tensorflow as tf

from gtrxl_tf import collecting
from gtrxl_tf.agents import distillation as policy_lib
from gtrxl_tf.agents import policy as agents_policy
from gtrxl_tf.datasets import format as format_lib
from gtrxl_tf.environments import task_batch
from gtrxl_tf.networks import distillation
from gtrxl_tf.training import evaluation
from gtrxl_tf.training.offline import history_curves

# A policy is evaluated by the last of this many equal parts of a process.
_PARTS = 5


class PolicySource(collecting.Source):
  """A policy that learns while it acts, as a `Source`.

  The policy does not see the last time step of an episode: the first one of the next
  episode has the reward.
  """

  def __init__(self, policy: agents_policy.NetworkPolicy, seed: int):
    """Compiles the policy, such as a `DistillationPolicy`, whose weights may change."""
    self._policy = policy
    self._seed = seed
    self._action = tf.function(policy.action, autograph=False)

  def play(self, tasks: task_batch.TaskBatch, num_steps: int
           ) -> collecting.LearningHistories:
    """Plays `num_steps` steps in each task, beginning with a new state."""
    self._state: Any = self._policy.get_initial_state(tasks.num_tasks)
    self._reward = np.zeros(tasks.num_tasks, np.float32)
    self._ended = np.ones(tasks.num_tasks, bool)
    self._time = 0
    return collecting.play(tasks, self, num_steps)

  def act(self, observation: Any, state: Any) -> np.ndarray:
    del state
    step_type = np.where(self._ended, dm_env.StepType.FIRST, dm_env.StepType.MID)
    time_step = dm_env.TimeStep(
        tf.constant(step_type, tf.int32), tf.constant(self._reward),
        tf.ones(len(self._reward)), tf.nest.map_structure(tf.constant, observation))
    step = self._action(
        time_step, self._state, seed=tf.constant([self._seed, self._time], tf.int32))
    self._state = step.state
    self._time += 1
    return step.action.numpy()

  def learn(self, state: Any, action: Any, outcome: task_batch.Outcome) -> None:
    del state, action
    self._reward = outcome.reward.astype(np.float32)
    self._ended = outcome.terminated | outcome.truncated


def as_inputs(played: collecting.LearningHistories,
              network: distillation.DistillationNetwork,
              policy: policy_lib.DistillationPolicy) -> distillation.Histories:
  """Returns the inputs that a network received in histories that its policy played."""

  def before(x: np.ndarray) -> tf.Tensor:  # The values of the step before.
    return tf.constant(np.pad(x, [(0, 0), (1, 0)] + [(0, 0)] * (x.ndim - 2)))

  num, num_steps = played.reward.shape
  steps = tf.tile(tf.range(num_steps)[tf.newaxis], [num, 1])
  return distillation.Histories(
      before(played.observation),
      network.action_space.from_environment(before(played.action)),
      before(played.reward.astype(np.float32)), before(played.end != 0),
      is_first=tf.equal(steps, 0), position=policy.position(steps))


class RandomSource(collecting.Source):
  """A `Source` that draws actions uniformly and learns nothing."""

  def __init__(self, tasks: task_batch.TaskBatch):
    self._num_actions = tasks.num_actions
    self._random = np.random.default_rng(0)

  def act(self, observation: Any, state: Any) -> np.ndarray:
    return self._random.integers(self._num_actions, size=len(state))

  def learn(self, state: Any, action: Any, outcome: task_batch.Outcome) -> None:
    pass


class LearningProcesses(evaluation.Evaluator):
  """An `Evaluator` that plays a learning process in each of a source's evaluation tasks.

  It also evaluates the greedy policy, which takes the most likely actions, and, after
  training, the policy at the temperature that is best in tasks of training. Tasks of
  the evaluation have no influence on that choice.

  Attributes:
    curves: the curves of `policy`, `greedy`, `source`, and `tuned` if a temperature was
      chosen, in the last evaluation.
    played: the policy's histories in the last evaluation.
    optimum: the return of a policy that knows the tasks.
  """

  def __init__(self, policy: policy_lib.DistillationPolicy,
               collector: collecting.HistoryCollector,
               seed: int, picture: Optional[pathlib.Path] = None,
               temperatures: Sequence[float] = ()):
    """Compiles the policy, whose weights may change.

    Args:
      policy: the policy to evaluate.
      collector: the collector of the histories, with the tasks and the source.
      seed: the seed of the policy's actions.
      picture: the file for a picture of each evaluation's curves; their numbers are
        written beside it with the suffix `.csv`. None for no files.
      temperatures: the temperatures to choose from after training; none for no choice.
    """
    self.columns = ('return', 'success', 'source_return', 'random_return', 'normalized',
                    'greedy_return', 'greedy_normalized')
    if temperatures:
      self.columns += 'temperature', 'tuned_return', 'tuned_normalized'
    self.curves: Dict[str, history_curves.Curve] = {}
    self.played: Optional[collecting.LearningHistories] = None
    self.optimum = task_batch.informed_return(collector.evaluation_tasks()).mean()
    self._policy = PolicySource(policy, seed)
    self._greedy = PolicySource(policy.greedy(), seed)
    self._at = {temperature: PolicySource(policy.with_temperature(temperature), seed)
                for temperature in temperatures}
    self._collector = collector
    self._picture = picture

  @functools.cached_property
  def _source(self) -> collecting.LearningHistories:
    return self._collector.play('evaluation', 0)

  @functools.cached_property
  def _random_return(self) -> float:
    """The mean return of an episode of random actions."""
    tasks = self._collector.evaluation_tasks()
    played = collecting.play(tasks, RandomSource(tasks), self._collector.family.num_steps)
    return float(np.mean(history_curves.returns_by_part(played.reward, played.end, 1)))

  def _best_temperature(self) -> float:
    """Returns the best of N temperatures in tasks of training, an Nth of an evaluation's."""
    num_tasks = -(-self._collector.num_histories['evaluation'] // len(self._at))
    returns = {temperature: np.mean(_last_returns(source.play(
        self._collector.training_tasks(num_tasks), self._collector.family.num_steps)))
               for temperature, source in self._at.items()}
    return max(returns, key=lambda x: np.nan_to_num(returns[x], nan=-np.inf))

  def evaluate(self, should_stop: Callable[[], bool] = lambda: False,
               after_training: bool = False) -> evaluation.Evaluation:
    """Plays all processes, and returns the results of their last fifth.

    Success is the share of episodes that were not cut off. The tuned columns, which need
    `after_training`, are those at the temperature that was chosen.
    """
    del should_stop
    tasks = self._collector.evaluation_tasks()
    num_steps = self._collector.family.num_steps
    self.played = played = self._policy.play(tasks, num_steps)
    greedy = self._greedy.play(self._collector.evaluation_tasks(), num_steps)
    all_played = {'policy': played, 'greedy': greedy, 'source': self._source}
    if after_training and self._at:
      temperature = self._best_temperature()
      all_played['tuned'] = self._at[temperature].play(
          self._collector.evaluation_tasks(), num_steps)
    self.curves = {
        name: history_curves.curve(x.reward, x.end) for name, x in all_played.items()}
    if self._picture is not None:
      history_curves.write_csv(self._picture.with_suffix('.csv'), self.curves)
      history_curves.draw(
          self._picture, self.curves,
          f'{self._collector.family.name}: {tasks.num_tasks} tasks', self.optimum)
    returns = {name: _last_returns(x) for name, x in all_played.items()}
    late = played.end[:, -(played.end.shape[1] // _PARTS):]
    num_ends = np.sum(late != 0, axis=1)
    successes = np.divide(
        np.sum(late == format_lib.End.TERMINATION, axis=1), num_ends,
        where=num_ends > 0, out=np.full(len(late), np.nan))
    means = {name: float(np.mean(x)) for name, x in returns.items()}
    scale = self._random_return, means['source']
    columns = {
        'return': means['policy'], 'success': float(np.mean(successes)),
        'source_return': means['source'], 'random_return': self._random_return,
        'normalized': history_curves.normalized(means['policy'], *scale),
        'greedy_return': means['greedy'],
        'greedy_normalized': history_curves.normalized(means['greedy'], *scale)}
    if 'tuned' in means:
      columns.update({
          'temperature': temperature, 'tuned_return': means['tuned'],
          'tuned_normalized': history_curves.normalized(means['tuned'], *scale)})
    return evaluation.Evaluation(
        returns['policy'].tolist(), successes.tolist(), [0] * tasks.num_tasks, columns)


def _last_returns(played: collecting.LearningHistories) -> np.ndarray:
  """Returns the mean return of episodes in the last fifth of each process, [B]."""
  return history_curves.returns_by_part(played.reward, played.end, _PARTS)[:, -1]


def success_after_misses(end: np.ndarray, most: int = 3) -> List[float]:
  """Returns the share of episodes that succeed, after 0, 1, ... misses since a success.

  Args:
    end: how each step of the histories ends, `[B, steps]`, as in `LearningHistories`.
    most: the largest number of misses. The share is NaN where there are no episodes.
  """
  counts, successes = np.zeros(most + 1), np.zeros(most + 1)
  for row in end:
    misses = most + 1  # Nothing was found yet.
    for success in row[row != 0] == format_lib.End.TERMINATION:
      if misses <= most:
        counts[misses] += 1
        successes[misses] += success
      misses = 0 if success else misses + 1
  return np.divide(successes, counts, where=counts > 0,
                   out=np.full(most + 1, np.nan)).tolist()


def describe(found: Mapping[str, float]) -> str:
  """Describes the means of an evaluation by `LearningProcesses` in one line."""
  line = (f'In the last fifth of learning processes: return {found["return"]:.2f} '
          f'(greedy {found["greedy_return"]:.2f}, source {found["source_return"]:.2f}, '
          f'random {found["random_return"]:.2f}), success {found["success"]:.2f}; '
          f'normalized (random 0, source 1) {found["normalized"]:.2f} '
          f'(greedy {found["greedy_normalized"]:.2f})')
  if 'temperature' in found:
    line += (f'; at temperature {found["temperature"]:g}, the best in tasks of '
             f'training: return {found["tuned_return"]:.2f}, normalized '
             f'{found["tuned_normalized"]:.2f}')
  return line
