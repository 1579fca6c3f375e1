"""Reports on runs: one page of HTML with results, curves, films and settings.

The page needs no other file: pictures are within it, and there are no scripts.
"""

import base64
import contextlib
import functools
import html
import math
import os
import pathlib
import re
import string
import tempfile
import time
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence

import gin
import matplotlib
from matplotlib import font_manager
import numpy as np
from PIL import features
from PIL import Image
from PIL import ImageDraw
from PIL import ImageFont
import tree

from gtrxl_tf import environments
from gtrxl_tf import files
from gtrxl_tf.analysis import attention
from gtrxl_tf.analysis import comparison
from gtrxl_tf.analysis import films
from gtrxl_tf.analysis import runs as runs_lib
from gtrxl_tf.launch import prepare
from gtrxl_tf.settings import config
from gtrxl_tf.settings import differences
from gtrxl_tf.training import checkpoints
from gtrxl_tf.training import console
from gtrxl_tf.training import curves
from gtrxl_tf.training import experiment as experiment_lib
from gtrxl_tf.training import run_folder
from gtrxl_tf.training.offline import history_curves

_MARGIN, _LINE, _GAP = 24, 20, 4  # Pixels left of the strip, of a line of text, and below.
_STRIP_HEIGHT, _MOST_ROW = 112, 14  # Pixels of all layers, and of one layer.
_BACKGROUND, _TEXT, _EMPTY = (24, 26, 31), (230, 230, 230), (52, 55, 64)
_GAIN, _LOSS = (80, 200, 120), (235, 95, 85)  # Marks of rewards.
_MOST_BESIDE = 3  # Panels beside each other.

# Columns of `metrics.csv` that have a panel, in this order, besides returns.
_COLUMNS = (
    r'success.*', r'score_.*', r'normalized', r'kl_.*_over_bound', r'clip_fraction',
    r'entropy', r'temperature', r'loss', r'(value|policy|td|actor|conservative)_loss',
    r'cross_entropy', r'squared_error', r'accuracy', r'gradient_norm',
    r'(environment|learner)_steps_per_second')
_MOST_PANELS = 12  # The most for one pattern, as for the success in each of many tasks.

_RANDOM_EPISODES = 100

# The errors of an experiment that cannot be made or played here.
_ERRORS = config.ConfigError, FileNotFoundError, environments.EnvironmentFailed

_PAGE = string.Template('''<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { color-scheme: light dark; }
body { margin: 0 auto; max-width: 76rem; padding: 1rem; font: 1rem/1.5 system-ui, sans-serif; }
h1, h2, h3, td, code { overflow-wrap: anywhere; }
table { border-collapse: collapse; }
th, td { border: 1px solid #8886; padding: .3rem .6rem; text-align: left; vertical-align: top; }
th { background: #8882; }
td { max-width: 28rem; }
.scroll { overflow-x: auto; }
.scroll img { min-width: 40rem; }
.grid { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fill, minmax(min(28rem, 100%), 1fr)); }
figure { margin: 1rem 0; min-width: 0; }
img { display: block; width: 100%; background: #fff; }
.grid img { min-width: 0; max-width: 34rem; }
pre { overflow-x: auto; background: #8882; padding: .8rem; font-size: .85rem; }
</style>
</head>
<body>
<h1>$title</h1>
$facts
<h2>Results</h2>
$results
<h2>Curves</h2>
$curves
$episodes
<h2>Settings</h2>
$settings
</body>
</html>
''')

_EXPLAINED = (
    'The strip shows how much the step attends to each step so far: a row for each layer, '
    'the mean over its heads, brighter for more. Columns before the first step are memory. '
    'Above it, steps with a positive reward are green, and with a negative one red.')


class _Run(NamedTuple):
  """A run, as its folder records it, and films as HTML."""
  label: str
  folder: run_folder.RunFolder
  found: runs_lib.Run
  settings: differences.Settings  # All that it used, with their defaults.
  experiment: Optional[experiment_lib.Experiment]  # None if it cannot be made here.
  informed: Optional[float]
  random: Optional[float]
  episodes: str


