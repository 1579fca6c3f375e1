"""Collects episodes of an environment into a dataset, with many processes.

What is collected depends only on the settings. Work is divided into numbered pieces,
each with its own random numbers, and the pieces are written in their order. The number
of processes therefore does not matter, and an interrupted collection continues with the
piece after the last one that was written.
"""

import atexit
import collections
from concurrent import futures
import contextlib
import functools
import gc
import importlib
import itertools
import multiprocessing
import os
import pathlib
import signal
import sys
import threading
import time
from typing import Any, Callable, Iterator, List, Literal, Mapping, Optional, Sequence, Tuple, Union

import dm_env
import gin
import numpy as np
import tree

from gtrxl_tf import environments
from gtrxl_tf import progress as progress_lib
from gtrxl_tf.datasets import format as format_lib
from gtrxl_tf.datasets import reader
from gtrxl_tf.datasets import writer as writer_lib
from gtrxl_tf.settings import config
from gtrxl_tf.settings import seeds as seeds_lib

# A piece of work: (environments, episodes of each). A SavedModel is faster in batches;
# a method of the environment is not, and an environment may take long to make.
_PIECE_OF_METHOD, _PIECE_OF_SAVED_MODEL = (1, 8), (8, 1)
# Gives up after this many episodes of which none was kept.
_MAX_EPISODES_FOR_NOTHING = 2000


