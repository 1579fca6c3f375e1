"""Describes a dataset in a table and in a picture."""

import pathlib
from typing import List, Tuple

import matplotlib
from matplotlib import pyplot as plt
import numpy as np

from gtrxl_tf.datasets import format as format_lib
from gtrxl_tf.datasets import reader
from gtrxl_tf.environments import specs as specs_lib

matplotlib.use('Agg')  # Draws to files only; there may be no screen.

_NUM_FRAMES = 10


def describe(dataset: reader.Dataset) -> str:
  """Returns a table that describes the dataset."""
  rows = [('environment', dataset.environment or '-'), ('kind', dataset.kind),
          ('episodes', f'{dataset.num_episodes:,}'),
          ('steps', f'{dataset.num_steps:,}')]
  for name, spec in dataset.specs.leaves().items():
    rows.append((name, f'{spec.dtype.name} {list(spec.shape)}'))
    if specs_lib.is_discrete(spec) and not spec.shape:
      rows[-1] = (name, f'{rows[-1][1]}, {specs_lib.num_values(spec)[0]} values')
  if dataset.num_episodes:
    rows += [('length', _spread(dataset.lengths)), ('return', _spread(dataset.returns))]
    known = dataset.successes[~np.isnan(dataset.successes)]
    rows.append(('success', f'{known.mean():.3f}' if len(known) else 'not known'))
    ends = sum(np.bincount(dataset.episode(i).end, minlength=3)
               for i in range(dataset.num_episodes))
    rows.append(('ends', f'{ends[format_lib.End.TERMINATION]:,} terminations, '
                 f'{ends[format_lib.End.TRUNCATION]:,} truncations'))
  width = max(len(name) for name, _ in rows)
  return '\n'.join(f'{name:{width}}  {value}' for name, value in rows)


def _spread(values: np.ndarray) -> str:
  low, middle, high = np.quantile(values, [0, 0.5, 1])
  return (f'mean {values.mean():.4g}, standard deviation {values.std():.4g}, '
          f'min {low:.4g}, median {middle:.4g}, max {high:.4g}')


def draw(dataset: reader.Dataset, path: pathlib.Path) -> None:
  """Draws histograms of returns and lengths as the picture `path`.

  If observations are pictures, it also draws some of the episode with the greatest
  return.
  """
  if not dataset.num_episodes:
    raise format_lib.DatasetError(f'{dataset.path}: has no episodes to draw')
  best = int(np.argmax(dataset.returns))
  strips = _strips(dataset, best)
  figure = plt.figure(figsize=(11, 3.6 + 1.3 * len(strips)), layout='constrained')
  top, *bottom = np.ravel(figure.subfigures(
      1 + len(strips), 1, height_ratios=[3.6] + [1.3] * len(strips)))
  for panel, (name, values) in zip(
      top.subplots(1, 2), [('return', dataset.returns), ('length', dataset.lengths)]):
    panel.hist(values, bins=min(40, max(len(np.unique(values)), 3)))
    panel.axvline(values.mean(), color='black', linestyle=':', linewidth=1.5,
                  label=f'mean {values.mean():.4g}')
    panel.set_xlabel(f'{name} of an episode')
    panel.set_ylabel('episodes')
    panel.grid(alpha=0.3)
    panel.legend()
  for subfigure, (name, steps, pictures) in zip(bottom, strips):
    subfigure.suptitle(f'{name} of episode {best}, whose return '
                       f'{dataset.returns[best]:.4g} is the greatest', fontsize='small')
    panels = subfigure.subplots(1, _NUM_FRAMES)
    for panel in panels:
      panel.axis('off')
    for panel, step, picture in zip(panels, steps, pictures):
      panel.imshow(picture, cmap='gray', vmin=0, vmax=255)
      panel.set_title(f'step {step}', fontsize='x-small')
  figure.suptitle(f'{dataset.environment or dataset.path.name}: '
                  f'{dataset.num_episodes:,} {dataset.kind}, '
                  f'{dataset.num_steps:,} steps')
  figure.savefig(path, dpi=120)
  plt.close(figure)


def _strips(dataset: reader.Dataset, i: int
            ) -> List[Tuple[str, np.ndarray, np.ndarray]]:
  """Returns the pictures of episode `i`: names, some steps, and the pictures there.

  A picture is uint8 [height, width, channels], with 16 pixels or more along each side.
  The last of a stack of grey pictures is shown, which is the newest.
  """
  strips = []
  arrays = format_lib.to_arrays(dataset.episode(i))
  for name, spec in dataset.specs.leaves().items():
    if (format_lib.is_observation(name) and spec.dtype == np.uint8
        and len(spec.shape) == 3 and min(spec.shape[:2]) >= 16):
      steps = np.unique(np.linspace(0, dataset.lengths[i] - 1, _NUM_FRAMES).astype(int))
      pictures = arrays[name][steps]
      if spec.shape[2] != 3:
        pictures = pictures[..., -1]
      strips.append((name, steps, pictures))
  return strips
