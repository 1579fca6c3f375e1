"""Steps many environments in turn and batches their time steps."""

import functools
import operator
import re
from typing import Any, Callable, Iterable, Iterator, Mapping, NamedTuple, Optional, Sequence

import dm_env
from dm_env import specs
import numpy as np
import tree

from gtrxl_tf.environments import scale_warnings
from gtrxl_tf.environments import specs as specs_lib
from gtrxl_tf.settings import config

# What an environment may raise. Its sys.exit() must not end a run as if all were well.
ERRORS = Exception, SystemExit

_KEY = re.compile(r'[A-Za-z0-9_./-]+')
_MASK = f'observation[{specs_lib.MASK!r}]'
_STEP_TYPES = tuple(dm_env.StepType)
_FIRST, _MID, _LAST = _STEP_TYPES


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
    return self.step_type == _FIRST

  def last(self) -> np.ndarray:
    """Returns where an episode ends, bool `[E]`."""
    return self.step_type == _LAST


class BatchedEnvironment:
  """Steps E environments in turn, in this thread.

  Each environment begins its next episode by itself: the step after a last step
  returns the first step of the next episode and ignores that environment's action.

  The values that environments return are checked against their specs, so that an error
  names the environment's index and the field, long before a loss becomes NaN. It is an
  `EnvironmentFailed`. Every call returns new arrays, which the caller may keep.

  >>> from gtrxl_tf import environments
  >>> batch = BatchedEnvironment([environments.TMaze(seed=i) for i in range(3)])
  >>> batch.reset().observation.shape
  (3, 4)
  >>> batch.step(np.array([0, 2, 2])).reward
  array([0., 0., 0.], dtype=float32)

  Attributes:
    num_environments: E, the size of the batch.
    tasks: int32 [E], as given.
    watched: the `specs.kind`s of arrays whose scale a warning may name, once.
  """
  watched: Sequence[str] = ('image', 'number')

  def __init__(self, environments: Sequence[dm_env.Environment],
               tasks: Optional[Sequence[int]] = None, seed: int = 0):
    """Creates the batch.

    Args:
      environments: at least one; all have the same specs and scalar rewards.
      tasks: number of the task that each environment plays; by default all play 0.
      seed: seeds the random actions of head starts.
    """
    self._environments = list(environments)
    self.num_environments = num = len(self._environments)
    self.tasks = np.zeros(num, np.int32) if tasks is None else np.array(tasks, np.int32)
    self._random = np.random.default_rng(seed)
    _check_specs(self._environments)
    self._action_spec = self._environments[0].action_spec()
    self._action_leaves = _named_leaves('action', self._action_spec)
    spec = self._environments[0].observation_spec()
    self._leaves = _named_leaves('observation', spec)
    self._expected = [(name, leaf.shape, leaf.dtype) for name, leaf in self._leaves]
    self._are_narrow = [specs_lib.is_narrow(leaf) for _, leaf in self._leaves]
    self._is_nested = tree.is_nested(spec)
    self._flatten = _flattening(spec)
    self._observation_spec = tree.map_structure(_with_narrow_floats, spec)
    self._scales = scale_warnings.Scales(self._leaves)
    # For each environment, those of these methods that it has.
    self._methods = [{name: method for name in ('episode_return', 'episode_success')
                      if callable(method := getattr(environment, name, None))}
                     for environment in self._environments]
    self._has_own_return = np.array(['episode_return' in x for x in self._methods])
    self._returns = np.zeros(num)
    # True where the next step must be the first one of an episode, and where the present
    # episode began with a head start.
    self._must_begin, self._is_partial = [True] * num, np.zeros(num, bool)
    # Number of steps of the batch; for each environment, this number at the first step
    # of its present episode, and the number of that episode. Errors name them.
    self._num_steps = 0
    self._first_steps, self._episodes = [0] * num, [0] * num

  @property
  def name(self) -> str:
    """The attribute `name` of the first environment, such as its id, or its class."""
    first = self._environments[0]
    return getattr(first, 'name', type(first).__name__)

  def observation_spec(self) -> Any:
    """Returns the nest of specs of one environment, with float32 for float64."""
    return self._observation_spec

  def action_spec(self) -> Any:
    """Returns the nest of specs of one environment."""
    return self._action_spec

  def reset(self, head_starts: Optional[np.ndarray] = None) -> BatchedTimeStep:
    """Begins an episode in every environment.

    `head_starts`, [E], are the numbers of random actions that each environment takes before
    the step that is returned, which still counts as a first step. Without them, episodes
    of fixed length always begin and end together, and a batch shows only one part of an
    episode. Episodes that begin with them report neither return nor success.
    """
    if head_starts is None:
      head_starts = np.zeros(self.num_environments, np.int64)
    self._must_begin = [True] * self.num_environments
    return self._batch(self._played(head_starts))

  def _played(self, head_starts: np.ndarray) -> Iterator[dm_env.TimeStep]:
    """Begins an episode in each environment, and yields a first step of it."""
    for i, environment in enumerate(self._environments):
      try:
        time_step = _play(environment, head_starts[i], self._random)
      except ERRORS as error:
        raise EnvironmentFailed(
            f'environment {i}, before episode {self._episodes[i] + 1}, with '
            f'{head_starts[i]} random actions: {config.described(error)}') from error
      self._is_partial[i] = not time_step.first()
      yield dm_env.restart(time_step.observation)

  def step(self, actions) -> BatchedTimeStep:
    """Steps every environment by actions, a nest of [E, ...] as the action spec.

    Their dtype may differ from the spec's in width (int64 for int32), but not in kind.
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

  def failed(self, i: int, error: BaseException, where: str = '') -> EnvironmentFailed:
    """Returns the error for one that environment `i` raised, in the method `where`."""
    where = f', {where}' if where else ''
    return EnvironmentFailed(
        f'environment {i}, {self._time(i)}{where}: {config.described(error)}')

  def _time(self, i: int) -> str:
    return f'episode {self._episodes[i]}, step {self._num_steps - self._first_steps[i]}'

  def _misfit(self, i: int, what: str) -> EnvironmentFailed:
    """Returns the error for a wrong value that environment `i` returned."""
    name = 'step' if self._num_steps > self._first_steps[i] else 'reset'
    method = getattr(type(_unwrapped(self._environments[i])), name, None)
    return EnvironmentFailed(f'environment {i}: {what} ({self._time(i)}){config.place(method)}')

  def close(self) -> None:
    """Closes every environment, even if one raises an error."""
    failed = None
    for i, environment in enumerate(self._environments):
      try:
        environment.close()
      except ERRORS as error:
        failed = failed or (i, error)
    if failed is not None:
      raise self.failed(*failed, 'close()') from failed[1]

  def _fitting_actions(self, actions) -> list[np.ndarray]:
    """Returns copies of the actions' leaves: environments may write into their actions."""
    leaves = []
    for (name, spec), leaf in zip(self._action_leaves, tree.flatten_up_to(
        self._action_spec, actions, check_types=False)):
      leaf = np.asarray(leaf)
      shape = (self.num_environments, *spec.shape)
      if leaf.shape != shape or not np.can_cast(leaf.dtype, spec.dtype, 'same_kind'):
        raise ValueError(f'{name} has shape {leaf.shape} and dtype {leaf.dtype}: '
                         f'expected {shape} and {spec.dtype}')
      leaves.append(leaf.astype(spec.dtype))
    return leaves

  def _batch(self, time_steps: Iterable[dm_env.TimeStep]) -> BatchedTimeStep:
    """Checks time steps and makes arrays of them."""
    num = self.num_environments
    step_types, rewards, discounts, observations = [], [], [], []
    results = {name: np.full(num, np.nan, np.float32)
               for name in ('episode_return', 'episode_success')}

    for i, time_step in enumerate(time_steps):
      try:
        step_type, reward, discount, observation = time_step
        step_types.append(_STEP_TYPES.index(step_type))
        begins = step_type == _FIRST
        # The sum refuses texts, of which float() would make numbers.
        rewards.append(0. if begins else float(0. + reward))
        discounts.append(1. if begins else float(0. + discount))
      except (TypeError, ValueError) as error:
        raise self._misfit(i, f'returned {_short(time_step, 120)}: expected a dm_env.TimeStep '
                           'with a StepType and two numbers') from error
      if step_type != _MID or self._must_begin[i]:
        self._begin_or_end(i, step_type, results)
      observations.append(self._leaves_of(i, observation, step_type != _MID))

    arrays = [*map(self._stacked, zip(*observations), self._expected)]
    step_types = np.array(step_types, np.int32)
    rewards, discounts = np.array([rewards, discounts], np.float32)
    last = step_types == _LAST
    self._check(rewards, discounts, arrays, last)
    self._scales.look(arrays, self.watched, last, self._num_steps, self._time)
    self._returns[step_types == _FIRST] = 0
    self._returns += rewards
    own = self._has_own_return | ~last
    results['episode_return'][~own] = self._returns[~own]
    if self._is_partial.any():
      for values in results.values():
        values[self._is_partial] = np.nan
      self._is_partial &= ~last
    return BatchedTimeStep(
        step_types, rewards, discounts,
        tree.unflatten_as(self._observation_spec, arrays), **results)

  def _begin_or_end(self, i: int, step_type: dm_env.StepType, results: Mapping[str, np.ndarray]
                    ) -> None:
    """Counts the episode of environment `i` that begins; takes the results of one that ends."""
    begins = step_type == _FIRST
    # Before its first episode here, an environment may be within another one.
    if self._episodes[i] and begins != self._must_begin[i]:
      raise self._misfit(i, f'step_type = {dm_env.StepType(step_type).name} ' + (
          "after LAST: expected FIRST, since the step after an episode's last begins the "
          'next episode' if self._must_begin[i] else
          'within an episode: expected MID or LAST'))
    self._must_begin[i] = step_type == _LAST
    if begins:
      self._episodes[i] += 1
      self._first_steps[i] = self._num_steps
    elif step_type == _LAST:
      for name, method in self._methods[i].items():
        results[name][i] = self._called(i, name, method)

  def _called(self, i: int, name: str, method: Callable[[], Any]) -> float:
    """Returns the number that a method of environment `i` returns; None as NaN."""
    try:
      value = method()
      value = float('nan') if value is None else float(value)
    except ERRORS as error:
      raise self.failed(i, error, f'{name}()') from error
    if np.isinf(value) or name == 'episode_success' and (value < 0 or value > 1):
      raise self._misfit(i, f'{name}() = {value}: expected a finite number, and a success '
                         'in [0, 1]')
    return value

  def _leaves_of(self, i: int, observation: Any, at_edge: bool) -> Sequence[np.ndarray]:
    """Returns an observation of environment `i` as arrays, if its structure fits."""
    try:
      leaves = self._flatten(observation)
      # The next environment may write into the same arrays, unless these are read-only.
      leaves = [leaf.copy() if leaf.flags.writeable else leaf for leaf in leaves]
    except (LookupError, TypeError):
      leaves = []
    except AttributeError:  # A number or a list, for example.
      leaves = [*map(_as_array, leaves)]
    # Comparing names at every step, not just an episode's first and last, would be slow.
    if self._is_nested and (at_edge or len(leaves) != len(self._leaves)):
      found = [name for name, _ in _named_leaves('observation', observation)]
      expected = [name for name, _ in self._leaves]
      if found != expected:  # dm-tree's check does not compare keys.
        raise self._misfit(i, f'returned {found}: expected {expected}')
    return leaves

  def _stacked(self, leaves: Sequence[np.ndarray], expected: tuple) -> np.ndarray:
    """Returns one leaf of all environments, `[E, ...]`, if shapes and dtypes fit."""
    name, shape, dtype = expected
    for i, leaf in enumerate(leaves):
      if leaf.shape != shape or leaf.dtype != dtype:  # numpy would broadcast and cast.
        raise self._misfit(
            i, f'{name} = {_short(leaf.tolist())} has shape {leaf.shape} and dtype '
            f'{leaf.dtype}: expected {shape} and {dtype}, as its spec says')
    return np.array(leaves, specs_lib.narrowed(dtype))

  def _check(self, rewards: np.ndarray, discounts: np.ndarray, arrays: list[np.ndarray],
             last: np.ndarray) -> None:
    """Refuses NaN, integers out of bounds, and, but for `last` steps, empty masks."""
    checks = [('reward', rewards, np.isfinite(rewards), 'finite numbers'),
              ('discount', discounts, (discounts >= 0) & (discounts <= 1),  # False for NaN.
               'a number in [0, 1]')]
    for (name, spec), is_narrow, values in zip(self._leaves, self._are_narrow, arrays):
      if values.dtype.kind == 'f':
        checks.append((name, values, np.isfinite(values), 'finite numbers'))
      elif name == _MASK:
        checks.append((name, values, values.any(axis=-1) | last, 'an action to be allowed'))
      elif is_narrow:
        fits = (values >= spec.minimum) & (values <= spec.maximum)
        checks.append((name, values, fits, spec))
    for name, values, fits, expected in checks:
      if not fits.all():
        i = int(np.argmin(fits.reshape(len(fits), -1).all(axis=1)))
        if isinstance(expected, specs.Array):
          expected = specs_lib.describe_bounds(expected)
        raise self._misfit(i, f'{name} = {_short(str(values[i]))}: expected {expected}')


