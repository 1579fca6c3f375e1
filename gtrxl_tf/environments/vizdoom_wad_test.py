"""Tests for vizdoom_wad."""

import struct

from absl.testing import absltest

from gtrxl_tf.environments import vizdoom_wad

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
    self.assertEqual(vizdoom_wad.byte_code(_LISTING), expected)

  def test_the_left_column_is_the_source(self):
    self.assertEqual(vizdoom_wad.source(_LISTING), '''\
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
        vizdoom_wad.pack([('MAP01', b''), ('TEXTMAP', b'abc')]),
        b'PWAD' + struct.pack('<2I', 2, 15) + b'abc'
        + struct.pack('<2I', 12, 0) + b'MAP01\0\0\0'
        + struct.pack('<2I', 12, 3) + b'TEXTMAP\0')


if __name__ == '__main__':
  absltest.main()
