"""Samplers of offline training: the steps in each batch, and the memory they start with.

A sampler makes the batch of every learner step and observes the step's metrics. It is
part of the checkpoint, so that an interrupted run resumes with the same batches.
"""

import collections
import dataclasses
import functools
import io
from typing import Any, Callable, Dict, Iterator, Literal, Mapping, Optional

import numpy as np
import tensorflow as tf

from gtrxl_tf import datasets
from gtrxl_tf import nests
from gtrxl_tf.environments import specs as specs_lib
from gtrxl_tf.networks import action_space
from gtrxl_tf.networks import decision
from gtrxl_tf.settings import config

_POOL_STREAM = 1  # A stream of random numbers; the order of episodes has another.


@dataclasses.dataclass
class Trajectories:
  """Reads the trajectories of a dataset in batches.

  Attributes:
    dataset: the dataset.
    space: the space of the actions.
    segment_length: K.
    num_segments: N.
    batch_size: B.
    seed: seeds the order of episodes and the draws of samplers.
    return_scale: returns are divided by it.
    frame_stack: see `datasets.gather`.
    starts: see `datasets.segments`.
    min_window_return: see `datasets.segments`.
  """
  dataset: datasets.Dataset
  space: action_space.ActionSpace
  segment_length: int
  num_segments: int
  batch_size: int
  seed: int
  return_scale: float
  frame_stack: int = 1
  starts: Literal['first', 'random', 'any'] = 'first'
  min_window_return: Optional[float] = None

  def batches(self, first_batch: int, max_length: Optional[int] = None
              ) -> Iterator[datasets.SegmentBatch]:
    """Yields batches from number `first_batch` on, without episodes beyond `max_length`."""
    return datasets.segments(
        self.dataset, self.segment_length, self.num_segments, self.batch_size, self.seed,
        self.starts, self.min_window_return, self.frame_stack, first_batch, max_length)

  def gather(self, episodes: np.ndarray, length: int) -> datasets.SegmentBatch:
    """Returns the first `length` steps of `episodes`, padded where they are shorter."""
    return datasets.gather(self.dataset, episodes, np.zeros_like(episodes), length,
                           self.frame_stack)

  def segments(self, batch: datasets.SegmentBatch, is_first: np.ndarray,
               state: Any = ()) -> decision.Segments:
    """Returns a batch as tensors.

    Args:
      batch: [B, T, ...].
      is_first: [B], whether a row begins without memory.
      state: see `decision.Segments`.
    """
    begins = np.zeros(batch.mask.shape, bool)
    begins[:, 0] = is_first

    def constant(x):
      return tf.constant(x, specs_lib.narrowed(x.dtype))

    valid, action = tf.constant(batch.mask), self.space.from_environment(batch.action)
    return decision.Segments(
        return_to_go=tf.constant(batch.return_to_go / self.return_scale),
        observation=tf.nest.map_structure(constant, batch.observation),
        # Padding is 0 in the environment's units, which may be no action.
        action=nests.where(valid, action, tf.nest.map_structure(tf.zeros_like, action)),
        reward=tf.constant(batch.reward), discount=tf.constant(batch.discount),
        is_first=tf.constant(begins), valid=valid,
        state=tf.nest.map_structure(constant, state),
        timestep=tf.constant(
            batch.start[:, np.newaxis] + np.arange(batch.mask.shape[1]), tf.int32))


def numbered(nest: Any) -> Dict[str, np.ndarray]:
  """Returns the arrays of a nest, named by their numbers."""
  return {str(i): np.asarray(x) for i, x in enumerate(tf.nest.flatten(nest))}


def from_numbered(structure: Any, arrays: Mapping[str, np.ndarray]) -> Any:
  """Returns the nest of the given structure whose arrays `numbered` has named."""
  return tf.nest.pack_sequence_as(
      structure, [arrays[str(i)] for i in range(len(arrays))])


