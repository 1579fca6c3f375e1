"""Tests of the names of the variables of networks that learn from data."""

import pathlib
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
from dm_env import specs
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf import testing
from gtrxl_tf.cores import core
from gtrxl_tf.networks import cql
from gtrxl_tf.networks import decision
from gtrxl_tf.networks import distillation
from gtrxl_tf.networks import torsos

_NETWORKS = {
    'decision': lambda: decision.DecisionNetwork(
        testing.DISCRETE, torsos.VectorTorso((8,)),
        cores.RATE(2, 8, 2, 4, mlp_dim=8, segment_length=6)),
    'distillation': lambda: distillation.DistillationNetwork(
        testing.DISCRETE, cores.SegmentTransformer(2, 8, 2, 4, 8, segment_length=3),
        num_positions=9),
    'cql': lambda: cql.CQLNetwork(
        testing.DISCRETE, torsos.VectorTorso((8,)), cores.DeepLSTM(2, 8)),
}


def _made(name):
  network = _NETWORKS[name]()
  network.create_variables(specs.Array((4,), np.float32))
  return network


class VariableNamesTest(parameterized.TestCase, tf.test.TestCase):

  @parameterized.parameters(*_NETWORKS)
  def test_every_variable_has_its_own_name_with_that_of_its_layer(self, name):
    network = _made(name)
    names = [variable.name for variable in network.variables]
    self.assertLen(set(names), len(names), names)
    self.assertNoCommonElements(
        names, [f'{network.name}/{of_weight}:0' for of_weight in ('kernel', 'bias')])

  @parameterized.parameters(*_NETWORKS)
  @pytest.mark.medium
  def test_checkpoints_do_not_depend_on_names(self, name):
    with mock.patch.object(
        core, 'build_layer', lambda layer, shape: layer.build(shape)):
      unnamed = _made(name)
    network = _made(name)
    self.assertNotEqual([v.name.split('/')[1:] for v in unnamed.variables],
                        [v.name.split('/')[1:] for v in network.variables])
    def optimizer():
      return tf.keras.optimizers.Adam(0.1)
    old, new = (tf.train.Checkpoint(network=x, optimizer=optimizer())
                for x in (unnamed, network))
    for checkpoint in (old, new):
      checkpoint.optimizer.build(checkpoint.network.trainable_variables)
    old.optimizer.apply_gradients(
        [(tf.ones_like(v), v) for v in unnamed.trainable_variables])
    path = old.save(str(pathlib.Path(self.create_tempdir().full_path) / 'checkpoint'))
    new.restore(path).assert_consumed()
    self.assertAllEqual(old.optimizer.iterations, new.optimizer.iterations)
    for one, other in zip([*unnamed.variables, *old.optimizer.variables],
                          [*network.variables, *new.optimizer.variables]):
      self.assertAllEqual(one, other)


if __name__ == '__main__':
  absltest.main()