def _as_array(value: Any) -> np.ndarray:
  try:
    return np.array(value)
  except ValueError:  # Lists of different lengths, for example.
    return np.array(value, object)


def _short(value: Any, most: int = 60) -> str:
  """Returns the beginning of a value's text, in one line."""
  text = value if isinstance(value, str) else repr(value)
  return ' '.join(text.split())[:most]


def _play(environment: dm_env.Environment, num_actions: int,
         random: np.random.Generator) -> dm_env.TimeStep:
  """Returns the step after a reset and `num_actions`, or more if that is a last step."""
  time_step, method = environment.reset(), 'reset()'
  begins = True
  while True:
    if not callable(getattr(time_step, 'first', None)):
      raise ValueError(f'{method} returned a {type(time_step).__name__}: expected a '
                       'dm_env.TimeStep')
    if begins and not time_step.first():
      raise ValueError(f'{method} returned a step of type {time_step.step_type!r} '
                       'where an episode begins: expected FIRST')
    begins = time_step.last()
    if num_actions <= 0 and not begins:
      return time_step
    time_step = environment.step(
        specs_lib.random_action(environment.action_spec(), time_step.observation, random))
    method = 'step()'
    num_actions -= 1


def _named_leaves(root: str, nest) -> list[tuple[str, Any]]:
  """Returns leaves with names like `observation['position']`."""
  return [(root + ''.join(f'[{key!r}]' for key in path), leaf)
          for path, leaf in tree.flatten_with_path(nest)]


