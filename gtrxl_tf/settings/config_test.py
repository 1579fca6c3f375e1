"""Tests of config.py."""

import inspect
import math
from typing import Any, Callable, Literal, Mapping, Optional, Sequence

from absl.testing import absltest
from absl.testing import parameterized
import gin
import numpy as np

from gtrxl_tf.settings import config


class Part:
  """A class with an argument of every type."""


@config.configurable
class OtherPart(Part):
  pass


@config.configurable
class Machine:

  def __init__(self,
               size: config.PositiveInt,
               count: config.NonNegativeInt = 0,
               rate: config.PositiveFloat = 1.0,
               cost: config.NonNegativeFloat = 0.0,
               share: config.UnitInterval = 0.5,
               fraction: config.PositiveFraction = 0.5,
               kind: Literal['fast', 'slow'] = 'fast',
               gear: Literal[1, 2] = 1,
               limit: Optional[config.PositiveInt] = None,
               units: Sequence[config.PositiveInt] = (1,),
               name: str = '',
               number: float = 0.0,
               loud: bool = False,
               part: Optional[Part] = None,
               maker: Callable[..., Part] = Part,
               lines: Optional[Mapping[str, Mapping[str, float]]] = None,
               anything: Any = None,
               unspoken=None):
    self.settings = dict(locals())


@config.configurable
class FastMachine(Machine):

  def __init__(self, top_speed: config.PositiveInt = 1, **shared):
    super().__init__(**shared)
    self.top_speed = top_speed


@config.configurable(name='renamed')
def _function(size: config.PositiveInt = 3):
  return size


class CheckedArgumentsTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    gin.clear_config()

  @parameterized.parameters(
      ('size', 1), ('size', 10**12), ('count', 0), ('rate', 1), ('rate', 1e-30),
      ('cost', 0), ('share', 0), ('share', 1.0), ('fraction', 1), ('fraction', 1e-9),
      ('kind', 'slow'), ('gear', np.int64(2)), ('limit', None), ('limit', 3), ('units', [1, 2]), ('units', ()),
      ('name', 'x'), ('number', -1e9), ('number', 3), ('loud', True),
      ('lines', {}), ('lines', {'return': {'best': math.inf}}), ('part', None),
      ('part', OtherPart()), ('maker', OtherPart), ('anything', object),
      ('unspoken', 'anything'))
  def test_valid_values_are_passed_on(self, argument, value):
    machine = Machine(**{'size': 1, argument: value})
    self.assertEqual(machine.settings[argument], value)

  @parameterized.parameters(
      ('size', 0, 'an integer >= 1'),
      ('size', 1.0, 'an integer >= 1'),
      ('size', True, 'an integer >= 1'),
      ('size', None, 'an integer >= 1'),
      ('size', '1', 'an integer >= 1'),
      ('count', -1, 'an integer >= 0'),
      ('rate', 0, 'a number > 0'),
      ('rate', math.inf, 'a finite float32 number > 0'),
      ('rate', math.nan, 'a finite float32 number > 0'),
      ('cost', -1e-9, 'a number >= 0'),
      ('share', 1.01, 'a number >= 0 and <= 1'),
      ('fraction', 0.0, 'a number > 0 and <= 1'),
      ('kind', 'quick', "one of 'fast', 'slow'"),
      ('gear', 2.0, 'one of 1, 2'),
      ('gear', True, 'one of 1, 2'),
      ('limit', 0, 'an integer >= 1 or None'),
      ('units', 3, 'a list in which each item is an integer >= 1'),
      ('units', [1, 0], 'a list in which each item is an integer >= 1'),
      ('units', 'ab', 'a list in which each item is an integer >= 1'),
      ('name', 3, 'a string'),
      ('number', math.nan, 'a finite float32 number'),
      ('number', 1e39, 'a finite float32 number'),  # Infinite in float32.
      ('lines', 3, 'a dictionary or None'),
      ('lines', {1: {}}, 'a dictionary in which each key is a string or None'),
      ('lines', {'return': {'best': 'x'}}, 'a dictionary in which each value is a '
       'dictionary in which each value is a number or None'),
      ('loud', 1, 'True or False'),
      ('part', OtherPart, 'a Part (@Name() with parentheses) or None'),
      ('maker', 3, 'a callable (@Name without parentheses)'))
  def test_invalid_values_are_refused_by_name(self, argument, value, expected):
    with self.assertRaises(config.ConfigError) as caught:
      Machine(**{'size': 1, argument: value})
    self.assertEqual(config.one_line(caught.exception),
                     f'Machine.{argument} = {value!r}: expected {expected}')

  def test_help_shows_types_that_a_person_reads(self):
    shown = str(inspect.signature(Machine)).replace('typing.', '')
    for argument in (
        'size: Annotated[int, >= 1],', 'share: Annotated[float, >= 0 and <= 1] = 0.5,',
        "kind: Literal['fast', 'slow'] = 'fast',"):
      self.assertIn(argument, shown)

  def test_an_unknown_argument_is_refused_by_name(self):
    with self.assertRaisesRegex(TypeError, "^Machine got an unexpected .* 'weight'"):
      Machine(size=1, weight=2)

  def test_what_has_no_default_must_be_set(self):
    with self.assertRaisesRegex(config.ConfigError, '^Machine.size is not set'):
      Machine()

  def test_gin_sets_and_is_checked(self):
    config.parse([], ['Machine.size = 5', 'renamed.size = 7'])
    self.assertEqual(Machine().settings['size'], 5)
    self.assertEqual(_function(), 7)
    gin.clear_config()
    config.parse([], ['renamed.size = 0'])
    with self.assertRaisesRegex(config.ConfigError, '^renamed.size = 0'):
      _function()

  def test_a_base_class_is_set_once_for_all_its_subclasses(self):
    config.parse([], ['Machine.size = 5', 'FastMachine.top_speed = 3'])
    machine = FastMachine(count=2)
    self.assertEqual((machine.top_speed, machine.settings['size'],
                      machine.settings['count']), (3, 5, 2))

  def test_a_class_may_inherit_its_constructor(self):
    class Layer:  # As one of Keras, it has a `__new__` of any arguments.

      def __new__(cls, *unused_args, **unused_kwargs):
        return super().__new__(cls)

    class Base(Layer):

      def __init__(self, size: int = 3, **shared):
        self.size = size

    @config.configurable
    class Heir(Base):
      pass

    config.parse([], ['Heir.size = 5'])
    self.assertEqual(Heir().size, 5)

  def test_a_callers_argument_overrides_gins(self):
    config.parse([], ['Machine.size = 0'])
    self.assertEqual(Machine(size=2).settings['size'], 2)


class ParseTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    gin.clear_config()

  def error(self, files, bindings) -> str:
    with self.assertRaises(config.ConfigError) as caught:
      config.parse(files, bindings)
    self.assertNotIn('\n', str(caught.exception))
    return str(caught.exception)

  def file(self, text) -> str:
    return self.create_tempfile('settings.gin', text).full_path

  def test_later_files_and_then_bindings_override(self):
    first = self.file('Machine.size = 1\nMachine.count = 1\nrenamed.size = 1\n')
    second = self.create_tempfile(
        'more.gin', 'Machine.count = 2\nrenamed.size = 2\n').full_path
    config.parse([first, second], ['renamed.size = 3'])
    settings = Machine().settings
    self.assertEqual((settings['size'], settings['count'], _function()), (1, 2, 3))

  @parameterized.parameters(
      ('Machin.size = 1', "'Machin'.*Did you mean Machine?"),
      ('Machin:\n  size = 1', "'Machin'.*Did you mean Machine?"),
      ('Machine:\n  sise = 1', "'sise'.*Did you mean size?"),
      ('Machine.sise = 1', "'sise'.*Did you mean size?"),
      ('Machine.zzz = 1', "'zzz'.*Known: size, count, rate, cost,"),
      ('Machine.top_speed = 1', "'top_speed'.*Did you mean FastMachine.top_speed?"),
      ('FastMachine.speed = 1', "'speed'.*Did you mean top_speed?"),
      ('FastMachine.size = 1', "'size'.*Did you mean Machine.size?"),
      ('renamed.limit = 1', "'limit'.*Did you mean Machine.limit?"),
      ('Machine.part = @OtherPrt()', "'OtherPrt'.*Did you mean OtherPart?"),
      ('Machine.size = %big', '%big is used, and nothing is bound to it'))
  def test_an_unknown_name_is_refused_with_suggestions(self, binding, expected):
    self.assertRegex(self.error([], [binding]), expected)
    self.assertRegex(self.error([self.file(binding)], []), expected)

  @parameterized.parameters(
      ('sizes = 3', 'nothing uses the macro sizes. Did you mean size?'),
      ('seed = 3', 'nothing uses the macro seed: expected Class.argument = value'))
  def test_a_macro_that_nothing_uses_is_refused(self, binding, expected):
    path = self.file('size = 2\nlater = 4\nMachine.size = %size\n')
    self.assertStartsWith(self.error([path], [binding]), expected)
    for files, bindings in (
        ([path], ['size = 3', 'later = 5']),  # The file sets both.
        ([path], ['own = 3', 'Machine.count = %own']),
        ([], [binding])):  # As in the settings of a run.
      gin.clear_config()
      config.parse(files, bindings)

  @parameterized.parameters(
      ('Machine.size == 1', "expected ':' or '='"),
      ('Machine.size', "expected ':' or '='"),
      ('Machine.size =', 'Unable to parse value'),
      ('Machine.size = many', 'expected a literal (a string needs quotes), an @reference or a %macro'),
      ('Machine size = 1', "expected ':' or '='"))
  def test_what_is_not_gin_is_shown(self, line, expected):
    error = self.error([], ['Machine.count = 1', line, 'Machine.rate = 1'])
    self.assertStartsWith(error, f"not gin: '{line}': ")
    self.assertIn(expected, error)
    path = self.file(f'# Settings.\nMachine.count = 1\n\n{line}\n')
    error = self.error([path], [])
    self.assertStartsWith(error, f"not gin: '{line}' ({path}, line 4): ")
    self.assertIn(expected, error)

  def test_a_bracket_that_is_not_closed(self):
    path = self.file('Machine.units = (1,\nMachine.size = 1\n')
    self.assertRegex(self.error([path], []), f'not gin.*{path}')


class OneLineTest(parameterized.TestCase):

  @parameterized.parameters(
      (ValueError('size = 0: expected 1\n  In call to configurable'),
       'size = 0: expected 1'),
      (ValueError("Exception encountered when calling layer 'torso' (type Torso).\n\n"
                  'size = 0: expected 1\n\nCall arguments received'),
       'size = 0: expected 1'),
      (ValueError(), 'ValueError'))
  def test_what_an_exception_says(self, error, expected):
    self.assertEqual(config.one_line(error), expected)


if __name__ == '__main__':
  absltest.main()
