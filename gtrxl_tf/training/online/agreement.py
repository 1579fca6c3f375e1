"""Checks that all parts of a run have the same settings.

The usual mistake is a part that is started by hand, on another host, with other flags.
The server's settings are the reference, since all other parts connect to it.
"""

from typing import Optional

from gtrxl_tf.replay import connection
from gtrxl_tf.settings import config
from gtrxl_tf.settings import differences


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