def write(roots: Sequence[str], output: Optional[str] = None, num_episodes: int = 2,
          film: bool = True) -> pathlib.Path:
  """Writes a report on the runs of one or more folders; returns its path.

  By default `output` is report.html, in the folder of a single run or else in the working
  folder. Each run's policy plays `num_episodes` for films, unless `film` is False.
  """
  for root in roots:
    if not run_folder.RunFolder(root).config.exists():
      raise config.ConfigError(
          f'{root} is not the folder of a run: expected one with a config.gin')
  path = pathlib.Path(output or (
      run_folder.RunFolder(roots[0]).report if len(roots) == 1 else 'report.html'))
  if path.is_dir() or not os.access(path.parent, os.W_OK):
    raise config.ConfigError(f'--output={path}: expected a file in a folder that exists '
                             'and can be written')
  runs = [_read(label, run_folder.RunFolder(root), num_episodes if film else 0)
          for label, root in _labels(roots).items()]
  several = len(runs) > 1
  facts = [_facts(run) for run in runs]
  title = ', '.join(run.label for run in runs) if len(runs) < 4 else f'{len(runs)} runs'
  files.write_atomically(path, _PAGE.substitute(
      title=html.escape(title),
      facts=_table(['', *(run.label for run in runs)] if several else [], [
          [name, *(x[name] for x in facts)] for name in facts[0]
          if any(x[name] for x in facts)]),
      results=_results(runs), curves=_curves(runs),
      episodes='<h2>Episodes</h2>' * film + '\n'.join(
          f'<h3>{html.escape(run.label)}</h3>' * several + run.episodes
          for run in runs if film),
      settings=_settings(runs)))
  return path


def _labels(roots: Sequence[str]) -> Dict[str, str]:
  """Returns folders by labels: each run's path, without what all of them share."""
  paths = {os.path.realpath(root): root for root in roots}
  shared = os.path.commonpath(paths)
  if len(paths) == 1:  # The model of a comparison is the folder above.
    folder, name = os.path.split(shared)
    shared = os.path.dirname(folder) if name.startswith('seed_') else folder
  return {os.path.relpath(path, shared): root for path, root in paths.items()}


def _read(label: str, folder: run_folder.RunFolder, num_episodes: int) -> _Run:
  """Reads a run's folder and plays episodes, while gin has the run's settings."""
  try:
    found = runs_lib.read_folder(folder)
    gin.clear_config()
    experiment, informed, episodes = None, None, ''
    random = _last(found.metrics, 'random_return')
    try:
      experiment = prepare.prepare([str(folder.config)], [], check=False)
      informed = experiment.informed_return()
      if informed is not None and random is None and not experiment.learns_while_acting:
        random = _random_return(experiment)
      if num_episodes:
        episodes = (_recurrence(experiment, folder) if experiment.learns_while_acting
                    else _films(experiment, folder, num_episodes))
    except _ERRORS as error:
      episodes = _paragraph(f'No episodes were played: {error}')
    settings = differences.parse(found.config, with_defaults=True)
  except (config.ConfigError, UnicodeDecodeError) as error:
    raise config.ConfigError(f'{folder.config}: {error}') from error
  return _Run(label, folder, found, settings, experiment, informed, random, episodes)


def _random_return(experiment: experiment_lib.Experiment) -> float:
  """Returns the mean return of random actions, over equally many episodes per task."""
  environment = experiment.make_evaluation_environments(_RANDOM_EPISODES)
  random = np.random.default_rng(experiment.seed)
  seen, returns = environment.reset(), {}
  while len(returns) < environment.num_environments:
    actions = [environments.random_action(
        experiment.action_spec, tree.map_structure(lambda x, i=i: x[i], seen.observation),
        random) for i in range(environment.num_environments)]
    seen = environment.step(tree.map_structure(lambda *x: np.stack(x), *actions))
    for i in np.flatnonzero(seen.last()):
      returns.setdefault(i, seen.episode_return[i])
  environment.close()
  return float(np.mean(list(returns.values())))


# Episodes.


def _recurrence(experiment: experiment_lib.Experiment, folder: run_folder.RunFolder) -> str:
  """Shows the attention to earlier segments of a policy that learns while it acts."""
  text = _paragraph('The policy learns while it acts: the curves above show its learning '
                    'processes, in place of films.')
  try:
    curve = attention.recurrence_curve(experiment, folder)
  except config.ConfigError as error:
    return text + _paragraph(f'Its attention to earlier segments is not drawn: {error}')
  return text + _figure(
      _drawn(lambda title, path: history_curves.draw(
          path, {'policy': curve}, title, measure='share of attention to the recurrence')),
      'The share of its attention that goes to earlier segments, as a mean over layers, '
      'heads and tasks')