def _flattening(spec: Any) -> Callable[[Any], Sequence[Any]]:
  """Returns a function that returns the leaves of an observation, in the order of dm-tree."""
  if not tree.is_nested(spec):
    return lambda observation: (observation,)
  if isinstance(spec, dict) and len(spec) > 1 and not any(map(tree.is_nested, spec.values())):
    return operator.itemgetter(*sorted(spec))  # In a seventh of the time of dm-tree.
  return tree.flatten


def _with_narrow_floats(spec: specs.Array) -> specs.Array:
  """Returns `spec` with float32 in place of float64."""
  dtype = specs_lib.narrowed(spec.dtype)
  if dtype == spec.dtype:
    return spec
  with np.errstate(over='ignore'):  # A bound beyond float32 becomes infinite.
    return spec.replace(dtype=dtype)


def _check_specs(environments: list[dm_env.Environment]) -> None:
  """Raises a ValueError that says why, if environments cannot be batched."""
  if not environments:
    raise ValueError('environments is empty: expected at least one')
  if len({id(_unwrapped(environment)) for environment in environments}) < len(environments):
    raise ValueError(
        'environments holds one environment twice, perhaps under wrappers: each needs '
        'its own episode')
  first = {}  # The specs of environment 0.
  for i, environment in enumerate(environments):
    for method in ('reset', 'step', 'reward_spec', 'observation_spec', 'action_spec'):
      if not callable(getattr(environment, method, None)):
        raise ValueError(
            f'environment {i} is a {type(environment).__name__} without {method}(): '
            'expected a dm_env.Environment; GymnasiumEnvironment makes one of a '
            'gymnasium environment')
    found = {}
    for kind in ('reward', 'observation', 'action'):
      try:
        found[kind] = getattr(environment, f'{kind}_spec')()
      except Exception as error:
        raise ValueError(f'environment {i}: {kind}_spec() failed with '
                         f'{config.described(error)}') from error
    for kind, spec in found.items():
      if i and spec != first[kind]:
        raise ValueError(f'environment {i}: {kind}_spec is {spec}, in environment 0 it is '
                         f'{first[kind]}')
    first = found
  if not isinstance(first['reward'], specs.Array) or first['reward'].shape:
    raise ValueError(f'environment 0: reward_spec is {first["reward"]}: expected a scalar')
  if not tree.flatten(first['action']):
    raise ValueError(
        f'environment 0: action_spec is {first["action"]}: expected at least one action')
  for kind in ('observation', 'action'):
    tree.traverse(
        functools.partial(_check_node, f'environment 0: {kind}_spec'), first[kind])
    for name, spec in _named_leaves(kind, first[kind]):
      if not isinstance(spec, specs.Array):
        raise ValueError(
            f'environment 0: {kind}_spec has {type(spec).__name__} for {name}: '
            'expected a dm_env.specs.Array, or dictionaries, lists or tuples of them')
      if spec.dtype.kind not in 'biuf':
        raise ValueError(f'environment 0: {name} has dtype {spec.dtype}: expected '
                         'numbers or bools, and no complex ones')
      if np.isnan(specs_lib.bounds(spec)).any():
        raise ValueError(f'environment 0: {name} has the bounds {spec.minimum} and '
                         f'{spec.maximum}: expected numbers, infinite ones for no bound')


def _unwrapped(environment: Any) -> Any:
  """Returns what is within an environment's wrappers, ours and those of gymnasium."""
  while isinstance(inner := getattr(environment, '_environment', None), dm_env.Environment):
    environment = inner
  task = getattr(environment, '_task', None)  # As in `FromGymnasium`.
  return getattr(task, 'unwrapped', environment)


def _check_node(name: str, node: Any) -> None:
  """Refuses keys that a SavedModel cannot name, before a run trains what it exports."""
  if isinstance(node, Mapping) and not (
      all(isinstance(key, str) and _KEY.fullmatch(key) for key in node)
      and len({key.lower() for key in node}) == len(node)):
    raise ValueError(f'{name} has the keys {[*node]}: expected names of letters, digits, _, '
                     '-, . and / that differ in more than case')
