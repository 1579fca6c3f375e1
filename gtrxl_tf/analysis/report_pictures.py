"""Pictures of a report: curves as SVG, episodes as films above their attention."""

import base64
import functools
import html
import io
import math
import re
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
from gtrxl_tf.training.offline import history_curves

matplotlib.use('Agg')  # Draws to files only; there may be no screen.

_INK = '#010203'  # Becomes the color of the page's text, in light and in dark.
_STYLE = {
    'font.size': 11, 'axes.titlesize': 11, 'font.family': 'sans-serif',
    'svg.fonttype': 'none', 'svg.hashsalt': 'report', 'axes.spines.top': False,
    'axes.spines.right': False, 'axes.facecolor': 'none', 'figure.facecolor': 'none',
    **dict.fromkeys(('text.color', 'axes.labelcolor', 'axes.edgecolor', 'xtick.color',
                     'ytick.color', 'axes.titlecolor'), _INK)}

_WIDTH, _MOST_HEIGHT = 480, 320  # Pixels of a film, and of the picture within it.
_MARGIN, _LINE = 24, 20  # Pixels left of the strip, and of a line of text.
_STRIP_HEIGHT, _MOST_ROW = 112, 14  # Pixels of all layers, and of one layer.
_BACKGROUND, _TEXT, _EMPTY = (24, 26, 31), (230, 230, 230), (52, 55, 64)
_GAIN, _LOSS = (80, 200, 120), (235, 95, 85)  # Marks of rewards.
_MOST_MAPS = 4  # Layers of an attention map.


def panel(name: str, title: str, draw: Callable[[plt.Axes], None]) -> str:
  """Returns a picture of one panel as an SVG element for a page of HTML.

  Args:
    name: an identifier, which no other picture of the page has.
    title: the panel's title.
    draw: plots in the panel.
  """
  with plt.rc_context(_STYLE):
    figure, axes = plt.subplots(figsize=(4.6, 2.9), layout='constrained')
    draw(axes)
    axes.set_title(title, loc='left')
    axes.grid(alpha=0.3)
    axes.locator_params(axis='x', nbins=5)
    return _svg(figure, name, title)


def _svg(figure: plt.Figure, name: str, title: str) -> str:
  text = io.StringIO()
  figure.savefig(text, format='svg', metadata={'Date': None, 'Creator': None})
  plt.close(figure)
  svg = text.getvalue()
  svg = re.sub(r'<metadata>.*?</metadata>|<style .*?</style>', '',
               svg[svg.index('<svg'):], flags=re.DOTALL)
  head = re.match(r'<svg .*?viewBox="(.*?)".*?>', svg, re.DOTALL)
  svg = (f'<svg viewBox="{head[1]}" role="img" aria-label="{html.escape(title)}">'
         + svg[head.end():])
  for mark in 'id="', 'url(#', 'href="#':
    svg = svg.replace(mark, f'{mark}{name}-')
  return re.sub(f'{_INK}|#000000', 'currentColor', svg)


def curve(name: str, title: str, runs: Mapping[str, curves.Rows], measure: str,
          column: str, reference: Optional[float] = None,
          lines: Optional[Mapping[str, float]] = None) -> str:
  """Returns a panel with a column of each run's `metrics.csv`, see `curves.plot`."""
  def draw(axes: plt.Axes) -> None:
    curves.plot(axes, {label: [rows] for label, rows in runs.items()}, column,
                reference, measure, lines or {})

  return panel(name, title, draw)


def learning_processes(name: str, title: str, lines: Mapping[str, history_curves.Curve],
                       optimum: Optional[float] = None) -> str:
  """Returns a panel with curves of learning processes, see `history_curves.plot`."""
  def draw(axes: plt.Axes) -> None:
    history_curves.plot(axes, {label: [x] for label, x in lines.items()}, optimum)
    axes.legend(frameon=False, fontsize='small')

  return panel(name, title, draw)


def line(number: int) -> str:
  """Returns the line of the run with this number in every picture, as a CSS border."""
  style = curves.style(number)
  look = {'-': 'solid', '--': 'dashed', ':': 'dotted'}[style['linestyle']]
  return f'2px {look} {matplotlib.colors.to_hex(style["color"])}'