def _films(experiment: experiment_lib.Experiment, folder: run_folder.RunFolder, count: int
           ) -> str:
  """Shows films, and the attention of each step below its frame."""
  network = experiment.learned_network(experiment.restore_agent(folder.checkpoints))
  policy, sentences, episodes = experiment.make_policy(network), [], []
  for film in True, False:
    try:
      episodes = episodes or films.play(
          experiment, policy, count, film, most_steps=attention.MOST_STEPS)
    except films.CannotDraw:
      sentences.append(
          f'{experiment.environment_name} cannot draw itself: expected a method render(), '
          'or an image that the agent observes.')
  weights: List[Any] = [None] * count
  try:
    weights = [attention.of_episode(network, policy, x) for x in episodes]
    sentences.append(_EXPLAINED)
  except config.ConfigError as error:
    sentences.append(f'Attention is not shown: {error}.')
  names = getattr(experiment.action_spec, 'names', ())
  return _paragraph(' '.join(sentences)) + '<div class="grid">' + ''.join(
      _figure(animation(episode, x, names),
              _caption(i, episode, experiment.task_names[episode.task]))
      for i, (episode, x) in enumerate(zip(episodes, weights))) + '</div>'


def _caption(number: int, episode: films.Episode, task: str) -> str:
  total = (f'return {episode.episode_return:.2f}'
           if not math.isnan(episode.episode_return) else
           f'return {episode.reward.sum():.2f} in the first {len(episode.reward)} steps')
  success = {1: ', success', 0: ', no success'}.get(episode.success, '')
  return f'Episode {number}{f", task {task}" if task else ""}: {total}{success}'


# Facts and results.


def _facts(run: _Run) -> Dict[str, str]:
  """Returns facts about a run, by their names; those that are not known are empty."""
  folder, made, last = run.folder, run.experiment, dict(*run.found.metrics[-1:])
  stamp: Dict[str, str] = {}
  with contextlib.suppress(files.DamagedFile):  # The run may have no checkpoint.
    stamp = checkpoints.read_stamp(folder.checkpoints)
  ended = 'stopped, or still running'
  for mark in folder.done, folder.diverged:
    if mark.exists():
      ended = ': '.join(filter(None, [mark.name, mark.read_text(encoding='utf-8').strip()]))
  times = [x.stat().st_mtime for x in (folder.done, folder.diverged, folder.metrics)
           if x.exists()]

  def count(column: str) -> str:
    return f'{last[column]:,.0f}' if column in last else ''

  return {
      'kind': made.kind if made else '',
      'environment': made.environment_name if made else '',
      'core': next((value.strip('@()') for name, value in run.settings.items()
                    if name.endswith('.core')), ''),
      'seed': run.settings.get('Experiment.seed', '0'),
      'ended': ended,
      'last change': time.strftime('%Y-%m-%d %H:%M %Z', time.localtime(times[0]))
                     if times else '',
      'environment steps': count('environment_steps'),
      'learner steps': count('learner_step'),
      'wall time': console.duration(last['seconds']) if last else '',
      'version': stamp.get('library', ''),
      'folder': str(folder.root),
  }


def _results(runs: Sequence[_Run]) -> str:
  """Returns a table of evaluations: a row for each run and each of several tasks."""
  rows: List[Dict[str, str]] = []
  for run in runs:
    played, metrics = run.found.evaluation, run.found.metrics
    rows.append({
        'run': run.label, **(_result(played) if played else {
            'episodes': 'none; last of training',
            **{x: _number(_last(metrics, x)) for x in ('return', 'success')}}),
        **{name: f'{value:.1f}' for name, value in run.found.scores.items()},
        'informed': _number(run.informed), 'random': _number(run.random),
        'source': _number(_last(metrics, 'source_return'))})
    tasks = sorted({int(row['task']) for row in played})
    for task in tasks if len(tasks) > 1 else []:
      names = run.experiment.task_names if run.experiment else []
      name = names[task] if task < len(names) else task
      rows.append({'run': f'{run.label}, task {name}',
                   **_result([row for row in played if row['task'] == task])})
  columns = [x for x in dict.fromkeys(y for row in rows for y in row)
             if any(row.get(x) for row in rows)]
  return _table(columns, [[row.get(x, '') for x in columns] for row in rows])


def _result(played: curves.Rows) -> Dict[str, str]:
  """Returns cells: the number of episodes, the mean return ± its error, the success."""
  returns = [row['return'] for row in played]
  return {'episodes': str(len(returns)), 'return': curves.mean_and_error(returns),
          'success': _number(float(np.mean([row['success'] for row in played])))}


def _last(metrics: curves.Rows, column: str) -> Optional[float]:
  """Returns the last value of a column that is a number; None if there is none."""
  return next((row[column] for row in reversed(metrics)
               if not math.isnan(row.get(column, math.nan))), None)


def _number(value: Optional[float]) -> str:
  return '' if value is None or math.isnan(value) else f'{value:.2f}'


# Curves.


