"""Makes gtrxl_tf/environments/data/two_colors.wad: ViZDoom-Two-Colors' map and scripts.

  python -m tools.two_colors_wad

The map is text in UDMF. Classes of things and names of textures are Doom's; Freedoom, which
comes with ViZDoom, draws them. ZDoom runs the scripts of a map as byte code of its language
ACS, whose compiler is not in a Python package. Scripts are therefore written as a listing,
text with two columns separated by ` | `. The left one is ACS, for people. The right one
holds the instructions for that line:

  script 5 (int tics) {     |
    delay(tics + 35);       | PUSHSCRIPTVAR 0 PUSHNUMBER 35 ADD DELAY
  }                         | TERMINATE

In ACS and in WADs all numbers are little-endian and have 32 bits.
"""

import re
import string
import struct
from typing import Sequence

from gtrxl_tf.environments import vizdoom_two_colors as scenario
from gtrxl_tf.launch import program

_START_Y = -448  # Halfway between the pillar and the wall in the south.
_NORTH = 90  # Degrees.
_MARGIN = 32  # The engine spawns nothing that touches a wall; items are 40 wide.
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

# ZDoom's opcode of each instruction, and the number of operands that follow it in the
# code. Instructions take other arguments from the stack.
_INSTRUCTIONS = {
    'TERMINATE': (1, 0),
    'PUSHNUMBER': (3, 1),
    'LSPEC1': (4, 1),  # An action special, by number, with 1 argument.
    'LSPEC2': (5, 1),
    'ADD': (14, 0),
    'EQ': (19, 0),
    'LT': (21, 0),
    'ASSIGNSCRIPTVAR': (25, 1),
    'PUSHSCRIPTVAR': (28, 1),
    'INCSCRIPTVAR': (46, 1),
    'GOTO': (52, 1),
    'DROP': (54, 0),
    'DELAY': (55, 0),
    'RANDOM': (57, 0),
    'LSHIFT': (76, 0),
    'IFNOTGOTO': (79, 1),
    'CLEARINVENTORY': (142, 0),
    'SPAWN': (149, 0),
    'SETTHINGSPECIAL': (180, 0),
    'ASSIGNGLOBALVAR': (181, 1),
    'PUSHGLOBALVAR': (182, 1),
    'INCGLOBALVAR': (188, 1),
}
_MAGIC = b'ACS\0'
_OPEN = 1000  # Added to the number of a script that runs when the map opens.
_SCRIPT = re.compile(r'script (\d+) (OPEN|\((.*)\)) \{')
_TOKEN = re.compile(r'"[^"]*"|\S+')


def source(listing: str) -> str:
  """Returns the left column of `listing`: ACS."""
  rows = [line.partition(' | ') for line in listing.splitlines()]
  texts = [text.rstrip(' |') for text, _, code in rows if text.strip() or not code]
  return ''.join(text + '\n' for text in texts)


def byte_code(listing: str) -> bytes:
  """Assembles the right column of `listing` into the contents of a lump BEHAVIOR.

  The format is the first one, that of Hexen: a magic number; the offset of the
  directory; the code; the strings, each ended by a 0; and the directory. The directory
  holds the number of scripts, and the number, offset and number of arguments of each
  script; then the number of strings, and the offset of each. Offsets count bytes from
  the start of the lump.

  Args:
    listing: as the module describes it. A script begins with a line
      `script <number> OPEN {`, if it runs when the map opens, or
      `script <number> (<arguments>) {`. An operand is an integer, a string in double
      quotes, or a label: `label:` stands before the instruction that it names. Labels
      are valid in the complete listing.
  """
  words, scripts, labels, strings = [], [], {}, []
  for line in listing.splitlines():
    text, _, instructions = line.partition(' | ')
    if header := _SCRIPT.match(text):
      number, kind, arguments = header.groups()
      scripts.append((int(number) + (_OPEN if kind == 'OPEN' else 0), _place(words),
                      len(arguments.split(',')) if arguments else 0))
    tokens = iter(_TOKEN.findall(instructions))
    for token in tokens:
      if token.endswith(':'):
        labels[token[:-1]] = _place(words)
      else:
        opcode, num_operands = _INSTRUCTIONS[token]
        words += [str(opcode), *(next(tokens) for _ in range(num_operands))]

  def value(word: str) -> int:
    if word.startswith('"'):
      if word not in strings:
        strings.append(word)
      return strings.index(word)
    return labels[word] if word in labels else int(word) % 2**32

  code = struct.pack(f'<{len(words)}I', *map(value, words))
  texts, string_places = b'', []
  for entry in strings:
    string_places.append(_place(words) + len(texts))
    texts += entry.strip('"').encode('ascii') + b'\0'
  texts += bytes(-len(texts) % 4)
  directory = [len(scripts), *(field for script in scripts for field in script),
               len(strings), *string_places]
  return b''.join([_MAGIC, struct.pack('<I', _place(words) + len(texts)), code, texts,
                   struct.pack(f'<{len(directory)}I', *directory)])


