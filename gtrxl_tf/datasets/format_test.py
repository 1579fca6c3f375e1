"""Tests of format.py."""

import copy

from absl.testing import absltest
from absl.testing import parameterized
import dm_env
from dm_env import specs as dm_specs
import numpy as np
import tree

from gtrxl_tf import datasets
from gtrxl_tf import environments
from gtrxl_tf.datasets import episodes_testing
from gtrxl_tf.datasets import format as format_lib

_SPECS = datasets.Specs({'x': dm_specs.Array((), np.float32)},
                        dm_specs.DiscreteArray(3))


def _time_steps(end):
  def see(x):
    return {'x': np.float32(x)}

  return [dm_env.restart(see(0)), dm_env.transition(10.0, see(1)),
          dm_env.transition(20.0, see(2), discount=0.5), end(30.0, see(3))]


class FromDmEnvTest(parameterized.TestCase):

  @parameterized.parameters(
      (dm_env.termination, datasets.End.TERMINATION, 0),
      (dm_env.truncation, datasets.End.TRUNCATION, 1))
  def test_a_step_has_observation_action_and_result(self, end, kind, discount):
    with self.assertNoLogs():
      episode = datasets.from_dm_env(_time_steps(end), [2, 0, 1], _SPECS, success=1.0)
    episodes_testing.assert_equal(episode, datasets.Episode(
        {'x': np.float32([0, 1, 2])}, np.int32([2, 0, 1]), np.float32([10, 20, 30]),
        np.float32([1, 0.5, discount]), np.uint8([0, 0, kind]), 1.0,
        {'x': np.float32(3)}))

  def test_refuses_time_steps_that_are_not_one_episode(self):
    whole = _time_steps(dm_env.termination)
    for time_steps, actions in [(whole, [0, 1]), (whole[:-1], [0, 1]),
                                (whole[1:], [0, 1]), (whole[:1], []),
                                (whole[:-1] + whole, [0] * 6)]:
      with self.assertRaisesRegex(datasets.DatasetError, 'one FIRST, any MID, one L'):
        datasets.from_dm_env(time_steps, actions, _SPECS)

  @parameterized.parameters(([2.0, 0.5, 1.0],), ([[2], [0, 1], [1]],))
  def test_refuses_what_does_not_fit_the_specs(self, actions):
    with self.assertRaisesRegex(datasets.DatasetError, 'action: .*expected arrays of int32'):
      datasets.from_dm_env(_time_steps(dm_env.termination), actions, _SPECS)


class SpecsTest(absltest.TestCase):

  def test_what_is_no_spec_of_dm_env_is_refused(self):
    class Box:
      """A space of gymnasium has these, too."""
      shape, dtype = (3,), np.dtype(np.float32)

    with self.assertRaisesRegex(datasets.DatasetError, '^observation_spec has a Box'):
      datasets.Specs({'x': Box()}, _SPECS.action).leaves()

  def test_specs_come_back_from_json(self):
    rng = np.random.default_rng(0)
    for _ in range(50):
      specs = episodes_testing.random_specs(rng)
      entries = {name: format_lib.spec_to_json(name, spec)
                 for name, spec in specs.leaves().items()}
      found = format_lib.specs_from_json(entries)
      self.assertEqual(found.leaves(), specs.leaves())
      for name, spec in specs.leaves().items():
        self.assertIs(type(found.leaves()[name]), type(spec))

  def test_names_of_actions_come_back_from_json(self):
    spec = environments.NamedActions(['left', 'right'], np.uint8)
    [found] = format_lib.specs_from_json(dict.fromkeys(
        ('observation', 'action'), format_lib.spec_to_json('action', spec)))[1:2]
    self.assertEqual((found, found.names), (spec, ('left', 'right')))
    self.assertEqual(copy.deepcopy(found).names, ('left', 'right'))

  def test_tuples_come_back_from_json_and_are_no_dictionaries(self):
    array = dm_specs.Array((), np.float32)
    specs = datasets.Specs(((array,) * 11, {'0': array}), {'a': (array, array)})
    entries = {name: format_lib.spec_to_json(name, spec)
               for name, spec in specs.leaves().items()}
    self.assertIn('observation.[0].[10]', entries)
    self.assertIn('observation.[1].0', entries)
    tree.assert_same_structure(format_lib.specs_from_json(entries), specs)
    del entries['action.a.[0]']
    with self.assertRaises(KeyError):  # `open_dataset` says it in one line.
      format_lib.specs_from_json(entries)

  def test_refuses_structures_that_have_no_file_names(self):
    array = dm_specs.Array((), np.float32)
    for nest in ({'a/b': array}, {'a.b': array}, [array, array], {'': array}):
      with self.assertRaisesRegex(datasets.DatasetError, 'expected dictionaries'):
        datasets.Specs(nest, array).leaves()

  def test_refuses_objects(self):
    with self.assertRaisesRegex(datasets.DatasetError, 'numbers or bools'):
      format_lib.spec_to_json('x', dm_specs.Array((), object))


if __name__ == '__main__':
  absltest.main()
