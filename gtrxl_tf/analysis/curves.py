"""Learning curves."""

import pathlib
from typing import Dict, List, Optional, Sequence

import matplotlib
matplotlib.use('Agg')
from matplotlib import pyplot as plt  # pylint: disable=g-import-not-at-top,wrong-import-position

Rows = Sequence[Dict[str, float]]


def draw(path: pathlib.Path, runs: Dict[str, List[Rows]], title: str,
         reference: Optional[float] = None, quantity: str = 'return') -> None:
  """Draws every run's curve, against environment steps and against wall time.

  Args:
    path: of the picture to write.
    runs: for each label the rows of `metrics.csv` of its runs, one a seed.
    title: of the picture.
    reference: the informed policy's return, drawn as a line.
    quantity: the column to draw.
  """
  figure, panels = plt.subplots(1, 2, figsize=(11, 4), sharey=True)
  for color, (label, seeds) in zip(plt.cm.tab10.colors, runs.items()):
    for i, rows in enumerate(seeds):
      values = [row[quantity] for row in rows]
      for panel, column, scale in zip(
          panels, ('environment_steps', 'seconds'), (1e6, 60)):
        panel.plot([row[column] / scale for row in rows], values, color=color,
                   linewidth=1, label=None if i else label)
  for panel, name in zip(panels, ('million environment steps', 'minutes')):
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
