"""Draws the learning curve of a source in the evaluation tasks."""

import os
import pathlib
import sys
from typing import Union

import numpy as np

from gtrxl_tf import collecting
from gtrxl_tf import datasets
from gtrxl_tf.environments import task_batch
from gtrxl_tf.training.offline import history_curves


def draw(collector: collecting.HistoryCollector, evaluation: datasets.Dataset,
         path: Union[str, os.PathLike], stream=sys.stdout) -> None:
  """Writes source.csv and source.png into a folder, and prints the mean of each fifth."""
  path = pathlib.Path(path)
  played = [evaluation.episode(i) for i in range(evaluation.num_episodes)]
  reward = np.stack([history.reward for history in played])
  end = np.stack([history.end for history in played])
  optimum = task_batch.informed_return(collector.evaluation_tasks()).mean()
  curves = {'source': history_curves.curve(reward, end)}
  history_curves.write_csv(path / 'source.csv', curves)
  history_curves.draw(path / 'source.png', curves,
                      f'{collector.family.name}: {len(reward)} tasks', optimum)
  fifths = ' '.join(f'{x:.2f}' for x in history_curves.curve(reward, end, 5).mean)
  print(f'evaluation: the source returns {fifths} in the fifths of its steps, '
        f'{curves["source"].mean[-1]:.2f} at its end; the informed policy '
        f'{optimum:.2f}', file=stream, flush=True)
