"""Tests of an offline run with replicas in bfloat16."""

import functools
import pathlib

from absl.testing import absltest
import numpy as np
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf import devices_testing
from gtrxl_tf import testing
from gtrxl_tf.agents import decision as policy_lib
from gtrxl_tf.environments import t_maze
from gtrxl_tf.networks import decision
from gtrxl_tf.networks import torsos
from gtrxl_tf.training import devices
from gtrxl_tf.training import optimizers
from gtrxl_tf.training import run_folder
from gtrxl_tf.training import trainer as training_lib
from gtrxl_tf.training.offline import experiment as offline_experiment
from gtrxl_tf.training.offline import trainer

devices_testing.split_cpu(2)

_MAZE = functools.partial(t_maze.TMaze, corridor_length=4)


def _network(action_spec):
  return decision.DecisionNetwork(
      action_spec, torsos.VectorTorso((16,)),
      cores.RATE(1, 16, 2, 8, variant='trxl_i', num_memory_tokens=1,
                 segment_length=18))


class OfflineReplicasTest(absltest.TestCase):

  def experiment(self, **settings):
    dataset = pathlib.Path(self.create_tempdir().full_path) / 'mazes'
    testing.write_informed_episodes(dataset, _MAZE(seed=0), 50)
    return offline_experiment.OfflineExperiment(
        dataset=str(dataset), environment=_MAZE, network=_network,
        policy=functools.partial(policy_lib.DecisionPolicy, target_return=1.0),
        segment_length=6, num_segments=1, batch_size=16,
        optimizer=optimizers.AdamW(learning_rate=5e-3, warmup_steps=10),
        learner_steps=2, evaluation_episodes=2, log_period=1,
        **settings)

  def test_replicas_in_bfloat16_leave_a_policy_in_float32(self):
    folder = run_folder.RunFolder(self.create_tempdir().full_path)
    rows = []
    experiment = self.experiment(compute_dtype='bfloat16')
    training = trainer.OfflineTrainer(
        experiment, training_lib.Process(
            folder, devices.make_strategy('mirrored'), lambda: False,
            show=rows.append))
    training.train()
    training.export()
    agent = experiment.restore_agent(folder.checkpoints)
    self.assertEqual(agent.network.compute_dtype, 'float32')
    exported = tf.saved_model.load(str(folder.policy)).model_variables
    # pylint: disable=protected-access
    for learned, restored in zip(
        training._agent.network.variables, agent.network.variables):
      np.testing.assert_array_equal(learned.numpy(), restored.numpy())
      self.assertTrue(any(np.array_equal(learned.numpy(), x.numpy()) for x in exported))
    exact = self.experiment()
    agent = exact.make_agent()
    loss = float(agent.loss(exact.make_sampler(agent).batch(0))[0])
    self.assertAlmostEqual(rows[0]['loss'], loss, delta=0.01)
    self.assertNotAlmostEqual(rows[0]['loss'], loss, delta=1e-6)


if __name__ == '__main__':
  absltest.main()
