"""Tests that learner steps taken in one call are those taken in several."""

from absl.testing import absltest
from absl.testing import parameterized
import pytest
import tensorflow as tf

from gtrxl_tf import devices_testing
from gtrxl_tf.training import devices
from gtrxl_tf.training import learner as learner_lib
from gtrxl_tf.training import tiny_agents_testing

devices_testing.split_cpu(2)

_STEPS = 5


class _Training:
  """An agent and its learner."""

  def __init__(self, name, strategy):
    make, self.batch = tiny_agents_testing.AGENTS[name]
    self.strategy = strategy
    with strategy.scope():
      self.agent = make()
      if name == 'cql':
        self.agent._target_update_period = 2
      self.optimizer = tiny_agents_testing.ADAM()
    self.learner = learner_lib.Learner(self.agent, self.optimizer, strategy)
    self.state = self.batch(0).state
    self.found = []  # The metrics of each call.

  def note(self, metrics):
    self.state = metrics.get('carried', ())
    self.found.append([list(metrics.numbers().values()),
                       *(x.numpy() for x in tf.nest.flatten(self.state))])

  def step(self, seed):
    self.note(self.learner.step(devices.share_out(
        self.batch(seed)._replace(state=self.state), self.strategy)))

  def steps(self, seeds, most):
    """Takes a step for each seed in a call that may take `most`."""
    batches = [self.batch(seed)._replace(state=())
               for seed in [*seeds, *[0] * (most - len(seeds))]]
    stacked = tf.nest.map_structure(lambda *x: tf.stack(x), *batches)
    self.note(self.learner.several_steps(
        devices.share_out(stacked, self.strategy, axis=1),
        devices.share_out(self.state, self.strategy), len(seeds)))

  def variables(self):
    return [v.numpy() for v in (*self.agent.variables, *self.optimizer.variables())]


class StepsPerCallTest(tf.test.TestCase, parameterized.TestCase):

  # ED carries a state, and CQL has a target network, here copied at every second step.
  @parameterized.parameters(('ed', 1), ('cql', 1), ('ed', 2), ('cql', 2))
  @pytest.mark.long
  def test_a_call_of_several_steps_is_as_many_calls(self, name, num_replicas):
    strategy = tf.distribute.get_strategy()
    if num_replicas > 1:
      strategy = devices_testing.mirrored(self, num_replicas)
    single, several = (_Training(name, strategy) for _ in range(2))
    for seed in range(_STEPS):
      single.step(seed)
    several.steps([0, 1, 2], most=3)
    traces = several.learner._loop.experimental_get_tracing_count()
    several.steps([3, 4], most=3)
    self.assertEqual(several.learner.steps, _STEPS)
    # Up to rounding: TensorFlow optimizes the two graphs in different ways.
    self.assertAllClose(
        several.found, [single.found[2], single.found[4]], atol=1e-6, rtol=1e-5)
    self.assertAllClose(several.variables(), single.variables(), atol=1e-6)
    # A shorter call and another state need no other graph, which a TPU would compile.
    self.assertEqual(several.learner._loop.experimental_get_tracing_count(), traces)


if __name__ == '__main__':
  absltest.main()
