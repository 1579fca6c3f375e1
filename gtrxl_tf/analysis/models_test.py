"""Tests for variants."""

from absl.testing import absltest
from absl.testing import parameterized

from gtrxl_tf.analysis import models
from gtrxl_tf.settings import config


class VariantsTest(parameterized.TestCase):

  def test_a_model_is_a_core_or_gin_files(self):
    self.assertEqual(
        models.models(['gtrxl', 'a/rate.gin', 'a/rate.gin+a/pool.gin', 'lstm+x.gin']),
        {'gtrxl': (['cores/gtrxl.gin'], []), 'rate': (['a/rate.gin'], []),
         'rate+pool': (['a/rate.gin', 'a/pool.gin'], []),
         'lstm+x': (['cores/lstm.gin', 'x.gin'], [])})

  def test_a_model_may_have_settings_of_its_own(self):
    self.assertEqual(
        models.models(['gtrxl+TransformerXL.gate=highway',
                         'a=b/rate.gin+RATE.mlp_dim=%mlp_dim+chunk=10+x.y=True']),
        {'gtrxl+gate=highway': (['cores/gtrxl.gin'],
                                ["TransformerXL.gate='highway'"]),
         'rate+mlp_dim=%mlp_dim+chunk=10+y=True': (
             ['a=b/rate.gin'], ['RATE.mlp_dim=%mlp_dim', 'chunk=10', 'x.y=True'])})

  @parameterized.parameters(
      (['gtrxl+x.y='], "'x.y=': expected SETTING=VALUE"),
      (['gtrxl+x.gate=a', 'gtrxl+y.gate=a'], r'two of the name gtrxl\+gate=a'),
      (['a/rate.gin', 'b/rate.gin'], 'two of the name rate'))
  def test_refuses_what_is_no_model(self, names, message):
    with self.assertRaisesRegex(config.ConfigError, message):
      models.models(names)

  def test_a_sweep_is_over_values_or_over_files(self):
    self.assertEqual(
        models.sweep('Numpad.size=2,3'),
        [models.Point('Numpad.size=2', '2', [], ['Numpad.size=2']),
         models.Point('Numpad.size=3', '3', [], ['Numpad.size=3'])])
    self.assertEqual(models.swept('Numpad.size=2,3'), 'Numpad.size')
    files = 'my runs/a=b/x.gin,y.gin'
    self.assertEqual([point.gin_files for point in models.sweep(files)],
                     [['my runs/a=b/x.gin'], ['y.gin']])
    self.assertEqual(models.swept(files), 'experiment')
    self.assertEqual(models.sweep('TransformerXL.gate=gru'), [models.Point(
        'TransformerXL.gate=gru', 'gru', [], ["TransformerXL.gate='gru'"])])
    self.assertEqual(
        [point.bindings for point in models.sweep('A.x=(64,64),(8,),(),(@B,),-1e-3,a:b-2')],
        [['A.x=(64,64)'], ['A.x=(8,)'], ['A.x=()'], ['A.x=(@B,)'], ['A.x=-1e-3'],
         ["A.x='a:b-2'"]])
    self.assertEqual(
        models.sweep('a/x.gin,y.gin'),
        [models.Point('x', 'x', ['a/x.gin'], []),
         models.Point('y', 'y', ['y.gin'], [])])
    self.assertEqual(models.swept('a/x.gin,y.gin'), 'experiment')
    self.assertEqual(models.sweep(None), [models.Point('', '', [], [])])
    self.assertIsNone(models.swept(None))

  @parameterized.parameters(
      'Numpad.size', 'Numpad.size=', '=2,3', 'Numpad.size=2,,3', 'Numpad.size=../2',
      'Numpad.size=(2,3', 'a.gin, b.gin', 'VectorTorso.units=[8],[16]')
  def test_refuses_what_is_no_sweep(self, text):
    with self.assertRaisesRegex(config.ConfigError, 'expected SETTING=VALUE,VALUE'):
      models.sweep(text)

  @parameterized.parameters('Numpad.size=2,3,2', 'a/x.gin,y.gin,b/x.gin')
  def test_refuses_two_points_of_one_name(self, text):
    with self.assertRaisesRegex(config.ConfigError, 'two points of the name'):
      models.sweep(text)


if __name__ == '__main__':
  absltest.main()