@config.configurable
class Collector:
  """Defines a collection of episodes, and plays its pieces.

  A dataset keeps these settings and gin's, and only a collector with the same settings
  continues it.

  Args:
    environment: makes an environment; called with `seed`.
    wrappers: change every environment, as those of an experiment do.
    num_episodes: how many episodes to keep.
    tasks: several tasks, which take turns of a few episodes: the setting of
      `environment` in which they differ, and its values, as in
      `{'corridor_length': (28, 58, 88)}`.
    policy: a method of the environment that returns an action, such as
      `informed_action`, which knows what the agent should remember. RATE's T-Maze is
      played by such an oracle; Minigrid's `looking_action` looks at the clue first.
    saved_model: folder of an exported policy that acts instead. TensorFlow cannot seed
      a SavedModel that samples: only greedy ones act the same again.
    epsilon: probability of a random action in place of the policy's, at every step;
      with 1 the environment needs no method `policy`.
    record: which action a step with a random one has in the dataset: the one 'played',
      or that of the 'policy', which shows imitators how to recover from mistakes (DART,
      Laskey et al., 2017). Rewards and observations are those of the action played.
    keep: which episodes to keep: 'all'; 'successful' ones, as in RATE's data from
      oracles; or 'balanced', equally many successful and failed ones.
    seed: seeds environments and random actions.
  """

  def __init__(self,
               environment: Callable[..., dm_env.Environment],
               num_episodes: config.PositiveInt = 1000,
               tasks: Optional[Mapping[str, Sequence[Any]]] = None,
               policy: str = 'informed_action',
               saved_model: Optional[str] = None,
               epsilon: config.UnitInterval = 0.0,
               keep: Literal['all', 'successful', 'balanced'] = 'all',
               seed: config.NonNegativeInt = 0,
               wrappers: Optional[Sequence[Callable[..., dm_env.Environment]]] = None,
               record: Literal['played', 'policy'] = 'played'):
    self._environment = functools.partial(
        environments.make, 'Collector', environment, wrappers=wrappers)
    self.num_episodes = num_episodes
    self._task_settings = environments.task_settings('Collector', tasks)
    self._policy = policy
    self._saved_model = saved_model
    self._epsilon = epsilon
    self._record = record
    self._keep = keep
    self._seed = seed
    prototype = self._environment(seed=seed, **self._task_settings[0])
    self.environment_name = getattr(prototype, 'name', type(prototype).__name__)
    # Arguments that did not come from gin are added as comments.
    own = dict(num_episodes=num_episodes, policy=policy, saved_model=saved_model,
               epsilon=epsilon, keep=keep, seed=seed)
    own |= {} if tasks is None else {'tasks': tasks}
    own |= {} if record == 'played' else {'record': record}
    for x in (environment, *(wrappers or ())):
      if isinstance(x, functools.partial):
        own |= {name: value for name, value in x.keywords.items()
                if isinstance(value, (bool, int, float, str, tuple))}
    self.settings = '\n'.join([
        *(f'# Collector.{name} = {value!r}' for name, value in own.items()), '',
        gin.operative_config_str()])
    batched = environments.BatchedEnvironment([prototype])
    self.specs = format_lib.Specs(batched.observation_spec(), batched.action_spec())
    batched.close()
    self._only_random = saved_model is None and not callable(
        getattr(prototype, policy, None))
    if self._only_random and (epsilon < 1 or record == 'policy'):
      raise config.ConfigError(
          f'Collector.policy = {policy!r}: expected a method of '
          f'{self.environment_name}, or an exported policy as Collector.saved_model, or '
          'Collector.epsilon = 1.0, which plays at random')
    if saved_model is not None and not os.path.isdir(saved_model):
      raise config.ConfigError(f'Collector.saved_model = {saved_model!r}: expected the '
                               'folder of a SavedModel')
    if keep != 'all' and not hasattr(prototype, 'episode_success'):
      raise config.ConfigError(f"Collector.keep = {keep!r}: expected 'all', as "
                               f'{self.environment_name} does not report success')

  @functools.cached_property
  def _loaded(self) -> Any:
    """The SavedModel."""
    from gtrxl_tf.serving import exported  # pylint: disable=g-import-not-at-top
    return exported.load(self._saved_model, False, self.specs[:2])

  def play(self, piece: int) -> List[format_lib.Episode]:
    """Plays the episodes of a piece of work."""
    num, each = _PIECE_OF_SAVED_MODEL if self._saved_model else _PIECE_OF_METHOD
    *seeds, noise_seed = seeds_lib.sequence(
        self._seed, seeds_lib.Stream.COLLECTION, piece).generate_state(num + 1)
    random = np.random.default_rng(noise_seed)
    settings = self._task_settings[piece % len(self._task_settings)]
    made = [self._environment(seed=int(seed), **settings) for seed in seeds]
    batched = environments.BatchedEnvironment(made)
    if self._only_random:
      act = None
    elif self._saved_model:
      act = self._saved_model_actions(num)
    else:
      act = self._method_actions(made, batched)

    rows: List[list] = [[] for _ in made]
    episodes: List[list] = [[] for _ in made]
    seen = batched.reset()
    over = np.zeros(num, bool)
    while min(map(len, episodes)) < each:
      # Lists of leaves, for each environment.
      actions = act(seen, over) if act else [None] * num
      chosen = list(actions)
      for i in np.flatnonzero(over | (random.random(num) < self._epsilon)):
        observation = tree.map_structure(lambda x, i=i: x[i], seen.observation)
        actions[i] = tree.flatten(
            environments.random_action(self.specs.action, observation, random))
      after = batched.step(tree.unflatten_as(
          self.specs.action, [np.stack(leaf) for leaf in zip(*actions)]))
      ends = after.last()
      observed = tree.flatten(seen.observation)
      recorded = actions if self._record == 'played' else chosen
      for i in np.flatnonzero(~over):  # The others begin an episode.
        rows[i].append((*(leaf[i] for leaf in observed), *recorded[i],
                        after.reward[i], after.discount[i]))
        if ends[i]:
          final = [leaf[i] for leaf in tree.flatten(after.observation)]
          episodes[i].append(self._episode(rows[i], final, after.episode_success[i]))
          rows[i] = []
      seen, over = after, ends
    batched.close()
    return [episode for of_one in episodes for episode in of_one[:each]]

  def _method_actions(self, made: Sequence[dm_env.Environment],
                      batched: environments.BatchedEnvironment
                      ) -> Callable[..., List[Any]]:
    """Returns a function that chooses actions by the environments' own method.

    It is called with a batched time step and with whether each episode has ended. It
    returns an action for each environment, None where an episode has ended.
    """
    leaves = tree.flatten(self.specs.action)

    def of_one(i: int) -> List[np.ndarray]:
      try:
        action = tree.flatten_up_to(
            self.specs.action, getattr(made[i], self._policy)(), check_types=False)
        # Copied: the method may write into the same array again.
        return [np.array(x, spec.dtype) for spec, x in zip(leaves, action)]
      except (Exception, SystemExit) as error:
        raise batched.failed(i, error, f'{self._policy}()') from error

    return lambda unused_seen, over: [
        None if last else of_one(i) for i, last in enumerate(over)]

  def _saved_model_actions(self, num: int) -> Callable[..., List[Any]]:
    """Returns a function like that of `_method_actions`, with the policy's state."""
    import tensorflow as tf  # pylint: disable=g-import-not-at-top
    state = self._loaded.get_initial_state(num)

    def act(seen: environments.BatchedTimeStep, unused_over: Any
            ) -> List[Any]:
      nonlocal state
      step = self._loaded.action(dm_env.TimeStep(*tree.map_structure(
          tf.constant, (seen.step_type, seen.reward, seen.discount, seen.observation))),
                                 state)
      state = step.state
      leaves = [leaf.numpy() for leaf in tree.flatten(step.action)]
      return [[leaf[i] for leaf in leaves] for i in range(num)]

    return act

  def _episode(self, rows: Sequence[tuple], final_leaves: Sequence[np.ndarray],
               success: float) -> format_lib.Episode:
    """Makes an episode of rows: leaves of observation and action, reward, discount."""
    steps = tree.unflatten_as(self.specs, [np.stack(column) for column in zip(*rows)])
    end = np.zeros(len(rows), np.uint8)
    end[-1] = (format_lib.End.TRUNCATION if steps.discount[-1]
               else format_lib.End.TERMINATION)
    return format_lib.Episode(
        *steps, end, float(success),
        tree.unflatten_as(self.specs.observation, final_leaves))

  def kept(self, episodes: Sequence[format_lib.Episode], successes: int, failures: int
           ) -> List[format_lib.Episode]:
    """Returns the episodes to keep, given how many of each kind have been kept."""
    room = {True: self.num_episodes, False: self.num_episodes}
    if self._keep == 'successful':
      room[False] = 0
    elif self._keep == 'balanced':
      room = {True: -(-self.num_episodes // 2), False: self.num_episodes // 2}
    left = self.num_episodes - successes - failures
    room[True] -= successes
    room[False] -= failures
    found = []
    for episode in episodes:
      successful = episode.success == 1
      if left and room[successful] > 0:
        found.append(episode)
        left -= 1
        room[successful] -= 1
    return found

  def too_rare(self) -> config.ConfigError:
    """Returns the error for when none of many episodes was kept."""
    return config.ConfigError(
        f'Collector.keep = {self._keep!r}: expected episodes of that kind, but none '
        f'of the last {_MAX_EPISODES_FOR_NOTHING:,} was kept')


def collect(collector: Collector, path: Union[str, os.PathLike], num_processes: int = 1,
            stream=sys.stdout) -> reader.Dataset:
  """Collects episodes into the folder `path`, or continues a collection there.

  Args:
    collector: what to collect. With more than one process, it must be as the current
      gin settings make it, since each process makes its own collector from them.
    path: the dataset's folder.
    num_processes: number of processes that play; this process writes.
    stream: where the progress is shown.

  Raises:
    format_lib.DatasetError: the folder holds something else.
    futures.process.BrokenProcessPool: a process was killed; the dataset is valid.
  """
  path = pathlib.Path(path)
  with writer_lib.EpisodeWriter(
      path, collector.specs, collector.environment_name, collector.settings) as writer:
    written = reader.open_dataset(path)
    successes = int((written.successes == 1).sum())
    progress = _Progress(collector.num_episodes, writer.num_episodes, stream)
    fruitless = 0
    with contextlib.closing(
        _played(collector, writer.progress or 0, num_processes)) as pieces:
      while writer.num_episodes < collector.num_episodes:
        piece, episodes = next(pieces)
        kept = collector.kept(episodes, successes, writer.num_episodes - successes)
        writer.write(kept, progress=piece + 1)
        successes += sum(episode.success == 1 for episode in kept)
        progress.update(len(episodes), kept)
        fruitless = 0 if kept else fruitless + len(episodes)
        if fruitless >= _MAX_EPISODES_FOR_NOTHING:
          raise collector.too_rare()
    progress.close()
  return reader.open_dataset(path)


def _played(collector: Collector, first: int, num_processes: int
            ) -> Iterator[Tuple[int, List[format_lib.Episode]]]:
  """Yields the pieces of work in order, from number `first`: number and episodes."""
  if num_processes == 1:
    for piece in itertools.count(first):
      yield piece, collector.play(piece)
  pool = futures.ProcessPoolExecutor(
      num_processes, multiprocessing.get_context('spawn'), _start,
      [config.modules(), gin.config_str()])
  waiting = collections.deque()
  try:
    for piece in itertools.count(first):
      waiting.append((piece, pool.submit(_play, piece)))
      if len(waiting) == 2 * num_processes:
        number, played = waiting.popleft()
        yield number, played.result()
  finally:
    pool.shutdown(cancel_futures=True)


_collector: Optional[Collector]  # In a process of the pool.


def _start(modules: Sequence[str], settings: str) -> None:
  """Prepares a process of the pool.

  A terminal sends SIGINT to all processes; only the one that started the pool reacts
  to it. When that process is gone, this one ends too.
  """
  global _collector
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  threading.Thread(target=_end_with_parent, daemon=True).start()
  import tensorflow as tf  # pylint: disable=g-import-not-at-top
  tf.config.threading.set_intra_op_parallelism_threads(1)
  tf.config.threading.set_inter_op_parallelism_threads(1)
  for module in modules:
    importlib.import_module(module)
  config.parse([], [settings])
  _collector = Collector()
  atexit.register(_forget_collector)


def _forget_collector() -> None:
  """Frees a SavedModel before Python unloads the parts of TensorFlow that this needs."""
  global _collector
  _collector = None
  gc.collect()


def _end_with_parent() -> None:
  multiprocessing.parent_process().join()
  os._exit(1)


def _play(piece: int) -> List[format_lib.Episode]:
  return _collector.play(piece)


class _Progress:
  """Shows how far a collection has come."""

  def __init__(self, goal: int, num_before: int, stream):
    """Starts the clock.

    Args:
      goal: episodes to keep.
      num_before: episodes that were kept by earlier processes.
      stream: where to write.
    """
    self._goal, self._num_before = goal, num_before
    self._line = progress_lib.ProgressLine(stream)
    self._start = time.monotonic()
    self._played = self._kept = self._steps = self._return = 0
    self._known = self._successes = 0  # Episodes whose success is known, and successes.

  def update(self, num_played: int, kept: Sequence[format_lib.Episode]) -> None:
    """Counts a piece of work."""
    self._played += num_played
    self._kept += len(kept)
    self._steps += sum(len(episode.reward) for episode in kept)
    self._known += sum(not np.isnan(episode.success) for episode in kept)
    self._successes += sum(episode.success == 1 for episode in kept)
    self._return += sum(float(np.sum(episode.reward)) for episode in kept)
    if self._line.is_due():
      self._line.show(self._text())

  def close(self) -> None:
    """Writes the last line."""
    if self._played:
      self._line.show(self._text())
      self._line.close()

  def _text(self) -> str:
    done = self._num_before + self._kept
    speed = self._kept / max(time.monotonic() - self._start, 1e-3)
    left = f'{(self._goal - done) / speed:,.0f} s left' if speed else '- left'
    return ' | '.join([
        f'{done:,} of {self._goal:,} episodes', f'{self._played:,} played',
        f'{self._steps:,} steps', f'{speed:,.1f} episodes/s',
        f'return {_mean(self._return, self._kept)}',
        f'success {_mean(self._successes, self._known)}', left])


def _mean(total: float, count: int) -> str:
  return f'{total / count:.2f}' if count else '-'
