"""Tests for vizdoom_scenario, which run its scripts in a small interpreter of ACS."""

import collections
import struct
import subprocess
import sys

from absl.testing import absltest
from absl.testing import parameterized

from gtrxl_tf.environments import vizdoom_scenario


def _lumps(wad):
  """The contents of the lumps, by name, in order."""
  magic, number, place = struct.unpack_from('<4s2I', wad)
  assert magic == b'PWAD' and len(wad) == place + 16 * number
  entries = [struct.unpack_from('<2I8s', wad, place + 16 * i) for i in range(number)]
  return {name.rstrip(b'\0').decode(): wad[start:start + size]
          for start, size, name in entries}


class _Level:
  """Runs the scripts for a few tics.

  Attributes:
    variables: the global ones.
    things: (class, x, y, z, id of the thing) of each that is there, in map units.
    specials: what an id's things do when taken: the special and its arguments.
    health: what was given (positive) and taken (negative).
    inventory: what happened to it.
  """

  def __init__(self, wad, draws):
    code = _lumps(wad)['BEHAVIOR']
    self._code = code

    def words(place, number):
      return struct.unpack_from(f'<{number}I', code, place)

    assert code[:4] == b'ACS\0'
    directory, = words(4, 1)
    num_scripts, = words(directory, 1)
    self._scripts = {}
    for i in range(num_scripts):
      number, place, num_arguments = words(directory + 4 + 12 * i, 3)
      self._scripts[number] = place, num_arguments
    place = directory + 4 + 12 * num_scripts
    num_strings, = words(place, 1)
    self._strings = [code[start:code.index(b'\0', start)].decode()
                     for start in words(place + 4, num_strings)]
    assert len(code) == place + 4 + 4 * num_strings
    self.variables, self.things, self.specials = {}, [], {}
    self.health, self.inventory, self.draws = [], [], []
    self._draw = draws

  def run_open_scripts(self, num_tics):
    """Runs the scripts until then, each independently: none waits for another."""
    threads = [self.run(number % 1000) for number in sorted(self._scripts)
               if number >= 1000]
    due = [(0, i, thread) for i, thread in enumerate(threads)]
    while due and due[0][0] <= num_tics:
      tic, i, thread = due.pop(0)
      delay = next(thread, None)
      if delay is not None:
        due = sorted(due + [(tic + delay, i, thread)], key=lambda d: d[:2])

  def run(self, number, *arguments):
    """Runs a script; yields the tics of each delay."""
    place, num_arguments = self._scripts.get(number) or self._scripts[1000 + number]
    assert num_arguments == len(arguments)
    local = collections.defaultdict(int, enumerate(arguments))
    stack = []

    def pops(count):
      popped = [stack.pop() for _ in range(count)]
      return popped[::-1]

    while True:
      opcode, operand = struct.unpack_from('<Ii', self._code + bytes(4), place)
      place += 4
      if opcode in (3, 4, 5, 25, 28, 46, 52, 79, 181, 182, 188):
        place += 4
      if opcode == 1:
        return
      elif opcode == 3:
        stack.append(operand)
      elif opcode in (4, 5):
        self._special(operand, pops(opcode - 3))
      elif opcode == 14:
        stack.append(sum(pops(2)))
      elif opcode in (19, 21):
        a, b = pops(2)
        stack.append(int(a == b if opcode == 19 else a < b))
      elif opcode == 25:
        local[operand] = stack.pop()
      elif opcode == 28:
        stack.append(local[operand])
      elif opcode == 46:
        local[operand] += 1
      elif opcode == 52:
        place = operand
      elif opcode == 54:
        stack.pop()
      elif opcode == 55:
        yield stack.pop()
      elif opcode == 57:
        self.draws.append(tuple(pops(2)))
        stack.append(self._draw(*self.draws[-1]))
      elif opcode == 76:
        a, b = pops(2)
        stack.append(a << b)
      elif opcode == 79:
        place = place if stack.pop() else operand
      elif opcode == 142:
        self.inventory.append('cleared')
      elif opcode == 149:
        name, x, y, z, tid, _ = pops(6)
        self.things.append((self._strings[name], x / 2**16, y / 2**16, z, tid))
        stack.append(1)
      elif opcode == 180:
        tid, *special = pops(7)
        self.specials[tid] = special
      elif opcode == 181:
        self.variables[operand] = stack.pop()
      elif opcode == 182:
        stack.append(self.variables[operand])
      elif opcode == 188:
        self.variables[operand] += 1
      else:
        raise AssertionError(f'opcode {opcode}')

  def take(self, tid):
    """The agent takes a thing with this id."""
    special, *arguments = self.specials[tid]
    self._special(special, arguments[:2])

  def _special(self, special, arguments):
    if special == 73:
      self.health.append(-arguments[0])
    elif special == 84:
      assert not list(self.run(*arguments))
    elif special == 132:
      self.things = [thing for thing in self.things if thing[-1] != arguments[0]]
    elif special == 248:
      self.health.append(arguments[0])
      self.inventory.append('healed')
    else:
      raise AssertionError(f'special {special}')

  def count(self):
    return collections.Counter(name for name, *_ in self.things)


