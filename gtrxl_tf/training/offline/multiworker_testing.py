"""One of several workers that train together, as a process; for tests.

  TF_CONFIG=... python -m gtrxl_tf.training.offline.multiworker_testing agent NAME FILE
  TF_CONFIG=... python -m gtrxl_tf.training.offline.multiworker_testing offline DATASET \
      FOLDER STOP_AFTER

`agent` trains a tiny agent and writes the result into FILE, an npz. `offline` trains on
episodes of a T-Maze, and asks to stop after STOP_AFTER learner steps.
"""

import functools
import json
import os
import socket
import subprocess
import sys
from typing import List

import numpy as np

from gtrxl_tf import cores
from gtrxl_tf.agents import decision as policy_lib
from gtrxl_tf.environments import t_maze
from gtrxl_tf.networks import decision
from gtrxl_tf.networks import torsos
from gtrxl_tf.training import checkpoints
from gtrxl_tf.training import devices
from gtrxl_tf.training import run_folder
from gtrxl_tf.training import tiny_agents_testing
from gtrxl_tf.training import trainer as training_lib
from gtrxl_tf.training.offline import experiment as offline_experiment
from gtrxl_tf.training.offline import samplers
from gtrxl_tf.training.offline import trainer

MAZE = functools.partial(t_maze.TMaze, corridor_length=4)


def start(arguments: List[List[str]],
          module: str = 'gtrxl_tf.training.offline.multiworker_testing'
          ) -> List[subprocess.Popen]:
  """Starts a worker for each list of arguments, on loopback."""
  sockets = [socket.socket() for _ in arguments]
  for x in sockets:
    x.bind(('127.0.0.1', 0))
  cluster = {'worker': [f'127.0.0.1:{x.getsockname()[1]}' for x in sockets]}
  for x in sockets:
    x.close()
  return [
      subprocess.Popen(
          [sys.executable, '-m', module, *own],
          env=dict(os.environ, TF_CONFIG=json.dumps(
              {'cluster': cluster, 'task': {'type': 'worker', 'index': i}})),
          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
      for i, own in enumerate(arguments)]


def experiment(dataset: str) -> offline_experiment.OfflineExperiment:
  """Makes an experiment of 20 learner steps, whose core has an empty carry."""
  def network(action_spec):
    return decision.DecisionNetwork(
        action_spec, torsos.VectorTorso((8,)),
        cores.RATE(1, 8, 2, 4, num_memory_tokens=1, segment_length=6))
  return offline_experiment.OfflineExperiment(
      dataset=dataset, environment=MAZE, network=network,
      policy=functools.partial(policy_lib.DecisionPolicy, target_return=1.0),
      sampler=samplers.SegmentBySegment, learner_steps=20, segment_length=2,
      num_segments=3, batch_size=16, evaluation_episodes=4,
      checkpoints=checkpoints.Settings(period=7), log_period=5)


def _agent(strategy, name: str, path: str) -> None:
  found = tiny_agents_testing.train(name, strategy)
  found['any_chief'] = devices.any_worker(devices.is_chief(strategy), strategy)
  number = devices.worker_number(strategy)
  found['texts'] = devices.texts_of_workers((1 + 90 * number) * f'né{number}', strategy)
  np.savez(path, chief=devices.is_chief(strategy), **found)


def _offline(strategy, dataset: str, folder: str, stop_after: str) -> None:
  training = trainer.OfflineTrainer(
      experiment(dataset), training_lib.Process(
          run_folder.RunFolder(folder), strategy,
          lambda: training.step >= int(stop_after)))
  done = training.train()
  training.export()
  print(f'chief: {devices.is_chief(strategy)}, done: {done}')


if __name__ == '__main__':
  {'agent': _agent, 'offline': _offline}[sys.argv[1]](
      devices.make_strategy('multiworker'), *sys.argv[2:])
