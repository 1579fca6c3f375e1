"""Mean returns of random play and of humans: the tables in `data/`.

| file          | tasks            | source                                            |
|---------------|------------------|---------------------------------------------------|
| `dmlab30.csv` | levels, 30       | google-research/seed_rl, `dmlab/games.py`; the    |
|               |                  | same in google-deepmind/scalable_agent            |
| `atari57.csv` | games, 57        | google-deepmind/dqn_zoo, `dqn_zoo/atari_data.py`: |
|               |                  | episodes begin with up to 30 no-ops               |

DMLab-30 has two levels, `rooms_collect_good_objects` and
`rooms_exploit_deferred_effects`, each in a version to train on and one to test on.
Returns were published only for the versions to test on; by convention they score the
versions to train on too.
"""

import csv
import importlib.resources
from typing import Dict, NamedTuple


class Reference(NamedTuple):
  """Mean undiscounted returns on one task."""
  random: float
  human: float


def _load(file: str) -> Dict[str, Reference]:
  path = importlib.resources.files('gtrxl_tf.environments') / 'data' / file
  _, *rows = csv.reader(path.read_text(encoding='utf-8').splitlines())
  return {task: Reference(float(random), float(human)) for task, random, human in rows}


DMLAB_30 = _load('dmlab30.csv')  # In the order of IMPALA's code.
ATARI_57 = _load('atari57.csv')