def _first(low, high):
  del high
  return low


def _last(low, high):
  del low
  return high


class VizdoomScenarioTest(parameterized.TestCase):

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

  @parameterized.parameters(
      (None, _first, 'Green'), (None, _last, 'Red'),
      ('green', _last, 'Green'), ('red', _first, 'Red'))
  def test_the_pillar_stands_in_the_centre(self, pillar, draw, colour):
    level = _Level(vizdoom_scenario.wad(pillar), draw)
    level.run_open_scripts(0)
    pillars = [thing for thing in level.things if 'Column' in thing[0]]
    self.assertEqual(pillars, [(f'Tall{colour}Column', -128, -128, 0, 1)])
    self.assertEqual(level.variables, {1: 0, 2: 0, 3: int(colour == 'Red')})

  @parameterized.parameters((90, 89, True), (90, 90, False), (7, 6, True),
                            (7, 7, False), (0, 0, False), (None, 10_000, True))
  def test_the_pillar_goes(self, pillar_tics, tic, stands):
    level = _Level(vizdoom_scenario.wad('red', pillar_tics), _first)
    level.run_open_scripts(tic)
    self.assertEqual(level.count()['TallRedColumn'], stands)

  @parameterized.parameters(0, 90, None)
  def test_items_come_whatever_the_pillar_does(self, pillar_tics):
    for tic, green, red in ((0, 10, 10), (119, 10, 10), (120, 11, 10), (150, 11, 11),
                            (179, 11, 11), (180, 12, 11), (690, 20, 20)):
      level = _Level(vizdoom_scenario.wad('green', pillar_tics), _first)
      level.run_open_scripts(tic)
      self.assertEqual(
          (level.count()['GreenArmor'], level.count()['BlueArmor']), (green, red))

  @parameterized.parameters((_first, -736), (_last, 480))
  def test_items_lie_anywhere_but_at_the_walls(self, draw, edge):
    level = _Level(vizdoom_scenario.wad(), draw)
    level.run_open_scripts(0)
    self.assertEqual(level.draws, [(0, 1)] + [(-736, 480)] * 40)
    places = {thing[1:4] for thing in level.things if 'Armor' in thing[0]}
    self.assertEqual(places, {(edge, edge, 0)})

  @parameterized.parameters(('green', 'GreenArmor', True), ('red', 'GreenArmor', False),
                            ('green', 'BlueArmor', False), ('red', 'BlueArmor', True))
  def test_an_item_heals_if_it_has_the_colour_of_the_pillar(self, pillar, item, heals):
    level = _Level(vizdoom_scenario.wad(pillar), _first)
    level.run_open_scripts(0)
    tid, = {thing[-1] for thing in level.things if thing[0] == item}
    level.take(tid)
    level.take(tid)
    self.assertEqual(level.health, [25, 25] if heals else [-25, -25])
    self.assertEqual((level.variables[1], level.variables[2]),
                     (2, 0) if heals else (0, 2))
    self.assertEqual(level.inventory[0], 'cleared')


if __name__ == '__main__':
  absltest.main()