class Sampler(tf.train.experimental.PythonState):
  """Makes the batches of learner steps; its state is part of checkpoints.

  With `OfflineExperiment.steps_per_call` it makes the batches of several steps before
  it observes the last of them. Meanwhile it makes those of the next call in a thread.

  Attributes:
    one_step_per_call: whether `steps_per_call` must be 1, because the sampler must
      observe every step.
    state: the field `state` of the batch that follows the observed steps; `()` if the
      sampler does not carry one on the devices.
  """
  one_step_per_call = False
  state: Any = ()

  def __init__(self, trajectories: Trajectories,
               initial_state: Callable[[int], Any], learner_steps: int):
    """Creates the sampler.

    Args:
      trajectories: the trajectories to take batches from.
      initial_state: makes the network's state for a batch size.
      learner_steps: number of learner steps in the run.
    """
    self._trajectories = trajectories
    self._make_state = initial_state
    self._learner_steps = learner_steps
    self._batches = None

  @functools.cached_property
  def _initial_state(self) -> Any:
    """The network's state before the first step, nest of [B, ...]."""
    state = self._make_state(self._trajectories.batch_size)
    if not tf.nest.flatten(state):
      raise config.ConfigError(
          f'OfflineExperiment.sampler = @{type(self).__name__}: expected a network that '
          'carries memory from segment to segment')
    return tf.nest.map_structure(lambda x: x.numpy(), state)

  def batch(self, step: int) -> decision.Segments:
    """Returns the batch of learner step `step`; called for each step in order."""
    raise NotImplementedError

  def observe(self, step: int, metrics: Mapping[str, Any]) -> None:
    """Observes the metrics of learner step `step`, the last one of a call."""

  def arrays(self) -> Dict[str, np.ndarray]:
    """Returns the arrays that a checkpoint keeps."""
    return {}

  def restore_arrays(self, arrays: Dict[str, np.ndarray]) -> None:
    """Restores the arrays that a checkpoint kept."""

  def serialize(self) -> bytes:
    file = io.BytesIO()
    np.savez(file, dataset_checksum=self._trajectories.dataset.checksum, **self.arrays())
    return file.getvalue()

  def deserialize(self, string_value: bytes) -> None:
    with np.load(io.BytesIO(string_value), allow_pickle=False) as file:
      arrays = dict(file)
    dataset = self._trajectories.dataset
    expected = str(arrays.pop('dataset_checksum', dataset.checksum))
    if dataset.checksum != expected:
      raise config.ConfigError(
          f'OfflineExperiment.dataset: {dataset.path} is not what the run has learned '
          f'from: its checksum is {dataset.checksum}, expected {expected}')
    self.restore_arrays(arrays)


@config.configurable
class WholeTrajectories(Sampler):
  """Trains on N segments of each row in every learner step.

  Gradients pass through all of them, as far as the core lets them.

  Args:
    curriculum: trains in N stages of equal length, the j-th on the episodes of at most
      j segments (RATE, appendix F.2). The paper finds that it does not help. Rows are
      padded to N segments, for models whose segment is the whole context.

  Attributes:
    curriculum: as given.
  """

  def __init__(self, trajectories: Trajectories,
               initial_state: Callable[[int], Any], learner_steps: int,
               curriculum: bool = False):
    super().__init__(trajectories, initial_state, learner_steps)
    self.curriculum = curriculum
    self._num_stages = trajectories.num_segments if curriculum else 1
    self._stage = None

  def batch(self, step: int) -> decision.Segments:
    trajectories = self._trajectories
    stage = 1 + min(step * self._num_stages // self._learner_steps,
                    self._num_stages - 1)
    if stage != self._stage:
      longest = stage * trajectories.segment_length
      self._batches = trajectories.batches(
          step, max_length=longest if stage < self._num_stages else None)
      self._stage = stage
    return trajectories.segments(
        next(self._batches), np.ones(trajectories.batch_size, bool))


@config.configurable
class SegmentBySegment(Sampler):
  """Trains on one segment in every learner step, from the state after the last one.

  No gradient passes between segments. RATE's published code trains in this way: it
  takes N optimizer steps for each batch of trajectories and needs the memory of one
  segment only. What a segment writes to the core's memory is then never trained.
  """
  one_step_per_call = True

  def __init__(self, trajectories: Trajectories,
               initial_state: Callable[[int], Any], learner_steps: int):
    super().__init__(trajectories, initial_state, learner_steps)
    self._state = self._initial_state
    self._whole = None

  def batch(self, step: int) -> decision.Segments:
    trajectories = self._trajectories
    number, segment = divmod(step, trajectories.num_segments)
    if self._batches is None:
      self._batches = trajectories.batches(number)
      self._whole = next(self._batches)
    elif segment == 0:
      self._whole = next(self._batches)
    start = segment * trajectories.segment_length
    steps = slice(start, start + trajectories.segment_length)
    rows = self._whole._asdict()
    per_row = {'episode': rows.pop('episode'), 'start': rows.pop('start') + start}
    cut = tf.nest.map_structure(lambda x: x[:, steps], rows)
    return trajectories.segments(
        datasets.SegmentBatch(**cut, **per_row),
        np.full(trajectories.batch_size, segment == 0), self._state)

  def observe(self, step: int, metrics: Mapping[str, Any]) -> None:
    self._state = tf.nest.map_structure(lambda x: x[:, -1].numpy(), metrics['carried'])

  def arrays(self) -> Dict[str, np.ndarray]:
    return numbered(self._state)

  def restore_arrays(self, arrays: Dict[str, np.ndarray]) -> None:
    self._state = from_numbered(self._state, arrays)


