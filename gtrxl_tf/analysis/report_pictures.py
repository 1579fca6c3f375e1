"""Pictures of a report, as addresses that contain them (`data:`)."""

import base64
import functools
import math
import pathlib
import tempfile
from typing import Any, Callable, Mapping, Optional, Sequence

import matplotlib
from matplotlib import font_manager
from matplotlib import pyplot as plt
import numpy as np
from PIL import features
from PIL import Image
from PIL import ImageDraw
from PIL import ImageFont
import tree

from gtrxl_tf.analysis import films
from gtrxl_tf.training import curves

matplotlib.use('Agg')  # Draws to files only; there may be no screen.

_MARGIN, _LINE, _GAP = 24, 20, 4  # Pixels left of the strip, of a line of text, and below.
_STRIP_HEIGHT, _MOST_ROW = 112, 14  # Pixels of all layers, and of one layer.
_BACKGROUND, _TEXT, _EMPTY = (24, 26, 31), (230, 230, 230), (52, 55, 64)
_GAIN, _LOSS = (80, 200, 120), (235, 95, 85)  # Marks of rewards.
_COLUMNS = 3  # Panels beside each other.


def drawn(draw: Callable[..., None], *args: Any) -> str:
  """Returns what `draw(path, *args)` draws, as SVG."""
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / 'picture.svg'
    draw(path, *args)
    return _address('svg+xml', path.read_bytes())


def _address(kind: str, content: bytes) -> str:
  return f'data:image/{kind};base64,{base64.b64encode(content).decode()}'


def draw_metrics(path: pathlib.Path, runs: Mapping[str, curves.Rows], column: str,
                 panels: Mapping[str, str]) -> None:
  """Draws columns of `metrics.csv` against another; `panels` are titles by column."""
  num_rows = -(-len(panels) // _COLUMNS)
  figure, axes = plt.subplots(
      num_rows, _COLUMNS, figsize=(5 * _COLUMNS, 2.9 * num_rows + 0.4), squeeze=False,
      layout='constrained')
  for panel in axes.flat[len(panels):]:
    panel.remove()
  for panel, (name, title) in zip(axes.flat, panels.items()):
    curves.plot(panel, {label: [rows] for label, rows in runs.items()}, column, measure=name)
    panel.set_title(title, loc='left', fontsize='medium')
  curves.save(figure, path, '')


def film(episode: films.Episode, weights: Optional[np.ndarray],
         action_names: Sequence[str] = ()) -> str:
  """Returns the film of an episode, as an address that contains it.

  A line names the step, its action and its reward. Below each frame, if there are frames,
  is a strip of attention, with a row for each layer and a column for each step of the
  episode; columns for memory stand left of the first step.

  Args:
    episode: T steps.
    weights: see `attention.by_step`; None for no strip.
    action_names: what each action does, if known.
  """
  actions = np.concatenate([
      np.reshape(x, (len(x), -1)) for x in tree.flatten(episode.action)], axis=1)
  totals, images = np.cumsum(episode.reward), []
  for i, action in enumerate(actions):
    named = (str(action_names[int(action[0])]) if len(action) == 1 and len(action_names) else
             ' '.join(f'{x:g}' if x == int(x) else f'{x:.2f}' for x in action[:6]))
    parts = [films.scaled(frame) for frame in episode.frames[i:i + 1]]
    parts += [] if weights is None else [_strip(weights, episode.reward, i)]
    image = Image.new('RGB', (films.WIDTH, _LINE + sum(x.height + _GAP for x in parts)),
                      _BACKGROUND)
    ImageDraw.Draw(image).text(
        (4, 2), f'step {i}   action {named}   reward {episode.reward[i]:g}   '
        f'sum {totals[i]:g}', _TEXT, font=_font(13))
    top = _LINE
    for part in parts:
      image.paste(part, ((films.WIDTH - part.width) // 2, top))
      top += part.height + _GAP
    images.append(image)
  form = 'WEBP' if features.check('webp') else 'GIF'
  return _address(form.lower(), films.encode(images, form))


def _strip(weights: np.ndarray, reward: np.ndarray, step: int) -> Image.Image:
  """Draws what a step attends to, and above it the rewards so far."""
  num_steps, num_layers, num_columns = weights.shape
  num_memory = num_columns - num_steps
  seen = num_memory + step + 1
  height = max(1, min(_MOST_ROW, _STRIP_HEIGHT // num_layers))
  gap = 1 if num_memory else 0  # Columns between memory and steps.
  width = max(1, (films.WIDTH - _MARGIN - 4) // (num_columns + gap))
  cells = np.full((num_layers + 1, num_columns + gap, 3), _EMPTY, np.uint8)
  shades = (255 * matplotlib.colormaps['viridis'](np.sqrt(weights[step]))[..., :3])
  cells[1:, num_memory + gap:seen + gap] = shades[:, num_memory:seen]
  cells[1:, :num_memory] = shades[:, :num_memory]
  cells[:, num_memory:num_memory + gap] = cells[0] = _BACKGROUND
  cells[0, np.flatnonzero(reward[:step + 1] > 0) + num_memory + gap] = _GAIN
  cells[0, np.flatnonzero(reward[:step + 1] < 0) + num_memory + gap] = _LOSS
  image = Image.new('RGB', (films.WIDTH, height * (num_layers + 1)), _BACKGROUND)
  image.paste(Image.fromarray(cells).resize(
      (width * cells.shape[1], height * cells.shape[0]), Image.Resampling.NEAREST),
              (_MARGIN, 0))
  draw = ImageDraw.Draw(image)
  every = math.ceil(12 / height)  # Layers between two labels.
  for layer in range(0, num_layers, every):
    draw.text((4, height * (layer + 1) + (height - 14) // 2), str(layer + 1), _TEXT,
              font=_font(11))
  return image


@functools.lru_cache
def _font(size: int) -> ImageFont.FreeTypeFont:
  return ImageFont.truetype(font_manager.findfont('DejaVu Sans'), size)
