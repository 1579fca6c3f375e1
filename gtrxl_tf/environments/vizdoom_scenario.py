"""The room of ViZDoom-Two-Colors: its map, its scripts, and the WAD that holds them.

The map is text in UDMF, the scripts are a listing in ACS (see vizdoom_wad). Classes of
things and names of textures are Doom's; Freedoom, which comes with ViZDoom, draws them.

`wad` returns the same bytes for the same arguments. To write the file:

  pathlib.Path('two_colors.wad').write_bytes(vizdoom_scenario.wad())
"""

import string
from typing import Optional

from gtrxl_tf.environments import vizdoom_wad

# In map units (an agent is 32 wide): the walls of the square room, and its centre.
LOW, HIGH, CENTRE = -768, 512, -128

# In the order of the scripts' numbers. Freedoom's blue armour is red.
COLOURS = ('green', 'red')
ITEMS = ('GreenArmor', 'BlueArmor')

_START_Y = -448  # Halfway between the pillar and the wall in the south.
_NORTH = 90  # Degrees.
_MARGIN = 32  # The engine spawns nothing that touches a wall; items are 40 wide.
_FOREVER = 2**31 - 1
_LAVA = 83  # A kind of sector; ViZDoom's engine takes 8 health every 32 tics there.

# ViZDoom's variables USER1 to USER3 are ACS's global variables 1 to 3. The action
# specials: 73 DamageThing, 84 ACS_ExecuteWithResult, 132 Thing_Remove, 248 HealThing.
_LISTING = '''\
#include "zcommon.acs"                   |
                                         |
global int 1:matching;                   |
global int 2:other;                      |
global int 3:red;                        |
                                         |
script 1 OPEN {                          |
  matching = 0;                          | PUSHNUMBER 0 ASSIGNGLOBALVAR 1
  other = 0;                             | PUSHNUMBER 0 ASSIGNGLOBALVAR 2
  red = random($first, $last);           | PUSHNUMBER $first PUSHNUMBER $last
                                         | RANDOM ASSIGNGLOBALVAR 3
  if ($pillar_tics) {                    | PUSHNUMBER $pillar_tics IFNOTGOTO items
    str pillar = "TallGreenColumn";      | PUSHNUMBER "TallGreenColumn"
                                         | ASSIGNSCRIPTVAR 0
    if (red)                             | PUSHGLOBALVAR 3 IFNOTGOTO pillar
      pillar = "TallRedColumn";          | PUSHNUMBER "TallRedColumn"
                                         | ASSIGNSCRIPTVAR 0
    Spawn(pillar,                        | pillar: PUSHSCRIPTVAR 0
          $centre << 16,                 | PUSHNUMBER $centre PUSHNUMBER 16 LSHIFT
          $centre << 16,                 | PUSHNUMBER $centre PUSHNUMBER 16 LSHIFT
          0, 1);                         | PUSHNUMBER 0 PUSHNUMBER 1
                                         | PUSHNUMBER 0 SPAWN DROP
  }                                      |
  int i = 0;                             | items: PUSHNUMBER 0 ASSIGNSCRIPTVAR 1
  while (i < 10) {                       | more: PUSHSCRIPTVAR 1 PUSHNUMBER 10 LT
                                         | IFNOTGOTO enough
    ACS_ExecuteWithResult(3, 0);         | PUSHNUMBER 3 PUSHNUMBER 0 LSPEC2 84
    ACS_ExecuteWithResult(3, 1);         | PUSHNUMBER 3 PUSHNUMBER 1 LSPEC2 84
    i++;                                 | INCSCRIPTVAR 1
  }                                      | GOTO more
  delay(90);                             | enough: PUSHNUMBER 90 DELAY
  while (1) {                            |
    delay(30);                           | forever: PUSHNUMBER 30 DELAY
    ACS_ExecuteWithResult(3, 0);         | PUSHNUMBER 3 PUSHNUMBER 0 LSPEC2 84
    delay(30);                           | PUSHNUMBER 30 DELAY
    ACS_ExecuteWithResult(3, 1);         | PUSHNUMBER 3 PUSHNUMBER 1 LSPEC2 84
  }                                      | GOTO forever
}                                        |
                                         |
script 2 OPEN {                          |
  delay($pillar_tics);                   | PUSHNUMBER $pillar_tics DELAY
  Thing_Remove(1);                       | PUSHNUMBER 1 LSPEC1 132
}                                        | TERMINATE
                                         |
// Places an item somewhere.             |
script 3 (int is_red) {                  |
  str item = "GreenArmor";               | PUSHNUMBER "GreenArmor" ASSIGNSCRIPTVAR 1
  if (is_red)                            | PUSHSCRIPTVAR 0 IFNOTGOTO item
    item = "BlueArmor";                  | PUSHNUMBER "BlueArmor" ASSIGNSCRIPTVAR 1
  Spawn(item,                            | item: PUSHSCRIPTVAR 1
        random($low, $high) << 16,       | PUSHNUMBER $low PUSHNUMBER $high RANDOM
                                         | PUSHNUMBER 16 LSHIFT
        random($low, $high) << 16,       | PUSHNUMBER $low PUSHNUMBER $high RANDOM
                                         | PUSHNUMBER 16 LSHIFT
        0, 2 + is_red);                  | PUSHNUMBER 0
                                         | PUSHNUMBER 2 PUSHSCRIPTVAR 0 ADD
                                         | PUSHNUMBER 0 SPAWN DROP
  SetThingSpecial(2 + is_red,            | PUSHNUMBER 2 PUSHSCRIPTVAR 0 ADD
                  ACS_ExecuteWithResult, | PUSHNUMBER 84
                  4, is_red);            | PUSHNUMBER 4 PUSHSCRIPTVAR 0
                                         | PUSHNUMBER 0 PUSHNUMBER 0 PUSHNUMBER 0
                                         | SETTHINGSPECIAL
}                                        | TERMINATE
                                         |
// The agent takes an item. Its armour   |
// would keep off a part of the damage.  |
script 4 (int is_red) {                  |
  ClearInventory();                      | CLEARINVENTORY
  if (is_red == red) {                   | PUSHSCRIPTVAR 0 PUSHGLOBALVAR 3 EQ
                                         | IFNOTGOTO wrong
    matching++;                          | INCGLOBALVAR 1
    HealThing(25);                       | PUSHNUMBER 25 PUSHNUMBER 0 LSPEC2 248
  } else {                               | TERMINATE
    other++;                             | wrong: INCGLOBALVAR 2
    DamageThing(25);                     | PUSHNUMBER 25 PUSHNUMBER 0 LSPEC2 73
  }                                      |
}                                        | TERMINATE
'''


