"""Scenarios for ViZDoom without tools: an assembler for ACS, and a packer of WADs.

ZDoom runs the scripts of a map from byte code of ACS, its language for them, and the
compiler does not come as a Python package. So scripts are written as a listing: text
with two columns, parted by ` | `. The left one is ACS, for people. The right one holds
the instructions for that line:

  script 5 (int tics) {     |
    delay(tics + 35);       | PUSHSCRIPTVAR 0 PUSHNUMBER 35 ADD DELAY
  }                         | TERMINATE

In ACS and in WADs all numbers are little-endian and have 32 bits.
"""

import re
import struct
from typing import Sequence

# ZDoom's numbers of the instructions, and how many operands follow each in the code.
# What else an instruction takes, it takes from the stack.
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
  """The left column of `listing`: ACS."""
  rows = [line.partition(' | ') for line in listing.splitlines()]
  texts = [text.rstrip(' |') for text, _, code in rows if text.strip() or not code]
  return ''.join(text + '\n' for text in texts)


def byte_code(listing: str) -> bytes:
  """Assembles the right column of `listing`: the contents of a lump BEHAVIOR.

  The format is the first one, that of Hexen: a magic number; the place of the
  directory; the code; the strings, each with a 0 at its end; and the directory. The
  directory holds the number of scripts, and of each its number, place and number of
  arguments; then the number of strings, and the place of each. Places count bytes from
  the start of the lump.

  Args:
    listing: as above. A script begins with a line `script <number> OPEN {`, if it runs
      when the map opens, or `script <number> (<arguments>) {`. An operand is an
      integer, a string in double quotes, or a label: `label:` stands before the
      instruction that it names. Labels are known all over the listing.

  Raises:
    ValueError: an instruction, an operand or a label that cannot be read.
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
      elif token in _INSTRUCTIONS:
        opcode, num_operands = _INSTRUCTIONS[token]
        words += [str(opcode), *(next(tokens, '') for _ in range(num_operands))]
      else:
        raise ValueError(f'{line!r}: {token!r}: expected one of '
                         + ', '.join(_INSTRUCTIONS))

  def value(word):
    if word.startswith('"'):
      if word not in strings:
        strings.append(word)
      return strings.index(word)
    if re.fullmatch(r'-?\d+', word):
      return int(word) % 2**32
    if word in labels:
      return labels[word]
    raise ValueError(f'operand {word!r}: expected an integer, a string in double '
                     f'quotes or one of the labels {", ".join(labels)}')

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
  """Of what follows `words` in a lump: behind the magic number and the first place."""
  return 8 + 4 * len(words)


def pack(lumps: Sequence[tuple[str, bytes]]) -> bytes:
  """A patch WAD of lumps, which are pairs of a name and the contents.

  It has the number of lumps and the place of the directory at its head. The directory
  is at its end: of each lump the place, the size and the name, in 8 bytes.

  Raises:
    ValueError: a name that does not fit.
  """
  body, directory, place = [], [], 12  # Behind the head.
  for name, contents in lumps:
    if not re.fullmatch('[A-Z0-9_]{1,8}', name):
      raise ValueError(f'lump {name!r}: expected 1 to 8 letters A-Z, digits and _')
    directory.append(struct.pack('<2I8s', place, len(contents), name.encode()))
    body.append(contents)
    place += len(contents)
  return b''.join([b'PWAD', struct.pack('<2I', len(lumps), place), *body, *directory])
