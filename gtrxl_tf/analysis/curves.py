"""Learning curves."""

import pathlib
from typing import Dict, List, Optional, Sequence, Tuple

import matplotlib
from matplotlib import pyplot as plt
import numpy as np

matplotlib.use('Agg')  # Pictures are files; there may be no screen.

Rows = Sequence[Dict[str, float]]


def mean_curve(curves: Sequence[Tuple[np.ndarray, np.ndarray]]
               ) -> Tuple[np.ndarray, np.ndarray]:
  """The mean of several curves `(x, y)`, between points by straight lines.

  Args:
    curves: each with x ascending. Points whose y is NaN are left out.

  Returns:
    `(x, y)`, where every curve has values; empty if there is no such place.
  """
  known = [(x[~np.isnan(y)], y[~np.isnan(y)]) for x, y in curves]
  if not all(len(x) for x, _ in known):
    return np.array([]), np.array([])
  start, end = max(x[0] for x, _ in known), min(x[-1] for x, _ in known)
  grid = np.unique(np.concatenate([x for x, _ in known]))
  grid = grid[(grid >= start) & (grid <= end)]
  return grid, np.mean([np.interp(grid, x, y) for x, y in known], axis=0)


def draw(path: pathlib.Path, runs: Dict[str, List[Rows]], title: str,
         reference: Optional[float] = None, quantity: str = 'return') -> None:
  """Draws every run's curve, against environment steps and against wall time.

  Where a label has several runs, they are thin lines and their mean a bold one.

  Args:
    path: of the picture to write.
    runs: for each label the rows of `metrics.csv` of its runs, one a seed.
    title: of the picture.
    reference: the informed policy's return, drawn as a line.
    quantity: the column to draw.
  """
  figure, panels = plt.subplots(1, 2, figsize=(11, 4), sharey=True)
  for panel, column, unit, name in zip(
      panels, ('environment_steps', 'seconds'), (1e6, 60),
      ('million environment steps', 'minutes')):
    for color, (label, seeds) in zip(plt.cm.tab10.colors, runs.items()):
      curves = [(np.array([row[column] for row in rows]) / unit,
                 np.array([row[quantity] for row in rows])) for rows in seeds]
      several = len(curves) > 1
      for curve in curves:
        panel.plot(*curve, color=color, linewidth=0.8 if several else 1.5,
                   alpha=0.7 if several else 1, label=None if several else label)
      if several:
        panel.plot(*mean_curve(curves), color=color, linewidth=2.5,
                   label=f'{label}, mean of {len(curves)}')
    if reference is not None:
      panel.axhline(reference, color='black', linestyle=':', linewidth=1,
                    label='informed policy')
    panel.set_xlabel(name)
    panel.grid(alpha=0.3)
  panels[0].set_ylabel(f'{quantity}, mean of the last 100 episodes')
  panels[0].legend(fontsize='small')
  figure.suptitle(title)
  figure.tight_layout()
  figure.savefig(path, dpi=120)
  plt.close(figure)
