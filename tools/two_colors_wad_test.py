"""Tests of two_colors_wad.py; those of the environment run its scripts."""

import collections
import struct

from absl.testing import absltest

from gtrxl_tf.environments import vizdoom_two_colors
from tools import two_colors_wad

_LISTING = '''\
// Waits.                 |
script 5 (int a, int b) { |
  delay(-1);              | again: PUSHNUMBER -1 DELAY
  Spawn("ab");            | PUSHNUMBER "ab"
                          | PUSHNUMBER "c d" PUSHNUMBER "ab"
}                         | GOTO again
script 6 OPEN {           |
}                         | TERMINATE
'''


def _lumps(wad):
  """The contents of the lumps, by name, in order."""
  magic, number, place = struct.unpack_from('<4s2I', wad)
  assert magic == b'PWAD' and len(wad) == place + 16 * number
  entries = [struct.unpack_from('<2I8s', wad, place + 16 * i) for i in range(number)]
  return {name.rstrip(b'\0').decode(): wad[start:start + size]
          for start, size, name in entries}


class ByteCodeTest(absltest.TestCase):

  def test_is_the_format_of_hexen(self):
    code = [3, 2**32 - 1, 55, 3, 0, 3, 1, 3, 0, 52, 8, 1]
    strings = b'ab\0c d\0\0'  # With one byte up to a multiple of 4.
    directory = 8 + 4 * len(code) + len(strings)
    expected = (
        b'ACS\0' + struct.pack('<I', directory) + struct.pack('<12I', *code) + strings
        + struct.pack('<I', 2)  # Scripts.
        + struct.pack('<3I', 5, 8, 2) + struct.pack('<3I', 1006, 8 + 4 * 11, 0)
        + struct.pack('<I', 2)  # Strings.
        + struct.pack('<2I', 8 + 4 * 12, 8 + 4 * 12 + 3))
    self.assertEqual(two_colors_wad.byte_code(_LISTING), expected)

  def test_the_left_column_is_the_source(self):
    self.assertEqual(two_colors_wad.source(_LISTING), '''\
// Waits.
script 5 (int a, int b) {
  delay(-1);
  Spawn("ab");
}
script 6 OPEN {
}
''')


class PackTest(absltest.TestCase):

  def test_has_a_head_the_lumps_and_a_directory(self):
    self.assertEqual(
        two_colors_wad.pack([('MAP01', b''), ('TEXTMAP', b'abc')]),
        b'PWAD' + struct.pack('<2I', 2, 15) + b'abc'
        + struct.pack('<2I', 12, 0) + b'MAP01\0\0\0'
        + struct.pack('<2I', 12, 3) + b'TEXTMAP\0')


class WadTest(absltest.TestCase):

  def test_the_file_is_the_one_that_is_made(self):
    self.assertEqual(two_colors_wad.wad(*vizdoom_two_colors.PLACES),
                     vizdoom_two_colors.FILE.read_bytes())

  def test_the_numbers_in_the_file_are_replaced(self):
    for given, numbers in (((), (0, 1, 90)), (('red', 20), (1, 1, 20)),
                           (('green', None), (0, 0, 2**31 - 1)), ((None, 0), (0, 1, 0))):
      found, made = map(_lumps, (vizdoom_two_colors.wad(*given), two_colors_wad.wad(*numbers)))
      self.assertEqual(list(found), ['MAP01', 'TEXTMAP', 'BEHAVIOR', 'SCRIPTS', 'ENDMAP'])
      self.assertEqual(found['BEHAVIOR'], made['BEHAVIOR'])
      self.assertEqual(found['TEXTMAP'], made['TEXTMAP'])
      self.assertIn(b'delay(90);', found['SCRIPTS'])

  def test_the_room_is_square_and_the_agent_looks_at_its_centre(self):
    text = two_colors_wad.text_map()
    blocks = collections.Counter(text.splitlines())
    for name, count in dict(vertex=4, linedef=4, sidedef=4, sector=1, thing=1).items():
      self.assertEqual(blocks[name], count)
    self.assertIn('  x = -128.0;\n  y = -448.0;\n  angle = 90;\n  type = 1;', text)
    self.assertIn('special = 83;', text)


if __name__ == '__main__':
  absltest.main()
