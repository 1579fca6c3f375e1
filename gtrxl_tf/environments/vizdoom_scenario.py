"""The room of ViZDoom-Two-Colors: its sizes, and the WAD with its map and scripts.

`tools/two_colors_wad.py` in the repository makes the WAD, and has its source.
"""

import pathlib
import struct
from typing import Optional

# In map units (an agent is 32 wide): the walls of the square room, and its centre.
LOW, HIGH, CENTRE = -768, 512, -128

# In the order of the scripts' numbers. Freedoom's blue armour is red.
COLOURS = ('green', 'red')
ITEMS = ('GreenArmor', 'BlueArmor')

FILE = pathlib.Path(__file__).with_name('data') / 'two_colors.wad'
# What stands in the file for the least and the greatest number of the pillar's colour, and
# for the tics after which the pillar is removed.
PLACES = 1_000_001, 1_000_002, 1_000_003
_FOREVER = 2**31 - 1


def wad(pillar: Optional[str] = None, pillar_tics: Optional[int] = 90) -> bytes:
  """Returns the scenario, with one map, MAP01.

  Args:
    pillar: its colour, one of `COLOURS`; None lets the script draw it.
    pillar_tics: tics after which the pillar is removed; 0 for no pillar, None for one
      that stays.
  """
  first, last = (0, 1) if pillar is None else [COLOURS.index(pillar)] * 2
  made = FILE.read_bytes()
  for place, value in zip(PLACES, (
      first, last, _FOREVER if pillar_tics is None else pillar_tics)):
    made = made.replace(struct.pack('<I', place), struct.pack('<I', value))
  return made
