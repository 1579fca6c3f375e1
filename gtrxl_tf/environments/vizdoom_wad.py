"""Makes scenarios for ViZDoom: an assembler for ACS, and a packer of WADs.

ZDoom runs the scripts of a map as byte code of its language ACS, whose compiler is not
in a Python package. Scripts are therefore written as a listing, text with two columns
separated by ` | `. The left one is ACS, for people. The right one holds the
instructions for that line:

  script 5 (int tics) {     |
    delay(tics + 35);       | PUSHSCRIPTVAR 0 PUSHNUMBER 35 ADD DELAY
  }                         | TERMINATE

In ACS and in WADs all numbers are little-endian and have 32 bits.
"""

import re
import struct
from typing import Sequence

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
  for string in strings:
    string_places.append(_place(words) + len(texts))
    texts += string.strip('"').encode('ascii') + b'\0'
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
