"""Trains on learning histories, and judges by learning processes."""

from typing import Any, Optional

import numpy as np

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
    family = self._collector.family
    found = {'environment': self.dataset.environment, **self.dataset.specs._asdict(),
             'lengths': sorted(set(self.dataset.lengths.tolist()))}
    expected = {'environment': family.name, **self._collector.specs._asdict(),
                'lengths': [family.num_steps]}
    for what in found:
      if found[what] != expected[what]:
        raise config.ConfigError(
            f'OfflineExperiment.dataset has the {what} {found[what]!r}: expected that '
            f'of HistoryExperiment.collector, {expected[what]!r}')

  def _make_network(self) -> network_lib.DistillationNetwork:
    return self._network(action_spec=self.action_spec,
                         num_positions=self._collector.family.num_steps)

  def make_policy(self, network: network_lib.DistillationNetwork
                  ) -> policy_lib.DistillationPolicy:
    """A policy that acts, and learns, with `network`."""
    return self._policy(network, self.observation_spec, self.action_spec)

  def make_judge(self, policy: Any, folder: Optional[run_folder.RunFolder] = None
                 ) -> learning_processes.LearningProcesses:
    """What has a policy learn, and draws how it did if there is a folder."""
    return learning_processes.LearningProcesses(
        policy, self._collector, self.seed, folder and folder.learning_process)

  def informed_return(self, num_episodes: int = 100) -> float:
    """Mean return of one who knows the tasks of the evaluation."""
    del num_episodes  # In each there is one way only.
    return float(np.mean(
        task_batch.informed_return(self._collector.evaluation_tasks())))
