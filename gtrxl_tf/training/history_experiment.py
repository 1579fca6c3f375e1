"""Trains on learning histories, and judges by learning processes."""

import pathlib
from typing import Optional

from gtrxl_tf import config
from gtrxl_tf import sources
from gtrxl_tf.agents.distillation import network as network_lib
from gtrxl_tf.agents.distillation import policy as policy_lib
from gtrxl_tf.environments import task_batch
from gtrxl_tf.training import learning_processes
from gtrxl_tf.training import offline
from gtrxl_tf.training import run_folder


@config.configurable
class HistoryExperiment(offline.OfflineExperiment):
  """An agent that distills the source of a dataset of learning histories, and is judged
  by learning in the tasks that the source was evaluated in.

  All else is set for `OfflineExperiment`: network, agent, policy and scheme, which are
  to be those of distillation, and K, N and the optimizer.

  Args:
    collector: as the dataset was collected with.
  """

  def __init__(self, collector: sources.HistoryCollector):
    self._collector = collector
    # Of no use but for its specs.
    super().__init__(environment=lambda seed: task_batch.SingleTask(
        collector.family.make('evaluation', 1, seed)))
    self.observation_spec = collector.specs.observation
    self.action_spec = collector.specs.action

  def _check_specs(self) -> None:
    found, expected = self.dataset.specs, self._collector.specs
    if found != expected:
      raise config.ConfigError(
          f'OfflineExperiment.dataset has {found}: expected those of '
          f'HistoryExperiment.collector, {expected}')

  def make_policy(self, network: network_lib.DistillationNetwork
                  ) -> policy_lib.DistillationPolicy:
    return self._policy(network, self.observation_spec, self.action_spec)

  def make_judge(self, policy, folder: Optional[run_folder.RunFolder] = None
                 ) -> learning_processes.LearningProcesses:
    """What plays learning processes, and draws them if there is a folder."""
    picture = pathlib.Path(folder.root) / 'learning_process.png' if folder else None
    return learning_processes.LearningProcesses(
        policy, self._collector, self.seed, picture)
