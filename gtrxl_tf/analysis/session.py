"""Training called from Python: from an id or a class to a run, without gin or a command."""

import base64
import contextlib
import os
import pathlib
import sys
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Union

from gtrxl_tf.analysis import attention
from gtrxl_tf.analysis import comparison_runs
from gtrxl_tf.analysis import films
from gtrxl_tf.analysis import run_evaluation
from gtrxl_tf.launch import prepare
from gtrxl_tf.launch import signals
from gtrxl_tf.launch import train as train_lib
from gtrxl_tf.serving import acting
from gtrxl_tf.serving import export
from gtrxl_tf.settings import config
from gtrxl_tf.settings import gin_files as gin_lib
from gtrxl_tf.settings import shortcuts
from gtrxl_tf.training import evaluation
from gtrxl_tf.training import experiment as experiment_lib
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import run_folder


class Run:
  """A run of training: what its folder has, and what can be done with its policy.

  Attributes:
    root_dir: the run's folder.
  """

  def __init__(self, root_dir: Union[str, os.PathLike]):
    """Takes the folder of a run, which may be one that a command has trained."""
    self._folder = run_folder.RunFolder(root_dir)
    self.root_dir = self._folder.root
    if not self._folder.config.exists():
      raise config.ConfigError(
          f'{self.root_dir} has no config.gin: expected the folder of a run')

  def __repr__(self) -> str:
    row = metrics_csv.last_metrics(self._folder.metrics) or {}
    steps = row.get('environment_steps', row.get('learner_step', 0))
    return (f'Run({str(self.root_dir)!r}, {"done" if self.done else "interrupted"}, '
            f'{steps:,.0f} steps, return {row.get("return", float("nan")):.2f})')

  @contextlib.contextmanager
  def _experiment(self) -> Iterator[experiment_lib.Experiment]:
    """Yields the run's experiment, with its settings in gin."""
    with gin_lib.own_gin():
      yield prepare.prepare([str(self._folder.config)], [], check=False)

  @property
  def done(self) -> bool:
    """True if training has come to its end."""
    return self._folder.done.exists()

  @property
  def metrics(self) -> List[Dict[str, float]]:
    """The rows of `metrics.csv`, by column."""
    return metrics_csv.read_metrics(self._folder.metrics)

  def evaluate(self, episodes: int = 100) -> evaluation.Evaluation:
    """Plays at least this many episodes of all tasks together with the best policy.

    Returns:
      Lists of returns, lengths and successes, which print as their summary.
    """
    with self._experiment() as experiment:
      return run_evaluation.play(
          experiment, experiment.best_policy(self._folder), episodes)

  def plot(self) -> pathlib.Path:
    """Draws the learning curve, shows it in a notebook, and returns the picture's path."""
    with self._experiment() as experiment:
      train_lib.draw_curve(experiment, self._folder)
    _show(self._folder.curve)
    return self._folder.curve

  def attention(self, episode: int = 0) -> pathlib.Path:
    """Draws what the core attends to in an episode, see `gtrxl attention`.

    It returns the folder of the pictures; a notebook shows them.
    """
    with gin_lib.own_gin():
      attention.draw_run(self._folder, episode)
    for picture in sorted((self.root_dir / 'attention').glob('*.png')):
      _show(picture)
    return self.root_dir / 'attention'

  def film(self) -> pathlib.Path:
    """Films an episode of the policy, shows it in a notebook, and returns its path.

    The pictures are those of the environment's `render()`, or the image that it shows.
    """
    path = self._folder.videos / 'episode_0.gif'
    with self._experiment() as experiment:
      played, = films.play(experiment, experiment.best_policy(self._folder), 1)
      films.write(path, played.frames)
    _show(path)
    return path

  def policy(self) -> acting.Policy:
    """Loads the run's policy, see `gtrxl_tf.load_policy`; also if it was interrupted."""
    folder = self._folder
    if not folder.policy.exists():
      with self._experiment() as experiment:
        export.save_policy(
            experiment.make_policy(experiment.kept_network(folder)), folder.policy)
    return acting.load_policy(self.root_dir)


def _show(path: pathlib.Path) -> None:
  """Shows a picture, if this process is that of a notebook."""
  ipython = sys.modules.get('IPython')
  if not (ipython and ipython.get_ipython()):
    return
  shown = ipython.display.Image(str(path))
  if path.suffix == '.gif':  # A notebook as a page shows no `Image` that moves.
    data = base64.b64encode(path.read_bytes()).decode()
    shown = ipython.display.HTML(f'<img src="data:image/gif;base64,{data}">')
  ipython.display.display(shown)


