"""Checks that all parts of a run have the same settings.

The usual mistake is a part that is started by hand, on another host, with other flags.
The server's settings are the reference, since all other parts connect to it.
"""

import pathlib
from typing import Optional

from gtrxl_tf.replay import connection
from gtrxl_tf.settings import config
from gtrxl_tf.settings import differences

SETTINGS = 'settings.json'  # In `replay/`: the settings that the tables come from.


def check_server(replay: connection.Connection,
                 settings: Optional[differences.Settings]) -> None:
  """Compares a part's settings with those of the replay that it connects to.

  Args:
    replay: the part's connection.
    settings: the settings of the part; None for an experiment that was not made from
      gin, which is not compared. Neither is a server of such an experiment.

  Raises:
    ServerLost: the server does not answer.
  """
  if settings is None or (text := replay.settings()) is None:
    return
  compare(replay.name, settings, differences.from_json(text))


def compare(server: str, ours: differences.Settings, theirs: differences.Settings
            ) -> None:
  """Compares a part's settings with those of a server."""
  different = differences.differences(ours, theirs, differences.OF_ONE_PART)
  if different:
    raise config.ConfigError(
        f'{server} has other settings: {differences.describe(different)}; expected the '
        'same in all parts of a run')


def check_tables(folder: pathlib.Path, settings: Optional[differences.Settings]
                 ) -> None:
  """Compares the server's settings with those that the tables in a folder come from.

  Args:
    folder: `replay/` of a run.
    settings: the settings of the server; None as in `check_server`.
  """
  if settings is None:
    return
  path = folder / SETTINGS
  if not path.exists():
    return
  try:
    before = differences.from_json(path.read_text(encoding='utf-8', errors='replace'))
  except config.ConfigError as error:
    raise config.ConfigError(f'{path}: {error}; without the folder the server starts '
                             'with empty tables') from error
  different = differences.differences(settings, before, differences.CHANGEABLE)
  if different:
    raise config.ConfigError(
        f'{folder} has unrolls of other settings: {differences.describe(different)}; '
        'without the folder the server starts with empty tables')
