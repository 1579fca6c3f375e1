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
import importlib
import itertools
import multiprocessing
import os
import pathlib
import signal
import sys
import threading
from typing import Any, Callable, Iterator, List, Literal, Mapping, Optional, Sequence, Tuple, Union

import dm_env
import gin
import numpy as np
import tree

from gtrxl_tf import environments
from gtrxl_tf.collecting import progress as progress_lib
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
    own = dict(num_episodes=num_episodes, policy=policy, saved_model=saved_model,
               epsilon=epsilon, keep=keep, seed=seed)
    own |= {} if tasks is None else {'tasks': tasks}
    own |= {} if record == 'played' else {'record': record}
    for x in (environment, *(wrappers or ())):
      if isinstance(x, functools.partial):
        own |= {name: value for name, value in x.keywords.items()
                if isinstance(value, (bool, int, float, str, tuple))}
    self.settings = progress_lib.settings('Collector', own)
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
    act = (self._saved_model_actions(num) if self._saved_model else
           self._method_actions(made, batched))

    episodes: List[List[format_lib.Episode]] = [[] for _ in made]
    rows: List[format_lib.Specs] = []  # Steps of all environments.
    begins = np.zeros(num, np.int64)  # The first row of each present episode.
    seen, over = batched.reset(), np.zeros(num, bool)
    while min(map(len, episodes)) < each:
      chosen = act(seen, over)
      played = tree.map_structure(np.array, chosen)
      for i in np.flatnonzero(over | (random.random(num) < self._epsilon)):
        observation = tree.map_structure(lambda x, i=i: x[i], seen.observation)
        drawn = environments.random_action(self.specs.action, observation, random)
        for leaf, value in zip(tree.flatten(played), tree.flatten(drawn)):
          leaf[i] = value
      after = batched.step(played)
      rows.append(format_lib.Specs(
          seen.observation, played if self._record == 'played' else chosen,
          after.reward, after.discount))
      if over.any():
        begins[over] = len(rows)
        first = begins.min()
        del rows[:first]
        begins -= first
      seen, over = after, after.last()
      for i in np.flatnonzero(over):
        steps = tree.map_structure(
            lambda *leaves, i=i: np.stack([x[i] for x in leaves]), *rows[begins[i]:])
        episodes[i].append(format_lib.make_episode(
            *steps, float(after.episode_success[i]),
            tree.map_structure(lambda x, i=i: x[i], after.observation)))
    batched.close()
    return [episode for of_one in episodes for episode in of_one[:each]]

  def _method_actions(self, made: Sequence[dm_env.Environment],
                      batched: environments.BatchedEnvironment) -> Callable[..., Any]:
    """Returns a function that chooses actions by the environments' own method.

    It is called with a batched time step and with whether each episode has ended, where
    the action does not matter, and returns a nest of actions [E, ...].
    """
    spec = self.specs.action
    nothing = tree.map_structure(lambda leaf: np.zeros(leaf.shape, leaf.dtype), spec)

    def of_one(i: int) -> Any:
      try:
        # Copied: the method may write into the same array again.
        return tree.map_structure_up_to(
            spec, lambda leaf, x: np.array(x, leaf.dtype), spec,
            getattr(made[i], self._policy)())
      except (Exception, SystemExit) as error:
        raise batched.failed(i, error, f'{self._policy}()') from error

    return lambda unused_seen, over: tree.map_structure(lambda *x: np.stack(x), *(
        nothing if last or self._only_random else of_one(i)
        for i, last in enumerate(over)))

  def _saved_model_actions(self, num: int) -> Callable[..., Any]:
    """Returns a function like that of `_method_actions`, with the policy's state."""
    import tensorflow as tf  # pylint: disable=g-import-not-at-top
    state = self._loaded.get_initial_state(num)

    def act(seen: environments.BatchedTimeStep, unused_over: np.ndarray) -> Any:
      nonlocal state
      step = self._loaded.action(dm_env.TimeStep(*tree.map_structure(
          tf.constant, (seen.step_type, seen.reward, seen.discount, seen.observation))),
                                 state)
      state = step.state
      return tree.unflatten_as(
          self.specs.action, [x.numpy() for x in tree.flatten(step.action)])

    return act

  def kept(self, episodes: Sequence[format_lib.Episode], successes: int, failures: int
           ) -> List[format_lib.Episode]:
    """Returns the episodes to keep, given how many of each kind have been kept."""
    most = self.num_episodes
    failed, successful = {'all': (most, most), 'successful': (0, most),
                          'balanced': (most // 2, -(-most // 2))}[self._keep]
    room = [failed - failures, successful - successes]
    found = []
    for episode in episodes:
      success = int(episode.success == 1)
      if room[success] > 0 and len(found) < most - successes - failures:
        found.append(episode)
        room[success] -= 1
    return found


def collect(collector: Collector, path: Union[str, os.PathLike], num_processes: int = 1,
            stream=sys.stdout) -> reader.Dataset:
  """Collects episodes into the folder `path`, or continues a collection there.

  Args:
    collector: what to collect. With more than one process, it must be as the current
      gin settings make it, since each process makes its own collector from them.
    path: the dataset's folder.
    num_processes: number of processes that play; this process writes. If one is killed,
      there is a `BrokenProcessPool`, and the dataset is valid.
    stream: where the progress is shown.
  """
  path = pathlib.Path(path)
  with writer_lib.EpisodeWriter(
      path, collector.specs, collector.environment_name, collector.settings) as writer:
    written = reader.open_dataset(path)
    successes = int((written.successes == 1).sum())
    progress = progress_lib.Progress(writer, collector.num_episodes, 'episodes', stream)
    fruitless = 0
    with contextlib.closing(
        _played(collector, writer.progress or 0, num_processes)) as pieces:
      while writer.num_episodes < collector.num_episodes:
        piece, episodes = next(pieces)
        kept = collector.kept(episodes, successes, writer.num_episodes - successes)
        writer.write(kept, progress=piece + 1)
        successes += sum(episode.success == 1 for episode in kept)
        progress.show(kept, len(episodes))
        fruitless = 0 if kept else fruitless + len(episodes)
        if fruitless >= _MAX_EPISODES_FOR_NOTHING:
          raise config.ConfigError(
              'Collector.keep: expected episodes of that kind, but none of the last '
              f'{_MAX_EPISODES_FOR_NOTHING:,} was kept')
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


_collector: Collector  # Each process of the pool has one.


def _start(modules: Sequence[str], settings: str) -> None:
  """Prepares a process of the pool, which ends with the one that started it."""
  global _collector
  signal.signal(signal.SIGINT, signal.SIG_IGN)  # A terminal sends it to all processes.
  threading.Thread(target=_end_with_parent, daemon=True).start()
  import tensorflow as tf  # pylint: disable=g-import-not-at-top
  tf.config.threading.set_intra_op_parallelism_threads(1)
  tf.config.threading.set_inter_op_parallelism_threads(1)
  for module in modules:
    importlib.import_module(module)
  config.parse([], [settings])
  _collector = Collector()
  # Python would unload parts of TensorFlow before a SavedModel that needs them.
  atexit.register(os._exit, 0)


def _end_with_parent() -> None:
  multiprocessing.parent_process().join()
  os._exit(1)


def _play(piece: int) -> List[format_lib.Episode]:
  return _collector.play(piece)