def attention_map(name: str, episode: films.Episode, weights: Optional[np.ndarray]
                  ) -> str:
  """Returns an SVG element with maps of layers beside actions and rewards.

  Args:
    name: see `panel`.
    episode: T steps, down the picture.
    weights: see `attention.by_step`; None for actions and rewards alone.
  """
  layers = [] if weights is None else sorted({
      round(x) for x in np.linspace(0, weights.shape[1] - 1, _MOST_MAPS)})
  num_steps = len(episode.reward)
  with plt.rc_context(_STYLE):
    figure, panels = plt.subplots(
        1, len(layers) + 2, figsize=(2.2 * len(layers) + 2.6, 3.4), sharey=True,
        layout='constrained', squeeze=False,
        width_ratios=[2.2] * len(layers) + [1.3, 1.3])
    for axes, layer in zip(panels[0], layers):
      num_memory = weights.shape[-1] - num_steps
      axes.imshow(np.sqrt(weights[:, layer]), cmap='viridis', vmin=0, vmax=1,
                  aspect='auto', interpolation='nearest',
                  extent=(-num_memory, num_steps, num_steps, 0))
      axes.set_title(f'layer {layer + 1}')
      axes.set_xlabel('attended step')
    steps = np.arange(num_steps) + 0.5
    actions, rewards = panels[0, -2:]
    for values in _flat(episode.action).T:
      actions.plot(values, steps, '.-', linewidth=0.7, markersize=3)
    rewards.barh(steps, episode.reward, height=0.9)
    for axes, title in ((actions, 'action'), (rewards, 'reward')):
      axes.set_title(title)
      axes.grid(alpha=0.3)
    panels[0, 0].set_ylabel('step')
    panels[0, 0].set_ylim(num_steps, 0)
    return _svg(figure, name, 'Attention, actions and rewards of an episode')


def _flat(action: Any) -> np.ndarray:
  """Returns the leaves of actions `[T, ...]` side by side, `[T, n]`."""
  return np.concatenate([
      np.reshape(x, (len(x), -1)) for x in tree.flatten(action)], axis=1)


def film(episode: films.Episode, weights: Optional[np.ndarray],
         action_names: Sequence[str] = ()) -> str:
  """Returns the film of an episode as a data URI.

  Below each frame is a strip of attention, with a row for each layer and a column for
  each step of the episode; columns for memory stand left of the first step.

  Args:
    episode: has frames.
    weights: see `attention.by_step`; None for the film alone.
    action_names: what each action does, if known.
  """
  actions, totals = _flat(episode.action), np.cumsum(episode.reward)
  images = []
  for i, frame in enumerate(episode.frames):
    picture = _scaled(frame)
    strip = None if weights is None else _strip(weights, episode.reward, i)
    height = _LINE + picture.height + (0 if strip is None else strip.height + 8)
    image = Image.new('RGB', (_WIDTH, height), _BACKGROUND)
    image.paste(picture, ((_WIDTH - picture.width) // 2, _LINE))
    if strip is not None:
      image.paste(strip, (0, _LINE + picture.height + 4))
    ImageDraw.Draw(image).text(
        (4, 2), f'step {i}   action {_named(actions[i], action_names)}   '
        f'reward {episode.reward[i]:g}   sum {totals[i]:g}', _TEXT, font=_font(13))
    images.append(image)
  form = 'WEBP' if features.check('webp') else 'GIF'
  data = base64.b64encode(films.encode(images, form)).decode()
  return f'data:image/{form.lower()};base64,{data}'


def _named(action: np.ndarray, names: Sequence[str]) -> str:
  if len(action) == 1 and names:
    return str(names[int(action[0])])
  return ' '.join(f'{x:g}' if x == int(x) else f'{x:.2f}' for x in action[:6])


def _scaled(frame: np.ndarray) -> Image.Image:
  """Enlarges a frame by a whole number, or shrinks it, to fit into a film."""
  image = Image.fromarray(frame)
  scale = min(_WIDTH // image.width, _MOST_HEIGHT // image.height)
  if scale:
    return image.resize(
        (image.width * scale, image.height * scale), Image.Resampling.NEAREST)
  image.thumbnail((_WIDTH, _MOST_HEIGHT))
  return image


def _strip(weights: np.ndarray, reward: np.ndarray, step: int) -> Image.Image:
  """Draws what a step attends to, and above it the rewards so far."""
  num_steps, num_layers, num_columns = weights.shape
  num_memory = num_columns - num_steps
  seen = num_memory + step + 1
  height = max(1, min(_MOST_ROW, _STRIP_HEIGHT // num_layers))
  gap = 1 if num_memory else 0  # Columns between memory and steps.
  width = max(1, (_WIDTH - _MARGIN - 4) // (num_columns + gap))
  cells = np.full((num_layers + 1, num_columns + gap, 3), _EMPTY, np.uint8)
  shades = (255 * matplotlib.colormaps['viridis'](np.sqrt(weights[step]))[..., :3])
  cells[1:, num_memory + gap:seen + gap] = shades[:, num_memory:seen]
  cells[1:, :num_memory] = shades[:, :num_memory]
  cells[:, num_memory:num_memory + gap] = cells[0] = _BACKGROUND
  cells[0, np.flatnonzero(reward[:step + 1] > 0) + num_memory + gap] = _GAIN
  cells[0, np.flatnonzero(reward[:step + 1] < 0) + num_memory + gap] = _LOSS
  image = Image.new('RGB', (_WIDTH, height * (num_layers + 1)), _BACKGROUND)
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
