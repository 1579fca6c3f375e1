"""Steps many environments in turn and batches their time steps."""

import math
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Optional, Sequence

import dm_env
import numpy as np
import tree

from gtrxl_tf.environments import batched_observations
from gtrxl_tf.environments import batched_specs
from gtrxl_tf.environments import random_actions
from gtrxl_tf.settings import config

# What an environment may raise. Its sys.exit() must not end a run as if all were well.
ERRORS = Exception, SystemExit

_STEP_TYPES = frozenset(dm_env.StepType)
_TEXTS = str, bytes


class EnvironmentFailed(ValueError):
  """An environment raised an error, or returned values that do not fit its specs.

  The message is one line and names the environment, the episode and the step.
  """


class BatchedTimeStep(NamedTuple):
  """The time steps of E environments: the fields of `dm_env.TimeStep` and two more.

  Attributes:
    step_type: [E] int32, values of `dm_env.StepType`.
    reward: [E] float32; 0 on first steps, where dm_env has None.
    discount: [E] float32; 1 on first steps, where dm_env has None.
    observation: nest of [E, ...], structured as the environments' observations.
    episode_return: [E] float32. On last steps, the environment's `episode_return()` if
      it has this method, as an environment that clips rewards should, else the sum of
      the episode's rewards; NaN on all other steps, and on the last step of an episode
      that began with a head start.
    episode_success: [E] float32. On last steps, 1 or 0 as the environment's
      `episode_success()` says; NaN where `episode_return` is NaN, and always for an
      environment without this method.
  """
  step_type: np.ndarray
  reward: np.ndarray
  discount: np.ndarray
  observation: Any
  episode_return: np.ndarray
  episode_success: np.ndarray

  def first(self) -> np.ndarray:
    """Returns where an episode begins, bool `[E]`."""
    return self.step_type == dm_env.StepType.FIRST

  def last(self) -> np.ndarray:
    """Returns where an episode ends, bool `[E]`."""
    return self.step_type == dm_env.StepType.LAST


def _method_of(environment: dm_env.Environment, name: str
              ) -> Optional[Callable[[], Any]]:
  """Returns an environment's method; None if it has no method of that name."""
  found = getattr(environment, name, None)
  return found if callable(found) else None