def wad(pillar: Optional[str] = None, pillar_tics: Optional[int] = 90) -> bytes:
  """Returns the scenario, with one map, MAP01.

  Args:
    pillar: its colour, one of `COLOURS`; None lets the script draw it.
    pillar_tics: tics after which the pillar is removed; 0 for no pillar, None for one
      that stays.
  """
  first, last = (0, 1) if pillar is None else [COLOURS.index(pillar)] * 2
  listing = string.Template(_LISTING).substitute(
      first=first, last=last,
      pillar_tics=_FOREVER if pillar_tics is None else pillar_tics,
      centre=CENTRE, low=LOW + _MARGIN, high=HIGH - _MARGIN)
  return vizdoom_wad.pack([
      ('MAP01', b''),
      ('TEXTMAP', text_map().encode('ascii')),
      ('BEHAVIOR', vizdoom_wad.byte_code(listing)),
      ('SCRIPTS', vizdoom_wad.source(listing).encode('ascii')),
      ('ENDMAP', b''),
  ])


def text_map() -> str:
  """Returns the map: a square room without walls inside, and the agent's start."""
  corners = [(LOW, LOW), (LOW, HIGH), (HIGH, HIGH), (HIGH, LOW)]
  blocks = [('vertex', dict(x=f'{x}.0', y=f'{y}.0')) for x, y in corners]
  # A wall's front, where the room is, lies to the right on the way from v1 to v2.
  blocks += [('linedef', dict(v1=i, v2=(i + 1) % 4, sidefront=i, blocking='true'))
             for i in range(4)]
  blocks += [('sidedef', dict(sector=0, texturemiddle='"STONE2"'))] * 4
  blocks.append(('sector', dict(
      heightceiling=128, texturefloor='"NUKAGE1"', textureceiling='"CEIL4_1"',
      lightlevel=192, special=_LAVA)))
  blocks.append(('thing', dict(
      x=f'{CENTRE}.0', y=f'{_START_Y}.0', angle=_NORTH, type=1, single='true',
      **{f'skill{i}': 'true' for i in range(1, 6)})))
  lines = ['namespace = "ZDoom";']
  for name, fields in blocks:
    lines += [name, '{', *(f'  {k} = {v};' for k, v in fields.items()), '}']
  return '\n'.join(lines) + '\n'
