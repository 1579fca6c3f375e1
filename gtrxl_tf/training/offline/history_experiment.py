"""Experiments that learn from learning histories, for algorithm distillation."""

import inspect
from typing import Any, Optional, Sequence, Tuple

import numpy as np

from gtrxl_tf import collecting
from gtrxl_tf.agents import distillation
from gtrxl_tf.environments import task_batch
from gtrxl_tf.networks import distillation as network_lib
from gtrxl_tf.settings import config
from gtrxl_tf.training import evaluation as evaluation_lib
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import run_folder
from gtrxl_tf.training.offline import experiment
from gtrxl_tf.training.offline import history_samplers
from gtrxl_tf.training.offline import learning_processes
from gtrxl_tf.training.offline import samplers


@config.configurable
class HistoryExperiment(experiment.OfflineExperiment):
  """An experiment that distills the source of a dataset of learning histories.

  Evaluations are learning processes in the tasks in which the source was evaluated.
  Tasks come from the collector: `Experiment.environment` must not be set. The other
  settings are those of `Experiment` and `OfflineExperiment`; `OfflineExperiment.sampler`
  must be one of `history_samplers`, and settings of episodes, such as `starts` and
  `end_reward`, must not be set. The defaults are `DistillationNetwork`,
  `DistillationAgent` and `AdamW`.

  Args:
    collector: the collector of the dataset.
    temperatures: temperatures that the evaluation after training tries in tasks of
      training, to play the evaluation's tasks at the best one. The paper does not say
      at which temperature its models act; with none here, they act at
      `DistillationPolicy.temperature`, and greedily.
    **shared: the settings of `OfflineExperiment`.
  """
  kind = 'HistoryExperiment'
  learns_while_acting = True
  default_network = network_lib.DistillationNetwork
  default_agent = distillation.DistillationAgent

  def __init__(self, collector: collecting.HistoryCollector,
               temperatures: Sequence[config.NonNegativeFloat] = (), **shared):
    self._collector = collector
    self._temperatures = temperatures
    super().__init__(**shared)

  def _make_specs(self) -> Tuple[Any, Any]:
    for name, value in (
        ('environment', self._environment), ('wrappers', self._wrappers)):
      if value is not None:
        raise config.ConfigError(
            f'Experiment.{name} is set: expected none with a HistoryExperiment, '
            'whose tasks come from its collector')
    return self._collector.specs.observation, self._collector.specs.action

  def _check_specs(self) -> None:
    parameters = inspect.signature(experiment.OfflineExperiment).parameters
    for name, value in self._of_episodes.items():
      default = parameters[name].default
      if value != default:
        raise config.ConfigError(
            f'OfflineExperiment.{name} = {value!r}: expected {default!r} with a '
            'HistoryExperiment, which learns from whole histories as they are')
    if len(self.task_names) > 1:
      raise config.ConfigError(
          'Experiment.tasks is set: expected none with a HistoryExperiment, whose tasks '
          'come from its collector')
    if self.dataset.path.name == 'evaluation':  # As `collect_histories` names it.
      raise config.ConfigError(
          f'OfflineExperiment.dataset = {str(self.dataset.path)!r}: expected the '
          'histories of training; these are in the tasks of the evaluation')
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

  def make_sampler(self, agent: Any) -> samplers.Sampler:
    made = super().make_sampler(agent)
    if not isinstance(made, history_samplers.HistorySampler):
      raise config.ConfigError(
          f'OfflineExperiment.sampler = @{type(made).__name__}: expected @HistoryWindows '
          'or @HistoryChunks with a HistoryExperiment')
    return made

  def _make_network(self) -> network_lib.DistillationNetwork:
    return self._network(action_spec=self.action_spec,
                         num_positions=self._collector.family.num_steps)

  def make_policy(self, network: network_lib.DistillationNetwork
                  ) -> distillation.DistillationPolicy:
    """Makes a policy that learns while it acts, with `network`."""
    return self._policy(network, self.observation_spec, self.action_spec)

  def make_evaluator(self, policy: Any, folder: Optional[run_folder.RunFolder] = None
                     ) -> learning_processes.LearningProcesses:
    """Makes the evaluator of a policy, which plays learning processes."""
    return learning_processes.LearningProcesses(
        policy, self._collector, self.seed, folder and folder.learning_process,
        self._temperatures)

  def informed_return(self, num_episodes: int = 100) -> float:
    """Returns the mean return of a policy that knows the tasks of the evaluation."""
    del num_episodes  # All episodes of a task have the same return.
    return float(np.mean(
        task_batch.informed_return(self._collector.evaluation_tasks())))

  def describe(self, folder: run_folder.RunFolder,
               evaluation: evaluation_lib.Evaluation, informed: Optional[float]) -> str:
    del evaluation, informed
    last = metrics_csv.read_metrics(folder.metrics)[-1]
    return (f'{learning_processes.describe(last)}\n'
            f'Learning process: {folder.learning_process}')
