"""Curves of learning processes: returns of episodes against transitions.

The pictures follow *Memory-Efficient Algorithm Distillation* (Figures 5 to 9), for
sources and for the models that distill them.
"""

from __future__ import annotations

import csv
import pathlib
import typing
from typing import Dict, NamedTuple, Optional, Sequence

import numpy as np

from gtrxl_tf import files
from gtrxl_tf.training import curves as curves_lib

if typing.TYPE_CHECKING:
  from matplotlib import pyplot as plt

NUM_BINS = 50


class Curve(NamedTuple):
  """Mean returns, or another measure, in N equal parts of a learning process.

  Attributes:
    steps: [N], transitions at the end of each part.
    mean: [N], over the environments; NaN until an episode has ended in each of them,
      because the first episodes to end are the best.
    interval: [N], half the width of the 95 % confidence interval of the mean; NaN if
      there is only one environment.
  """
  steps: np.ndarray
  mean: np.ndarray
  interval: np.ndarray


def returns_by_part(reward: np.ndarray, end: np.ndarray, num_bins: int) -> np.ndarray:
  """Returns the mean return of the episodes that end in each part of a history.

  Parts have equal numbers of transitions, not of episodes: the better an environment is
  learned, the more episodes it has.

  Args:
    reward: [B, T].
    end: [B, T], not 0 where an episode ends. An unfinished episode does not count.
    num_bins: N.

  Returns:
    float64 [B, N]. A part in which no episode ends repeats the value before it; it is
    NaN if there is none.
  """
  num, num_steps = reward.shape
  rows, steps = np.nonzero(end)
  totals = np.cumsum(reward, axis=1, dtype=np.float64)[rows, steps]
  first = np.diff(rows, prepend=-1) > 0
  returns = totals - np.where(first, 0, np.roll(totals, 1))
  places = rows * num_bins + steps * num_bins // num_steps
  size = num * num_bins
  counts = np.bincount(places, minlength=size).reshape(num, num_bins)
  with np.errstate(invalid='ignore'):
    values = np.bincount(places, returns, size).reshape(num, num_bins) / counts
  for i in range(1, num_bins):
    values[:, i] = np.where(counts[:, i], values[:, i], values[:, i - 1])
  return values


def curve(reward: np.ndarray, end: np.ndarray, num_bins: int = NUM_BINS) -> Curve:
  """Returns the curve of B histories; for the arguments see `returns_by_part`."""
  steps = np.arange(1, num_bins + 1) * reward.shape[1] / num_bins
  return summarize(steps, returns_by_part(reward, end, num_bins))


def summarize(steps: np.ndarray, values: np.ndarray) -> Curve:
  """Returns the curve of values [B, N] in parts that end after `steps` [N]."""
  num, num_parts = values.shape
  deviation = values.std(axis=0, ddof=1) if num > 1 else np.full(num_parts, np.nan)
  return Curve(steps, values.mean(axis=0), 1.96 * deviation / np.sqrt(num))


def normalized(value: float, random: float, source: float) -> float:
  """Returns a return on a scale where random play has 0 and the source 1; NaN if equal."""
  return (value - random) / (source - random) if source != random else float('nan')


def write_csv(path: pathlib.Path, curves: Dict[str, Curve], measure: str = 'return'
              ) -> None:
  """Writes curves by name, atomically."""
  files.write_csv(path, [
      ['name', 'transitions', measure, 'interval95'],
      *([name, f'{steps:g}', f'{mean:.6g}', f'{interval:.4g}']
        for name, values in curves.items() for steps, mean, interval in zip(*values))])


def read_csv(path: pathlib.Path) -> Dict[str, Curve]:
  """Reads the curves of returns that `write_csv` wrote; none if there is no file."""
  if not path.exists():
    return {}
  with open(path, encoding='utf-8') as file:
    rows = list(csv.DictReader(file))
  return {name: Curve(*np.array(
      [[float(row[column]) for row in rows if row['name'] == name]
       for column in ('transitions', 'return', 'interval95')]))
          for name in dict.fromkeys(row['name'] for row in rows)}


def plot(panel: plt.Axes, curves: Dict[str, Sequence[Curve]],
         optimum: Optional[float] = None, measure: str = 'return of an episode') -> None:
  """Plots curves in a panel of a picture.

  Args:
    panel: the panel to plot in.
    curves: by name: the curve of one run, drawn with its interval, or those of several
      runs, drawn with their mean.
    optimum: the return of an informed policy, drawn as a line.
    measure: the label of the axis.
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
  panel.set_ylabel(measure)


def draw(path: pathlib.Path, curves: Dict[str, Curve], title: str,
         optimum: Optional[float] = None, measure: str = 'return of an episode'
         ) -> None:
  """Draws curves in a new picture, see `plot`."""
  figure, panel = curves_lib.pyplot().subplots(figsize=(7, 4.5), layout='constrained')
  plot(panel, {name: [curve] for name, curve in curves.items()}, optimum, measure)
  curves_lib.save(figure, path, title, 'mean over environments, and its 95 % interval')