class BatchedEnvironment:
  """Steps E environments in turn, in this thread.

  Each environment begins its next episode by itself: the step after a last step
  returns the first step of the next episode and ignores that environment's action.

  The values that environments return are checked against their specs, so that an error
  names the environment's index and the field, long before a loss becomes NaN. Every
  call returns new arrays, which the caller may keep.

  >>> from gtrxl_tf import environments
  >>> batch = BatchedEnvironment([environments.TMaze(seed=i) for i in range(3)])
  >>> batch.reset().observation.shape
  (3, 4)
  >>> batch.step(np.array([0, 2, 2])).reward
  array([0., 0., 0.], dtype=float32)

  Attributes:
    tasks: int32 [E], as given.
    watched: the `specs.kind`s of arrays whose scale a warning may name, once.
  """
  watched: Sequence[str] = ('image', 'number')

  def __init__(self, environments: Sequence[dm_env.Environment],
               tasks: Optional[Sequence[int]] = None, seed: int = 0):
    """Creates the batch.

    Args:
      environments: at least one; all have the same specs and scalar rewards.
      tasks: number of the task that each environment plays, counted from 0; by default
        all play the same.
      seed: the seed of the random actions of head starts.

    Raises:
      ValueError: the environments cannot be batched; the message says which and why.
    """
    self._environments = list(environments)
    self.tasks = np.zeros(len(self._environments), np.int32)
    if tasks is not None:
      self.tasks[:] = tasks
    self._random = np.random.default_rng(seed)
    batched_specs.check(self._environments)
    self._action_spec = self._environments[0].action_spec()
    self._action_leaves = batched_specs.named_leaves('action', self._action_spec)
    self._writer = batched_observations.ObservationWriter(
        self._environments[0].observation_spec(), self.num_environments)
    self._successes = [_method_of(environment, 'episode_success')
                       for environment in self._environments]
    own_returns = [_method_of(environment, 'episode_return')
                   for environment in self._environments]
    self._own_returns = [(i, x) for i, x in enumerate(own_returns) if x is not None]
    self._returns = np.zeros(self.num_environments)
    # True where the next step must be the first one of an episode.
    self._must_begin = np.ones(self.num_environments, bool)
    # True where the present episode began with a head start.
    self._is_partial = np.zeros(self.num_environments, bool)
    # Number of steps of the batch; for each environment, this number at the first step
    # of its present episode, and the number of that episode. Errors name them.
    self._num_steps = 0
    self._first_steps = [0] * self.num_environments
    self._episodes = [0] * self.num_environments

  @property
  def num_environments(self) -> int:
    """E, the size of the batch."""
    return len(self._environments)

  @property
  def name(self) -> str:
    """The attribute `name` of the first environment, such as its id, or its class."""
    first = self._environments[0]
    return getattr(first, 'name', type(first).__name__)

  def observation_spec(self) -> Any:
    """Returns the nest of specs of one environment, with float32 for float64."""
    return self._writer.spec

  def action_spec(self) -> Any:
    """Returns the nest of specs of one environment."""
    return self._action_spec

  def reset(self, head_starts: Optional[np.ndarray] = None) -> BatchedTimeStep:
    """Begins an episode in every environment.

    Args:
      head_starts: [E], the number of random actions that each environment takes before
        the step that is returned, which still counts as a first step. Without them,
        episodes of fixed length always begin and end together, and a batch shows only
        one part of an episode. Episodes that begin with them report neither return nor
        success.

    Raises:
      EnvironmentFailed: an environment raised an error, did not begin with a first
        step, or returned an observation that does not fit its spec or is not finite.
    """
    if head_starts is None:
      head_starts = np.zeros(self.num_environments, np.int64)
    self._must_begin[:] = True
    return self._batch(self._played(head_starts))

  def _played(self, head_starts: np.ndarray) -> Iterator[dm_env.TimeStep]:
    """Begins an episode in each environment, and yields a first step of it."""
    for i, environment in enumerate(self._environments):
      try:
        time_step = random_actions.play(environment, head_starts[i], self._random)
      except ERRORS as error:
        raise EnvironmentFailed(
            f'environment {i}, before episode {self._episodes[i] + 1}, with '
            f'{head_starts[i]} random actions: {config.described(error)}') from error
      self._is_partial[i] = not time_step.first()
      yield dm_env.restart(time_step.observation)

  def step(self, actions) -> BatchedTimeStep:
    """Steps every environment.

    Args:
      actions: nest of [E, ...], structured as the action spec. Their dtype may differ
        from the spec's in width (int64 for int32), but not in kind.

    Raises:
      EnvironmentFailed: an environment raised an error, or returned an observation,
        reward or discount that does not fit its spec or is not finite.
      ValueError: actions that do not fit the action spec.
    """
    self._num_steps += 1
    leaves = self._fitting_actions(actions)
    unbatched = leaves[0]
    if tree.is_nested(self._action_spec):
      unbatched = (tree.unflatten_as(self._action_spec, row) for row in zip(*leaves))
    return self._batch(self._stepped(unbatched))

  def _stepped(self, actions: Iterable[Any]) -> Iterator[dm_env.TimeStep]:
    """Yields the time step of each environment."""
    for i, (environment, action) in enumerate(zip(self._environments, actions)):
      try:
        time_step = environment.step(action)
      except ERRORS as error:
        raise self.failed(i, error) from error
      yield time_step

  def failed(self, i: int, error: BaseException, where: str = ''
             ) -> EnvironmentFailed:
    """Returns the `EnvironmentFailed` for an error that environment `i` raised.

    `where` names the method that raised it, if that was not `step`.
    """
    where = f', {where}' if where else ''
    return EnvironmentFailed(
        f'environment {i}, {self._time(i)}{where}: {config.described(error)}')

  def _time(self, i: int) -> str:
    return f'episode {self._episodes[i]}, step {self._num_steps - self._first_steps[i]}'

  def _misfit(self, i: int, what: str) -> EnvironmentFailed:
    """Returns the error for a wrong value that environment `i` returned."""
    name = 'step' if self._num_steps > self._first_steps[i] else 'reset'
    method = getattr(type(batched_specs.unwrapped(self._environments[i])), name, None)
    return EnvironmentFailed(
        f'environment {i}: {what} ({self._time(i)}){config.place(method)}')

  def close(self) -> None:
    """Closes every environment.

    Raises:
      EnvironmentFailed: one raised an error. The others are closed.
    """
    failed = None
    for i, environment in enumerate(self._environments):
      try:
        environment.close()
      except ERRORS as error:
        failed = failed or (i, error)
    if failed is not None:
      raise self.failed(*failed, 'close()') from failed[1]

  def _fitting_actions(self, actions) -> list[np.ndarray]:
    """Returns copies of the actions' leaves, in the spec's dtypes.

    An environment may write into its action, which the caller may still need.
    """
    if tree.is_nested(self._action_spec):
      actions = tree.flatten_up_to(self._action_spec, actions, check_types=False)
    else:
      actions = [actions]
    leaves = []
    for (name, spec), leaf in zip(self._action_leaves, actions):
      leaf = np.asarray(leaf)
      shape = (self.num_environments, *spec.shape)
      if leaf.shape != shape or not np.can_cast(leaf.dtype, spec.dtype, 'same_kind'):
        raise ValueError(f'{name} has shape {leaf.shape} and dtype {leaf.dtype}: '
                         f'expected {shape} and {spec.dtype}')
      leaves.append(leaf.astype(spec.dtype))
    return leaves

  def _batch(self, time_steps: Iterable[dm_env.TimeStep]) -> BatchedTimeStep:
    """Writes the time steps into arrays, if they fit their specs."""
    try:
      return self._written(time_steps)
    except batched_observations.Misfit as error:
      raise self._misfit(*error.args) from error.__cause__

  def _written(self, time_steps: Iterable[dm_env.TimeStep]) -> BatchedTimeStep:
    """Writes each time step into arrays as soon as it arrives."""
    num = self.num_environments
    step_types = np.empty(num, np.int32)
    rewards = np.zeros(num, np.float32)
    discounts = np.ones(num, np.float32)
    successes = np.full(num, np.nan, np.float32)
    arrays = self._writer.new_arrays()
    first, last = dm_env.StepType.FIRST, dm_env.StepType.LAST

    for i, time_step in enumerate(time_steps):
      try:
        step_type, reward, discount, observation = time_step
        if isinstance(reward, _TEXTS) or isinstance(discount, _TEXTS):
          raise TypeError('NumPy would make a number of it')
        if step_type not in _STEP_TYPES:
          raise ValueError('NumPy might round it')
        step_types[i] = step_type
        if step_type != first:
          if reward is None or discount is None:
            raise TypeError('NumPy would make NaN of it')
          rewards[i] = reward
          discounts[i] = discount
      except (TypeError, ValueError, OverflowError) as error:
        raise self._malformed(i, time_step) from error
      # Before its first episode here, an environment may be within another one.
      if self._episodes[i] and (step_type == first) != self._must_begin[i]:
        raise self._out_of_order(i, step_type)
      self._must_begin[i] = step_type == last
      if step_type == first:
        self._episodes[i] += 1
        self._first_steps[i] = self._num_steps
      if step_type == last and self._successes[i] is not None:
        successes[i] = self._called(i, self._successes[i], 'episode_success')
      self._writer.write(arrays, i, observation, step_type == first)

    self._check_numbers(rewards, discounts)
    observations = self._writer.checked(arrays, step_types == last)
    self._writer.watch(
        arrays, self.watched, step_types == last, self._num_steps, self._time)
    return self._with_returns(step_types, rewards, discounts, observations, successes)

  def _malformed(self, i: int, time_step: Any) -> EnvironmentFailed:
    """Returns the error for a value other than a time step from environment `i`."""
    try:
      step_type, reward, discount, _ = time_step
    except (TypeError, ValueError):
      size = f' of {len(time_step)}' if isinstance(time_step, tuple) else ''
      return EnvironmentFailed(
          f'environment {i}, {self._time(i)}: returned a {type(time_step).__name__}'
          f'{size}: expected a dm_env.TimeStep, as dm_env.restart, transition and '
          'termination make it')
    try:
      known = step_type in _STEP_TYPES
    except TypeError:
      known = False
    if not known:
      return self._misfit(
          i, f'step_type = {step_type!r:.60}: expected a dm_env.StepType')
    return self._misfit(i, f'reward = {reward!r:.60}, discount = {discount!r:.60}: '
                        'expected two numbers')

  def _out_of_order(self, i: int, step_type: int) -> EnvironmentFailed:
    """Returns the error for a step that cannot follow the one before."""
    name = dm_env.StepType(step_type).name
    if self._must_begin[i]:
      return self._misfit(i, f'step_type = {name} after LAST: expected FIRST, since the '
                          "step after an episode's last begins the next episode")
    return self._misfit(i, f'step_type = {name} within an episode: expected MID or LAST')

  def _called(self, i: int, method: Callable[[], Any], name: str) -> float:
    """Returns the number that a method of environment `i` returns; None as NaN."""
    try:
      value = method()
      value = float('nan') if value is None else float(value)
    except ERRORS as error:
      raise self.failed(i, error, f'{name}()') from error
    if math.isinf(value) or name == 'episode_success' and not 0 <= value <= 1 and (
        not math.isnan(value)):
      raise self._misfit(i, f'{name}() = {value}: expected a '
                         + ('number in [0, 1]' if name == 'episode_success'
                            else 'finite number'))
    return value

  def _with_returns(self, step_types, rewards, discounts, observations, successes
                    ) -> BatchedTimeStep:
    """Adds the rewards to the returns."""
    first, last = dm_env.StepType.FIRST, dm_env.StepType.LAST
    self._returns[step_types == first] = 0
    self._returns += rewards
    returns = np.where(step_types == last, self._returns, np.nan).astype(np.float32)
    for i, own_return in self._own_returns:
      if step_types[i] == last:
        returns[i] = self._called(i, own_return, 'episode_return')
    if self._is_partial.any():
      returns[self._is_partial] = successes[self._is_partial] = np.nan
      self._is_partial &= step_types != last
    return BatchedTimeStep(
        step_types, rewards, discounts, observations, returns, successes)

  def _check_numbers(self, rewards: np.ndarray, discounts: np.ndarray) -> None:
    i = batched_observations.first_false(np.isfinite(rewards))
    if i is not None:
      raise self._misfit(i, f'reward = {rewards[i]}: expected finite numbers')
    # False for NaN.
    i = batched_observations.first_false((discounts >= 0) & (discounts <= 1))
    if i is not None:
      raise self._misfit(
          i, f'discount = {discounts[i]}: expected a number in [0, 1]')
