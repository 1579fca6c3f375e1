"""Tests that the step of every agent is one that a TPU could take; see docs/performance.md."""

from absl.testing import absltest
from absl.testing import parameterized
import dm_env
import pytest
import tensorflow as tf

from gtrxl_tf import testing
from gtrxl_tf.replay import unroll
from gtrxl_tf.training import learner as learner_lib
from gtrxl_tf.training import tiny_agents_testing
from tools import learner_hlo


def _make(name):
  agent = tiny_agents_testing.AGENTS[name].make()
  # With 1e-8, a gradient that is 0 up to rounding would make a full step.
  optimizer = tf.keras.optimizers.legacy.Adam(1e-2, epsilon=1e-4)
  return agent, learner_lib.Learner(
      agent, optimizer, tf.distribute.get_strategy(), clip_norm=0.1)


def _make_simple(value, loss):
  """Makes the learner of a variable, whose loss is a function of it and the batch."""
  agent = tf.Module()
  agent.variable = tf.Variable(value)
  agent.learned_variables = [agent.variable]
  agent.after_step = lambda metrics: metrics
  agent.loss = lambda batch: (loss(agent.variable, batch), {})
  return learner_lib.Learner(
      agent, tf.keras.optimizers.legacy.Adam(), tf.distribute.get_strategy())


class TpuTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.parameters(*tiny_agents_testing.AGENTS)
  @pytest.mark.long
  def test_the_step_is_one_for_xla(self, name):
    batch = tiny_agents_testing.AGENTS[name].batch(0)
    (plain, plain_learner), (agent, learner) = _make(name), _make(name)
    text = learner_hlo.hlo(learner, batch)
    self.assertIn('f32[', text)
    self.assertEmpty(learner_hlo.forbidden(text))
    self.assertEqual(learner_hlo.num_constants(learner, batch), 0)

    step = tf.function(learner.device_step, jit_compile=True, autograph=False)
    found, expected = step(batch), plain_learner.device_step(batch)
    self.assertAllClose(found, expected, atol=1e-5, rtol=1e-5)
    self.assertAllClose(agent.variables, plain.variables, atol=1e-5)

  def test_a_lookup_is_one_for_xla(self):
    learner = _make_simple(tf.ones([3, 2]), lambda table, rows: tf.reduce_sum(
        tf.gather(table, rows)))
    self.assertEmpty(learner_hlo.forbidden(learner_hlo.hlo(learner, tf.range(2))))

  def test_an_index_that_is_compiled_in_is_found(self):
    learner = _make_simple(1.0, lambda weight, index: weight * tf.range(3.0)[index])
    self.assertEqual(learner_hlo.num_constants(learner, tf.constant(1)), 1)

  def test_a_played_batch_goes_on_and_has_contents(self):
    recorded = testing.random_unrolls(0)
    blank = tf.nest.map_structure(tf.zeros_like, recorded)
    sample = unroll.Sample(blank, tf.ones([4]))
    found = learner_hlo.played(sample).unroll
    tf.nest.map_structure(
        lambda x, y: self.assertEqual((x.shape, x.dtype), (y.shape, y.dtype)),
        found, blank)
    self.assertTrue(tf.reduce_all(found.step_type == int(dm_env.StepType.MID)))
    for x in (found.observation, found.reward, *tf.nest.flatten(found.policy)):
      self.assertGreater(tf.math.reduce_std(x), 0.1)
    self.assertIs(learner_hlo.played(recorded.reward), recorded.reward)

  def test_unsupported_operations_are_found(self):
    for x, name in (('f32[<=4,2]{1,0} add', 'a dynamic shape'),
                    ('f64[] constant(0)', 'float64'),
                    ('f32[2] custom-call(x)', 'a custom call')):
      self.assertEqual(learner_hlo.forbidden(f'%x.1 = {x}'), [name])
    step = tf.function(lambda x, mask: tf.boolean_mask(x, mask), jit_compile=True)
    text = step.experimental_get_compiler_ir(
        tf.zeros([3]), tf.zeros([3], tf.bool))(stage='hlo')
    self.assertEqual(learner_hlo.forbidden(text), ['a dynamic shape'])


if __name__ == '__main__':
  absltest.main()