def train(environment: Any = None, *, root_dir: Union[str, os.PathLike],
          core: Any = None, agent: Any = None, steps: Optional[int] = None,
          num_actors: int = 0, seed: int = 0, dataset: Optional[str] = None,
          settings: Optional[Mapping[str, Any]] = None, gin_files: Sequence[str] = (),
          on_row: Optional[Callable[[Mapping[str, float]], Optional[bool]]] = None,
          allow_changes: bool = False) -> Run:
  """Trains an agent, or continues the run of a folder, as `gtrxl train` would.

  With `num_actors = 0` it acts and learns in turns in this process, and can be called
  again and again: in a script, a notebook, a debugger or a thread. With actors, which
  are processes, a script calls it below `if __name__ == '__main__':`, and `environment`
  is in a module that they can import. An interruption (Ctrl-C) saves and returns.

  Args:
    environment: the id of a gymnasium task, as `'CartPole-v1'`; the name of a class in
      `gtrxl_tf.environments`; or a class, a function or a `functools.partial` that makes
      a `gymnasium.Env` or a `dm_env.Environment`. None if `gin_files` have one.
    root_dir: the run's folder. The same call continues the run that is there.
    core: the name of a file in gin/cores or, with a dataset, in gin/rate/models; or a
      core, whose arguments are taken as they are. The default is `'gtrxl'` or, with a
      dataset, `'rate'`.
    agent: `'ppo'`, which learns most tasks in the fewest steps and is the default;
      `'vmpo'` or `'r2d2'`; or an agent's class.
    steps: environment steps, a million by default; or, with a dataset, learner steps, a
      thousand by default.
    num_actors: how many processes act; 0 for turns in this one. A dataset needs none.
    seed: the seed of networks, episodes and actions.
    dataset: folder of recorded episodes, from which the agent then learns offline.
    settings: further settings by their names in gin, as in
      `{'Adam.learning_rate': 1e-3}`. A text that begins with @ or % is a reference.
    gin_files: gin files, which come after those that the arguments above stand for, and
      before `settings`.
    on_row: called with each row of metrics, or with the newest twice a second if there
      are actors; if it returns False, training is interrupted.
    allow_changes: whether settings of the run that do not change what it learns may
      differ from before, and classes that no module has may have been edited.
  """
  folder = run_folder.RunFolder(root_dir)
  stopped = False

  def seen(row: Mapping[str, float]) -> None:
    nonlocal stopped
    stopped |= on_row is not None and on_row(row) is False

  if environment is None and any(x is not None for x in (core, agent, steps, dataset)):
    raise config.ConfigError('core, agent, steps or dataset without environment: expected '
                             'them in gin_files, too')
  with gin_lib.own_gin(), signals.stop_requested(ends_at_second=False) as interrupted:
    files, lines = (([], []) if environment is None else shortcuts.gin(
        environment, core, agent, steps, dataset))
    files = [*files, *map(str, gin_files)]
    lines = [*lines, f'Experiment.seed = {seed!r}', *shortcuts.lines(settings or {})]
    with gin_lib.own_gin():
      config.parse(files, lines)
      is_online = getattr(prepare.experiment_kind(), 'is_online', False)
    if is_online:
      lines.append(f'OnlineExperiment.num_actors = {num_actors!r}')
    if num_actors and (own := gin_lib.defined()):
      raise config.ConfigError(
          f'num_actors = {num_actors}: expected 0, or {own[0]} in a module of its own, '
          'which other processes can import')
    _check_edited(folder, allow_changes)
    train_lib.train_here(
        files, lines, folder, lambda: stopped or interrupted(), allow_changes, seen)
  return Run(folder.root)


def compare(environment: Any, *, root_dir: Union[str, os.PathLike],
            cores: Sequence[str] = ('gtrxl', 'lstm', 'memoryless'), seeds: int = 3,
            agent: Any = None, steps: Optional[int] = None, num_actors: int = 0,
            dataset: Optional[str] = None,
            settings: Optional[Mapping[str, Any]] = None) -> str:
  """Trains each core with each seed as `gtrxl_tf.train` does, and reports on all runs.

  The folders are those of `gtrxl compare`, and so are the tables and pictures.

  Args:
    environment: as for `train`, and so are the arguments without a description.
    root_dir: a folder for all runs. The same call continues what is there.
    cores: names of files in gin/cores or, with a dataset, in gin/rate/models.
    seeds: runs of each core, with the seeds 0, 1, ...

  Returns:
    The tables as Markdown. In a notebook, the picture is shown.
  """
  given = dict(agent=agent, steps=steps, dataset=dataset)
  root = pathlib.Path(root_dir)
  for seed in range(seeds):
    for core in cores:
      run = train(
          environment, core=core, **given, root_dir=root / core / f'seed_{seed}',
          seed=seed, num_actors=num_actors, settings=settings)
      if not run.done:
        return f'Interrupted in {run.root_dir}. The same call continues.'
  with gin_lib.own_gin():
    files, lines = shortcuts.gin(environment, cores[0], **given)
    lines += [f'OnlineExperiment.num_actors = {num_actors}'] * (dataset is None)
    text = comparison_runs.Comparison(
        root, files, [*lines, *shortcuts.lines(settings or {})],
        cores if dataset is None else [f'rate/models/{core}.gin' for core in cores],
        range(seeds), None, True, 'gtrxl_tf.compare').report()
  _show(root / 'comparison.png')
  return text


def _check_edited(folder: run_folder.RunFolder, allow_changes: bool) -> None:
  """Refuses to go on with another class than the one that a run was begun with."""
  if allow_changes or not (folder.was_started and folder.config.exists()):
    return
  for name in gin_lib.edited(folder.config.read_text(encoding='utf-8')):
    raise config.ConfigError(
        f'{name} was edited since the run in {folder.root} began, which would go on with '
        'the new one: expected allow_changes=True to do so, or another root_dir to '
        'start afresh')