@config.configurable
class MemoryPool(Sampler):
  """Trains on whole trajectories, half of which begin with an earlier batch's memory.

  Training on N segments does not make a memory last longer than these. Here, once the
  loss has fallen, half of the rows begin with the memory of a row of an earlier batch.
  They go through an episode with the same clue, which is hidden from them, so they can
  answer only from memory. Their memory just before the answer then replaces the one
  that they began with. At each step a memory is replaced by a young one with
  probability `renewal`, so that ages are geometrically distributed with a mean of
  1 / `renewal` passes, whatever N is. Neither batches nor gradients become longer.

  The sampler is not from the papers. It trains on memories written by the weights of
  many steps ago, like truncated back-propagation with a carried state, or the sample
  pool of neural cellular automata (Mordvintsev et al., 2020).

  Args:
    clue: a function of a batch's observations and mask that returns what must be
      remembered, such as `t_maze_clue`.
    start_loss: the pool is used once the mean loss of 20 steps is below this. For a
      choice between two turns at the end of up to T steps, 0.4 / T is a third of the
      loss of guessing.
    renewal: the probability, at each step, that a memory is replaced by a young one.
      0.05 was reliable on the T-Maze, 0.02 was not.
  """
  one_step_per_call = True

  def __init__(self, trajectories: Trajectories,
               initial_state: Callable[[int], Any], learner_steps: int,
               clue: Callable[..., Any],
               start_loss: config.PositiveFloat,
               renewal: config.PositiveFraction = 0.05):
    super().__init__(trajectories, initial_state, learner_steps)
    self._clue = clue
    self._start_loss = start_loss
    self._renewal = renewal
    self._num_young = (trajectories.batch_size + 1) // 2
    self._losses = collections.deque(maxlen=20)
    self._labels = None  # [P], the clues of the memories; None before there are any.
    self._states = None  # Nest of [P, ...].
    self._seen = None    # Labels of the current batch, and segments with the answer.

  @functools.cached_property
  def _episodes(self) -> Dict[int, np.ndarray]:
    """The dataset's episodes, by clue."""
    everything = np.arange(self._trajectories.dataset.num_episodes)
    first = self._trajectories.gather(everything, 1)
    labels = self._clue(first.observation, first.mask).label
    return {label: everything[labels == label] for label in np.unique(labels)}

  def batch(self, step: int) -> decision.Segments:
    trajectories = self._trajectories
    if self._batches is None:
      self._batches = trajectories.batches(step)
    batch = next(self._batches)
    is_first = np.ones(trajectories.batch_size, bool)
    state = self._initial_state
    clue = self._clue(batch.observation, batch.mask)
    label = clue.label
    if self._labels is not None:
      is_first[self._num_young:] = False
      random = np.random.default_rng([trajectories.seed, step, _POOL_STREAM])
      old = trajectories.gather(
          np.array([random.choice(self._episodes[x]) for x in self._labels]),
          batch.mask.shape[1])
      hidden = self._clue(old.observation, old.mask)
      old = old._replace(observation=hidden.without)

      def join(young: np.ndarray, old: np.ndarray) -> np.ndarray:
        return np.concatenate([young[:self._num_young], old])

      batch = tf.nest.map_structure(join, batch, old)
      clue = tf.nest.map_structure(join, clue, hidden)
      label = join(label, self._labels)
      state = tf.nest.map_structure(join, state, self._states)
    self._seen = label, clue.answer // trajectories.segment_length
    return trajectories.segments(batch, is_first, state)

  def observe(self, step: int, metrics: Mapping[str, Any]) -> None:
    expected = self._trajectories.num_segments
    found = tf.nest.flatten(metrics['carried'])[0].shape[1]
    if found != expected:
      raise config.ConfigError(
          f'OfflineExperiment.sampler = @MemoryPool: the core has {found} segments in a '
          f'row: expected {expected}, which is OfflineExperiment.num_segments')
    label, segment = self._seen
    # The memory of each row when the segment with the answer began.
    rows = np.arange(len(label))
    before = tf.nest.map_structure(
        lambda x: x.numpy()[rows, np.maximum(segment - 1, 0)], metrics['carried'])
    young, old = np.split(rows, [self._num_young])
    young = young[segment[:self._num_young] > 0]
    if self._labels is None:
      self._losses.append(float(metrics['loss']))
      if (len(young) and len(self._losses) == self._losses.maxlen
          and np.mean(self._losses) < self._start_loss):
        self._take(label, before, np.resize(young, len(old)))
      return
    random = np.random.default_rng(
        [self._trajectories.seed, step, _POOL_STREAM, _POOL_STREAM])
    renewed = random.random(len(old)) < self._renewal
    chosen = np.where(
        renewed & bool(len(young)),
        random.choice(young, len(old)) if len(young) else old, old)
    # A row without a segment before the answer keeps its memory.
    states = tf.nest.map_structure(
        lambda now, then: np.concatenate([now, then]), before, self._states)
    stays = segment[chosen] == 0
    self._take(np.concatenate([label, self._labels]), states,
               np.where(stays, len(rows) + np.arange(len(old)), chosen))

  def _take(self, label: np.ndarray, states: Any, rows: np.ndarray) -> None:
    """Keeps the memories of `rows` in the pool."""
    self._labels = label[rows]
    self._states = tf.nest.map_structure(lambda x: x[rows], states)

  def arrays(self) -> Dict[str, np.ndarray]:
    arrays = {'losses': np.array(self._losses)}
    if self._labels is not None:
      arrays['labels'] = self._labels
      arrays.update(numbered(self._states))
    return arrays

  def restore_arrays(self, arrays: Dict[str, np.ndarray]) -> None:
    self._losses.extend(arrays.pop('losses'))
    self._labels = arrays.pop('labels', None)
    if self._labels is not None:
      self._states = from_numbered(self._initial_state, arrays)
