"""Learning processes: what episodes returned in the course of them.

Curves of *Memory-Efficient Algorithm Distillation* (Figures 5 to 9), of sources and of
the models that distill them alike.
"""

import csv
import os
import pathlib
from typing import Dict, NamedTuple, Optional, Sequence

from matplotlib import pyplot as plt
import numpy as np

from gtrxl_tf.plots import curves as curves_lib

NUM_BINS = 50


class Curve(NamedTuple):
  """Mean returns, or another measure, in N equal parts of a learning process.

  Attributes:
    steps: [N] where a part ends, in transitions.
    mean: [N] over the environments; NaN until an episode has ended in each of them, as
      those that are over first are the best.
    interval: [N] half the width of the 95 % confidence interval of the mean, NaN where
      there is one environment only.
  """
  steps: np.ndarray
  mean: np.ndarray
  interval: np.ndarray


def returns_by_part(reward: np.ndarray, end: np.ndarray, num_bins: int) -> np.ndarray:
  """Mean return of the episodes that end in each part of a history.

  Curves go by transitions and not by episodes, of which there are more the better an
  environment was learned.

  Args:
    reward: [B, T].
    end: [B, T], not 0 where an episode ends. What does not end does not count.
    num_bins: N.

  Returns:
    float64 [B, N]; where no episode ends in a part, the value before it holds on, and
    NaN if there is none.
  """
  num, num_steps = reward.shape
  rows, steps = np.nonzero(end)
  totals = np.cumsum(reward, axis=1, dtype=np.float64)[rows, steps]
  first = np.diff(rows, prepend=-1) > 0
  returns = totals - np.where(first, 0, np.roll(totals, 1))
  places = rows * num_bins + steps * num_bins // num_steps
  add_up = lambda weights: np.bincount(
      places, weights, num * num_bins).reshape(num, num_bins)
  counts = add_up(np.ones(len(places)))
  with np.errstate(invalid='ignore'):
    values = add_up(returns) / counts
  for i in range(1, num_bins):
    values[:, i] = np.where(counts[:, i], values[:, i], values[:, i - 1])
  return values


def curve(reward: np.ndarray, end: np.ndarray, num_bins: int = NUM_BINS) -> Curve:
  """The curve of B histories; arguments as `returns_by_part` has them."""
  steps = np.arange(1, num_bins + 1) * reward.shape[1] / num_bins
  return summarize(steps, returns_by_part(reward, end, num_bins))


def summarize(steps: np.ndarray, values: np.ndarray) -> Curve:
  """The curve of values [B, N] in parts of histories that end after `steps` [N]."""
  num, num_parts = values.shape
  deviation = values.std(axis=0, ddof=1) if num > 1 else np.full(num_parts, np.nan)
  return Curve(steps, values.mean(axis=0), 1.96 * deviation / np.sqrt(num))


def ratio(value: float, source: float) -> float:
  """How near a policy's return comes to its source's, which is 1.

  Of returns that are costs, as in the tasks quick and dense, it is the source's over
  the policy's.
  """
  over, under = (value, source) if source > 0 else (source, value)
  return over / under if under else float('nan')


def write_csv(path: pathlib.Path, curves: Dict[str, Curve], measure: str = 'return'
              ) -> None:
  """Writes curves by name; the file is there as a whole or not at all."""
  partial = path.with_name(path.name + '.partial')
  with open(partial, 'w', encoding='utf-8', newline='') as file:
    writer = csv.writer(file, lineterminator='\n')
    writer.writerow(['name', 'transitions', measure, 'interval95'])
    for name, values in curves.items():
      for steps, mean, interval in zip(*values):
        writer.writerow([name, f'{steps:g}', f'{mean:.6g}', f'{interval:.4g}'])
  os.replace(partial, path)


def read_csv(path: pathlib.Path) -> Dict[str, Curve]:
  """The curves of returns that `write_csv` wrote; none if there is no file."""
  if not path.exists():
    return {}
  with open(path, encoding='utf-8') as file:
    rows = list(csv.DictReader(file))
  return {name: Curve(*np.array(
      [[float(row[column]) for row in rows if row['name'] == name]
       for column in ('transitions', 'return', 'interval95')]))
          for name in dict.fromkeys(row['name'] for row in rows)}


def plot(panel: plt.Axes, curves: Dict[str, Sequence[Curve]],
         optimum: Optional[float] = None) -> None:
  """Plots curves in a panel of a picture.

  Args:
    panel: to plot in.
    curves: by name, each that of one run, with its interval, or those of several, with
      their mean.
    optimum: the return of an informed policy, drawn as a line.
  """
  for i, (name, runs) in enumerate(curves.items()):
    style = curves_lib.style(i)
    if not runs:
      continue
    steps, _, interval = runs[0]
    mean = np.mean([run.mean for run in runs], axis=0)
    if len(runs) == 1:
      panel.plot(steps, mean, **style, linewidth=1.5, label=name)
      panel.fill_between(steps, mean - interval, mean + interval, alpha=0.2,
                         color=style['color'], linewidth=0)
    else:
      for run in runs:
        panel.plot(steps, run.mean, **style, linewidth=0.7, alpha=0.5)
      panel.plot(steps, mean, **style, linewidth=2.5, label=name)
  if optimum is not None:
    curves_lib.draw_reference(panel, optimum)
  panel.set_xlabel('transitions')


def draw(path: pathlib.Path, curves: Dict[str, Curve], title: str,
         optimum: Optional[float] = None, measure: str = 'return of an episode'
         ) -> None:
  """Draws curves in a picture of their own, see `plot`."""
  figure, panel = plt.subplots(figsize=(7, 4.5), layout='constrained')
  plot(panel, {name: [curve] for name, curve in curves.items()}, optimum)
  panel.set_ylabel(measure)
  curves_lib.save(figure, path, title, 'mean over environments, and its 95 % interval')
