"""The trainer of offline experiments: batches from a dataset, and evaluations."""

from concurrent import futures
import math
import time
from typing import Any, Dict, Iterator, Tuple

import tensorflow as tf

from gtrxl_tf import nests
from gtrxl_tf.agents import agent as agent_lib
from gtrxl_tf.training import devices
from gtrxl_tf.training import learner
from gtrxl_tf.training import trainer
from gtrxl_tf.training.offline import experiment as experiment_lib


class OfflineTrainer(trainer.Trainer):
  """Trains an experiment's agent on a dataset, and evaluates it periodically.

  Workers that train together all make the same batches, and each takes its share. Only
  the chief evaluates.
  """

  def __init__(self, experiment: experiment_lib.OfflineExperiment,
               process: trainer.Process):
    """Creates agent and learner, and restores the newest checkpoint if there is one."""
    strategy = process.strategy
    devices.rows_per_replica(
        experiment.batch_size, strategy, 'OfflineExperiment.batch_size')
    with strategy.scope():
      agent = experiment.make_agent()
      self._optimizer = optimizer = experiment.make_optimizer()
    self._sampler = experiment.make_sampler(agent)
    # CPU time spent on training: imports, construction and evaluations do not count.
    self._cpu_seconds = tf.Variable(0.0, dtype=tf.float64)
    super().__init__(experiment, process, agent, optimizer, dict(
        sampler=self._sampler, cpu_seconds=self._cpu_seconds))
    # The network that plays is in float32, not replicated, and has averaged weights if
    # there are any.
    plain = (experiment.compute_dtype == 'float32'
             and not experiment.optimizer.ema_momentum
             and strategy is tf.distribute.get_strategy())
    self._acting = self._agent.network if plain else experiment.make_network()
    if not plain:
      agent_lib.check_copy(self._agent.network, self._acting)
    self._means: Dict[str, float] = {}  # The last evaluation's, if it followed this step.
    if self._is_chief:
      self._evaluator = experiment.make_evaluator(
          experiment.make_policy(self._acting), self._folder)
    self._cpu_started = time.process_time() - float(self._cpu_seconds)

  def _has_ended(self) -> bool:
    return self.step >= self._experiment.learner_steps

  def _should_stop(self) -> bool:
    """Returns whether to stop; all workers stop at the same step."""
    with learner.device_errors(self.step + 1):
      return devices.any_worker(self._asked_to_stop(), self._strategy)

  def _batches(self) -> Iterator[Any]:
    if self._experiment.steps_per_call == 1:
      while not self._has_ended() and not self._should_stop():
        yield self._sampler.batch(self.step)
      return
    with futures.ThreadPoolExecutor(1) as pool:
      ahead = pool.submit(self._make_call, self.step)
      while not self._has_ended() and not self._should_stop():
        batches, count = ahead.result()
        ahead = pool.submit(self._make_call, self.step + count)
        yield batches, devices.share_out(self._sampler.state, self._strategy), count

  def _make_call(self, step: int) -> Tuple[Any, int]:
    """Returns the batches of a call, until a row or the like is due, and their number."""
    experiment = self._experiment
    most = experiment.steps_per_call
    count = min(most, experiment.learner_steps - step, *(
        period - step % period for period in (
            experiment.log_period, experiment.evaluation_period,
            experiment.checkpoints.period)))
    if not count:
      return (), 0
    batches = [self._sampler.batch(step + i)._replace(state=()) for i in range(count)]
    stacked = tf.nest.map_structure(
        lambda *x: tf.stack(x), *batches, *batches[-1:] * (most - count))
    nests.free_attributes(tf.nest.flatten(batches))
    return devices.share_out(stacked, self._strategy, axis=1), count

  def _learn(self, batch: Any) -> Tuple[learner.Metrics, int]:
    if self._experiment.steps_per_call == 1:
      return super()._learn(batch)
    metrics = self._learner.several_steps(*batch)
    nests.free_attributes(tf.nest.flatten(batch, expand_composites=True))
    return metrics, batch[-1]

  def _is_due(self, period: int) -> bool:
    return self.step % period == 0 or self._has_ended()

  def _logs(self) -> bool:
    return (super()._logs() or self._is_due(self._experiment.evaluation_period)
            or self._is_due(self._experiment.checkpoints.period))

  def _between_steps(self, logs: bool) -> None:
    self._sampler.observe(self.step - 1, self._newest)
    self._means = {}
    if self._is_chief and self._is_due(self._experiment.evaluation_period):
      began = time.process_time()
      self._network_that_acts()  # Updates the evaluator's network.
      ends = self._has_ended()  # The last evaluation is not interrupted.
      self.evaluation = self._evaluator.evaluate(
          lambda: not ends and self._asked_to_stop(), after_training=ends)
      if self.evaluation is not None:
        self._means = self.evaluation.means
        if not self._experiment.learns_while_acting:
          self._keep_if_best(self.evaluation, self._acting)
      self._cpu_started += time.process_time() - began

  def _make_row(self, metrics: Dict[str, float], lap: trainer.Lap) -> Dict[str, float]:
    return {
        'seconds': lap.seconds,
        'cpu_seconds': time.process_time() - self._cpu_started,
        **dict.fromkeys(self._evaluator.columns, math.nan), **self._means,
        'learner_steps_per_second': lap.learner_steps_per_second,
        **metrics}

  def _save(self, last: bool) -> None:
    self._cpu_seconds.assign(time.process_time() - self._cpu_started)
    super()._save(last)

  def train(self) -> bool:
    try:
      ended = super().train()
    finally:
      if self._is_chief:
        self._evaluator.close()
    # A barrier: no worker continues before the chief has saved.
    with learner.device_errors(self.step):
      devices.any_worker(False, self._strategy)
    return ended

  def _network_that_acts(self) -> tf.keras.layers.Layer:
    if self._acting is not self._agent.network:
      averages = {}
      if self._experiment.optimizer.ema_momentum:
        averages = dict(zip(
            (x.ref() for x in self._agent.learned_variables),
            self._optimizer._model_variables_moving_average))  # pylint: disable=protected-access
      for acting, learned in zip(self._acting.variables, self._agent.network.variables):
        acting.assign(averages.get(learned.ref(), learned))
    return self._acting