def _place(words: Sequence[str]) -> int:
  """Returns the offset behind `words`, the magic number and the first offset."""
  return 8 + 4 * len(words)


def pack(lumps: Sequence[tuple[str, bytes]]) -> bytes:
  """Returns a patch WAD of lumps, which are pairs of a name and contents.

  The head of the WAD has the number of lumps and the offset of the directory. The
  directory, at the end of the WAD, has the offset, the size and the name (8 bytes) of
  each lump.
  """
  body, directory, place = [], [], 12  # Behind the head.
  for name, contents in lumps:
    directory.append(struct.pack('<2I8s', place, len(contents), name.encode()))
    body.append(contents)
    place += len(contents)
  return b''.join([b'PWAD', struct.pack('<2I', len(lumps), place), *body, *directory])


def wad(first: int, last: int, pillar_tics: int) -> bytes:
  """Returns the scenario, with one map, MAP01.

  Args:
    first: the least number of the colour that the script draws for the pillar.
    last: the greatest.
    pillar_tics: tics after which the pillar is removed; 0 for no pillar.
  """
  listing = string.Template(_LISTING).substitute(
      first=first, last=last, pillar_tics=pillar_tics, centre=scenario.CENTRE,
      low=scenario.LOW + _MARGIN, high=scenario.HIGH - _MARGIN)
  return pack([
      ('MAP01', b''),
      ('TEXTMAP', text_map().encode('ascii')),
      ('BEHAVIOR', byte_code(listing)),
      ('SCRIPTS', source(listing).encode('ascii')),
      ('ENDMAP', b''),
  ])


def text_map() -> str:
  """Returns the map: a square room without walls inside, and the agent's start."""
  corners = [(scenario.LOW, scenario.LOW), (scenario.LOW, scenario.HIGH), (scenario.HIGH, scenario.HIGH), (scenario.HIGH, scenario.LOW)]
  blocks = [('vertex', dict(x=f'{x}.0', y=f'{y}.0')) for x, y in corners]
  # A wall's front, where the room is, lies to the right on the way from v1 to v2.
  blocks += [('linedef', dict(v1=i, v2=(i + 1) % 4, sidefront=i, blocking='true'))
             for i in range(4)]
  blocks += [('sidedef', dict(sector=0, texturemiddle='"STONE2"'))] * 4
  blocks.append(('sector', dict(
      heightceiling=128, texturefloor='"NUKAGE1"', textureceiling='"CEIL4_1"',
      lightlevel=192, special=_LAVA)))
  blocks.append(('thing', dict(
      x=f'{scenario.CENTRE}.0', y=f'{_START_Y}.0', angle=_NORTH, type=1, single='true',
      **{f'skill{i}': 'true' for i in range(1, 6)})))
  lines = ['namespace = "ZDoom";']
  for name, fields in blocks:
    lines += [name, '{', *(f'  {k} = {v};' for k, v in fields.items()), '}']
  return '\n'.join(lines) + '\n'


def main() -> None:
  scenario.FILE.write_bytes(wad(*scenario.PLACES))


if __name__ == '__main__':
  program.run(main)
