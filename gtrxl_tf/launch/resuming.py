"""Checks that a run's folder fits the settings of a process that would resume there."""

import contextlib
import functools
from typing import Dict, Iterator, List, Optional

from gtrxl_tf import files
from gtrxl_tf.settings import config
from gtrxl_tf.settings import differences
from gtrxl_tf.training import checkpoints
from gtrxl_tf.training import experiment as experiment_lib
from gtrxl_tf.training import run_folder

_HEADING = b'# Parameters for '  # gin writes it above the parameters of each configurable.


@contextlib.contextmanager
def claimed(folder: run_folder.RunFolder, experiment: experiment_lib.Experiment,
             allow_changes: bool) -> Iterator[bool]:
  """Locks a folder for this process, and writes the operative config into it.

  If settings were changed, the earlier config and evaluation are kept beside it. Yields
  whether training begins here: no run was started, or a finished run got a new length.
  """
  with folder.in_use():
    _check_own(folder)
    changed = check_settings(folder, allow_changes)
    make_agent = functools.cache(experiment.make_agent)
    newest = checkpoints.check(folder.checkpoints, experiment.kind, make_agent)
    if newest is not None and (changed or not folder.done.exists()):
      experiment.check_resumes(newest, make_agent())
    begins = not folder.was_started
    if changed:
      kept = folder.keep_record()
      print(f'Settings changed in {folder.root}: '
            f'{differences.describe(changed, "now")}. {kept} has the earlier ones.')
    if folder.done.exists() and any(
        differences.matches(x.name, differences.OF_LENGTH) for x in changed):
      begins = True
      for path in folder.done, folder.evaluation, folder.scores:  # Copies are kept.
        path.unlink(missing_ok=True)
    files.write_atomically(folder.config, config.operative_text())
    if not folder.done.exists():
      folder.diverged.unlink(missing_ok=True)  # From an earlier attempt.
      if newest is not None:
        step = int(newest.rpartition('-')[2])
        print(f'Going on from learner step {step:,}.', flush=True)
    yield begins


def _check_own(folder: run_folder.RunFolder) -> None:
  """Refuses a folder of something else, such as a project, whose files would be lost."""
  if folder.config.exists() and (
      folder.was_started or _HEADING in folder.config.read_bytes()):
    return
  for name in ('config.gin', 'policy', 'checkpoints', 'done', 'metrics.csv',
               'evaluation.csv', 'scores.csv', 'curve.png', 'dataset.json'):
    if (folder.root / name).exists():
      raise config.ConfigError(
          f'{folder.root / name}: no run has written it, and this one would replace it: '
          'expected the folder of a run, or a new one')


def check_settings(folder: run_folder.RunFolder, allow_changes: bool
                   ) -> List[differences.Difference]:
  """Returns the settings that differ from those that the run in a folder was started with.

  It raises a `ConfigError` unless they are in `differences.CHANGEABLE` and
  `allow_changes` is true.
  """
  before = settings_of(folder)
  if before is None:
    return []
  now = differences.operative()
  fixed = differences.differences(now, before, differences.CHANGEABLE)
  if fixed:
    raise refusal(folder, fixed, 'other settings need another folder')
  changed = differences.differences(now, before)
  if changed and not allow_changes:
    raise refusal(folder, changed, '--allow_changes continues with the new ones, and '
                  'keeps a record of the earlier ones')
  return changed


def refusal(folder: run_folder.RunFolder, changed: List[differences.Difference],
            advice: str) -> config.ConfigError:
  """Returns an error that names the settings of a run that differ, and gives advice."""
  return config.ConfigError(
      f'{folder.root} was started with other settings: '
      f'{differences.describe(changed, "now")}; {advice}')


def settings_of(folder: run_folder.RunFolder) -> Optional[Dict[str, str]]:
  """Reads the settings that a run was started with, as `differences.parse` returns them.

  Returns None if there is no run, or one that was refused or interrupted before it
  learned anything.
  """
  if not (folder.was_started and folder.config.exists()):
    return None
  try:
    return differences.parse(folder.config.read_text(encoding='utf-8'))
  except ValueError as error:
    raise config.ConfigError(f'{folder.config}: {config.one_line(error)}; another '
                             'experiment needs another folder') from error