def _curves(runs: Sequence[_Run]) -> str:
  """Draws the curves of a comparison, and panels of other metrics."""
  begun = [run for run in runs if run.found.metrics]
  if not begun:
    return _paragraph('There are no metrics yet.')
  columns = [set(run.found.metrics[0]) for run in begun]
  shared = set.intersection(*columns)  # Runs of several kinds have others, too.
  random = _shared([run.random for run in runs])
  point = runs_lib.Point(
      '', [run.found._replace(model=run.label, metrics=[
          {name: row[name] for name in shared} for row in run.found.metrics])
           for run in begun],
      _shared([run.informed for run in runs]),
      lines={} if random is None else {'return': {'random actions': random}})
  text = _figure(_drawn(comparison.draw_curves, runs_lib.Index('', '', None, [point])),
                 'Learning curves over steps and time')
  rows = {run.label: run.found.metrics for run in begun}
  panels = []
  for pattern in _COLUMNS:
    names = sorted({x for names in columns for x in names if re.fullmatch(pattern, x)})
    panels += [functools.partial(_plot_metric, rows, point.steps, name)
               for name in names[:_MOST_PANELS]
               if any(_last(x, name) is not None for x in rows.values())]
  if panels:
    panels += [None] * (-len(panels) % _MOST_BESIDE)
    grid = [panels[i:i + _MOST_BESIDE] for i in range(0, len(panels), _MOST_BESIDE)]
    text += '<h3>Other metrics</h3>' + _figure(_drawn(
        functools.partial(comparison.draw_panels, grid,
                          figsize=(5 * _MOST_BESIDE, 2.9 * len(grid) + 0.4))),
        'Columns of metrics.csv')
  return text


def _plot_metric(rows: Mapping[str, curves.Rows], column: str, name: str, panel: Any) -> None:
  """Plots a column of `metrics.csv` against another."""
  curves.plot(panel, {label: [x] for label, x in rows.items()}, column, measure=name)
  title = re.sub('kl_(.*)_over_bound', r'KL/bound (\1)', name)
  panel.set_title(title.replace('_per_second', ' per second').replace('_', ' '),
                  loc='left', fontsize='medium')


def _shared(values: Sequence[Optional[float]]) -> Optional[float]:
  """Returns the mean of values that differ by no more than draws do; else None."""
  if None in values or not np.allclose(values, np.mean(values), rtol=0.1):
    return None
  return float(np.mean(values))


# Settings, and elements of HTML.


def _settings(runs: Sequence[_Run]) -> str:
  """Returns what differs between runs or from the defaults; all settings are folded."""
  if len(runs) == 1:
    table = _paragraph('These differ from their defaults:') + _table(
        ['setting', 'value'], sorted(differences.parse(runs[0].found.config).items()))
  else:
    rows = [[name, *(run.settings.get(name, '') for run in runs)]
            for name in sorted({name for run in runs for name in run.settings})]
    rows = [row for row in rows if len(set(row[1:])) > 1]
    table = (_table(['setting', *(run.label for run in runs)], rows) if rows
             else _paragraph('All runs have the same settings.'))
  return table + ''.join(
      f'<details><summary>All settings of {html.escape(run.label)}</summary>'
      f'<pre><code>{html.escape(run.found.config)}</code></pre></details>' for run in runs)


def _paragraph(text: str) -> str:
  return f'<p>{html.escape(text)}</p>'


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
  """Returns a table, whose first column names the rows; perhaps without a header."""
  def line(cells: Sequence[str], heads: int) -> str:
    return '<tr>' + ''.join(
        '<{0}>{1}</{0}>'.format('th' if i < heads else 'td', html.escape(x))
        for i, x in enumerate(cells)) + '</tr>'

  lines = [line(header, len(header))] * bool(header) + [line(row, 1) for row in rows]
  return '<div class="scroll"><table>\n' + '\n'.join(lines) + '\n</table></div>'


def _figure(address: str, caption: str) -> str:
  """Returns a picture with a caption; it scrolls where it would be too small to read."""
  return (f'<figure><div class="scroll"><img src="{address}" alt="{html.escape(caption)}"></div>'
          f'<figcaption>{html.escape(caption)}</figcaption></figure>')


# Pictures, as addresses that contain them (`data:`).


def _drawn(draw: Callable[..., None], *args: Any) -> str:
  """Returns what `draw(*args, title, path)` draws, as SVG without a title."""
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / 'picture.svg'
    draw(*args, '', path)
    return _address('svg+xml', path.read_bytes())


def _address(kind: str, content: bytes) -> str:
  return f'data:image/{kind};base64,{base64.b64encode(content).decode()}'


def animation(episode: films.Episode, weights: Optional[np.ndarray],
              action_names: Sequence[str] = ()) -> str:
  """Returns the film of an episode, as an address that contains it.

  A line names the step, its action and its reward. Below each frame, if there are frames,
  is a strip of attention (see `attention.by_step`; None for none), with a row for each
  layer and a column for each step; columns for memory stand left of the first step.
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
