"""Writes a report on runs: one page of HTML that opens in any browser.

  gtrxl report runs/numpad_2x2
  gtrxl report runs/compare_numpad_2x2/*/seed_0 --output=numpad_2x2.html

The page has the results as a table, learning curves, films of episodes above the
attention of each step to its memory, and the settings. Several runs stand side by side,
with the settings that differ between them. Pictures are within the page, which needs no
network: send it as one file.
"""

import sys
from typing import Sequence

from absl import flags

from gtrxl_tf.launch import program

_OUTPUT = flags.DEFINE_string(
    'output', None, 'The page to write; by default report.html, in the folder of a single '
    'run or else in the working folder.')
_EPISODES = flags.DEFINE_integer(
    'episodes', 2, 'Episodes to play with the policy of each run.', lower_bound=1)
_FILM = flags.DEFINE_bool('film', True, 'Play episodes, for films and attention.')


def main(runs: Sequence[str]) -> None:
  # pylint: disable=import-outside-toplevel
  from gtrxl_tf.analysis import report
  from gtrxl_tf.settings import config

  try:
    path = report.write(runs, _OUTPUT.value, _EPISODES.value, _FILM.value)
  except (config.ConfigError, OSError) as error:
    sys.exit(f'Not written: {error}')
  print(f'Report: {path} ({path.stat().st_size / 2**20:.1f} MiB)')


if __name__ == '__main__':
  program.run(main)
