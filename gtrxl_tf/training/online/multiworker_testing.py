"""One of several workers that train on one queue, as a process; for tests.

  TF_CONFIG=... python -m gtrxl_tf.training.online.multiworker_testing ADDRESS FOLDER NUM_BATCHES

It prints the writers of the unrolls that it took, and the counts of its ledger.
"""

import functools
import json
import sys
import time

from gtrxl_tf import cores
from gtrxl_tf.agents import vmpo
from gtrxl_tf.environments import t_maze
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import torsos
from gtrxl_tf.training import checkpoints
from gtrxl_tf.training import devices
from gtrxl_tf.training import optimizers
from gtrxl_tf.training import run_folder
from gtrxl_tf.training import trainer as training_lib
from gtrxl_tf.training.online import experiment as experiment_lib
from gtrxl_tf.training.online import trainer

UNROLL_LENGTH, NUM_ENVIRONMENTS, ITEMS_PER_BATCH = 4, 2, 2
_SECONDS = 200


def _network(action_spec):
  return actor_critic.ActorCritic(
      action_spec, torsos.VectorTorso((4,)), cores.Memoryless(1, 4), head_units=4)


def experiment(num_batches: int) -> experiment_lib.OnlineExperiment:
  """Makes an experiment that ends after a number of batches."""
  return experiment_lib.OnlineExperiment(
      environment=lambda seed: t_maze.TMaze(3, seed=seed), network=_network,
      agent=functools.partial(vmpo.VMPOAgent, target_update_period=2),
      environment_steps=(
          num_batches * ITEMS_PER_BATCH * UNROLL_LENGTH * NUM_ENVIRONMENTS),
      unroll_length=UNROLL_LENGTH, batch_size=ITEMS_PER_BATCH * NUM_ENVIRONMENTS,
      environments_per_actor=NUM_ENVIRONMENTS, max_age=100,
      optimizer=optimizers.Adam(final_learning_rate=0.1),
      checkpoints=checkpoints.Settings(period=3), log_period=2)


def _train(address: str, folder: str, num_batches: str) -> None:
  strategy = devices.make_strategy('multiworker')
  deadline = time.time() + _SECONDS
  training = trainer.OnlineTrainer(
      experiment(int(num_batches)), training_lib.Process(
          run_folder.RunFolder(folder), strategy, lambda: time.time() > deadline,
          address))
  before = json.loads(training._ledger.own_state())  # pylint: disable=protected-access
  done = training.train()
  after = json.loads(training._ledger.own_state())  # pylint: disable=protected-access
  known = dict(before['newest_of_writer'])
  print(json.dumps({
      'done': done, 'unrolls': after['unrolls'], 'duplicate': after['duplicate'],
      'writers': [i for i, _ in after['newest_of_writer'] if i not in known]}))


if __name__ == '__main__':
  _train(*sys.argv[1:])
