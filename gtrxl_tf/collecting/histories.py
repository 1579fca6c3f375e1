"""Collects learning histories of a source into datasets.

The folder of a collection has

  training/     a dataset of the kind 'histories', see `datasets/format.py`
  evaluation/   a dataset of histories in other tasks, which are never in training

Work is divided into pieces, each with its own random numbers, so that an interrupted
collection continues after the last complete piece, with the same result.
"""

import os
import pathlib
import sys
from typing import Annotated, Callable, List, Optional, Union

from dm_env import specs as dm_specs
import numpy as np

from gtrxl_tf.collecting import progress as progress_lib
from gtrxl_tf.collecting import source as source_lib
from gtrxl_tf.datasets import format as format_lib
from gtrxl_tf.datasets import reader
from gtrxl_tf.datasets import writer as writer_lib
from gtrxl_tf.environments import task_batch
from gtrxl_tf.settings import config

# Tasks that are played at once. More take more memory and are hardly faster.
_PIECE = 1000


@config.configurable
class HistoryCollector:
  """Defines a collection of histories, and plays its pieces.

  A dataset stores these settings and gin's, and only a collector with the same settings
  continues it.

  Args:
    family: the family of tasks.
    source: makes the algorithm that learns; called with `tasks`, `num_steps`, `seed`.
    num_histories: number of histories for training, each in a task that is drawn with
      replacement; 10,000 in the paper (Table S1).
    num_evaluation: number of `evaluation_tasks`, with one history each; 100 in the
      paper.
    seed: seeds the tasks and the source.
  """

  def __init__(self,
               family: task_batch.TaskFamily,
               source: Callable[..., source_lib.Source],
               num_histories: config.PositiveInt = 10_000,
               num_evaluation: Annotated[int, config.Range(1, _PIECE)] = 100,
               seed: config.NonNegativeInt = 0):
    self.family = family
    self._source = source
    self.num_histories = {'training': num_histories, 'evaluation': num_evaluation}
    self._seed = seed
    prototype = family.make('training', 1, 0)
    source(tasks=prototype, num_steps=family.num_steps, seed=0)
    self.specs = format_lib.Specs(
        prototype.observation_spec(), prototype.action_spec(), prototype.reward_spec(),
        dm_specs.Array((), np.uint8, 'discount'))
    self.settings = progress_lib.settings('HistoryCollector', dict(
        num_histories=num_histories, num_evaluation=num_evaluation, seed=seed))

  def evaluation_tasks(self) -> task_batch.TaskBatch:
    """Returns new copies of the tasks in which the source is evaluated."""
    return self._tasks('evaluation', 0)

  def training_tasks(self, num_tasks: int) -> task_batch.TaskBatch:
    """Draws tasks of training; the same number gives the same tasks."""
    return self._tasks('training', 0, num_tasks)

  def play(self, split: task_batch.Split, piece: int) -> source_lib.LearningHistories:
    """Plays the histories of a piece of work."""
    tasks = self._tasks(split, piece)
    [source_seed] = np.random.SeedSequence(
        [self._seed, piece, split == 'evaluation', 1]).generate_state(1)
    return source_lib.play(
        tasks, self._source(tasks=tasks, num_steps=self.family.num_steps,
                            seed=int(source_seed)), self.family.num_steps)

  def _tasks(self, split: task_batch.Split, piece: int, num: Optional[int] = None
             ) -> task_batch.TaskBatch:
    num = num or min(_PIECE, self.num_histories[split] - piece * _PIECE)
    [seed] = np.random.SeedSequence([self._seed, piece]).generate_state(1)
    return self.family.make(split, num, int(seed))


def collect(collector: HistoryCollector, path: Union[str, os.PathLike],
            stream=sys.stdout) -> reader.Dataset:
  """Collects both splits into the folder `path`; returns the training histories."""
  collect_split(collector, 'evaluation', path, stream)
  return collect_split(collector, 'training', path, stream)


def collect_split(collector: HistoryCollector, split: task_batch.Split,
                  path: Union[str, os.PathLike], stream=sys.stdout) -> reader.Dataset:
  """Collects the histories of a split, or resumes a collection that stopped.

  The dataset is in the subfolder of `path` with the split's name; progress is printed on
  `stream`.
  """
  path = pathlib.Path(path)
  with writer_lib.EpisodeWriter(
      path / split, collector.specs, collector.family.name, collector.settings,
      kind='histories', final_observation=False) as writer:
    progress = progress_lib.Progress(
        writer, collector.num_histories[split], f'{split} histories', stream)
    for piece in range(writer.progress or 0, -(-collector.num_histories[split] // _PIECE)):
      histories = _episodes(collector.play(split, piece))
      writer.write(histories, progress=piece + 1)
      progress.show(histories, len(histories))
  return reader.open_dataset(path / split)


def _episodes(histories: source_lib.LearningHistories) -> List[format_lib.Episode]:
  """Converts histories to episodes, as the writer takes them."""
  discount = (histories.end != format_lib.End.TERMINATION).astype(np.uint8)
  return [format_lib.Episode(observation, action, reward, discount, end)
          for observation, action, reward, discount, end in zip(
              histories.observation, histories.action, histories.reward, discount,
              histories.end)]
