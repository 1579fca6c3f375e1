"""Tests for vizdoom_scenario; those of the environment run its scripts."""

import collections
import struct
import subprocess
import sys

from absl.testing import absltest

from gtrxl_tf.environments import vizdoom_scenario


def _lumps(wad):
  """The contents of the lumps, by name, in order."""
  magic, number, place = struct.unpack_from('<4s2I', wad)
  assert magic == b'PWAD' and len(wad) == place + 16 * number
  entries = [struct.unpack_from('<2I8s', wad, place + 16 * i) for i in range(number)]
  return {name.rstrip(b'\0').decode(): wad[start:start + size]
          for start, size, name in entries}


class VizdoomScenarioTest(absltest.TestCase):

  def test_is_the_same_bytes_every_time(self):
    wad = vizdoom_scenario.wad('red', 20)
    self.assertEqual(vizdoom_scenario.wad('red', 20), wad)
    self.assertNotEqual(vizdoom_scenario.wad('green', 20), wad)
    again = subprocess.run(
        [sys.executable, '-c', 'import sys\n'
         'from gtrxl_tf.environments import vizdoom_scenario as s\n'
         'sys.stdout.buffer.write(s.wad("red", 20))'],
        env={'PYTHONHASHSEED': '7', 'PYTHONPATH': ':'.join(filter(None, sys.path))},
        capture_output=True, check=True).stdout
    self.assertEqual(again, wad)

  def test_holds_a_text_map_with_scripts(self):
    lumps = _lumps(vizdoom_scenario.wad())
    self.assertEqual(
        list(lumps), ['MAP01', 'TEXTMAP', 'BEHAVIOR', 'SCRIPTS', 'ENDMAP'])
    self.assertEqual(lumps['TEXTMAP'].decode(), vizdoom_scenario.text_map())
    self.assertIn(b'delay(90);', lumps['SCRIPTS'])

  def test_the_room_is_square_and_the_agent_looks_at_its_centre(self):
    text = vizdoom_scenario.text_map()
    blocks = collections.Counter(text.splitlines())
    for name, count in dict(vertex=4, linedef=4, sidedef=4, sector=1, thing=1).items():
      self.assertEqual(blocks[name], count)
    self.assertIn('  x = -128.0;\n  y = -448.0;\n  angle = 90;\n  type = 1;', text)
    self.assertIn('special = 83;', text)


if __name__ == '__main__':
  absltest.main()
