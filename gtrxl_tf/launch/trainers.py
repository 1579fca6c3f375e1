"""The trainer of each kind of experiment."""

from typing import Optional

from gtrxl_tf.training import evaluation
from gtrxl_tf.training import experiment as experiment_lib
from gtrxl_tf.training import trainer
from gtrxl_tf.training.offline import trainer as offline_trainer
from gtrxl_tf.training.online import trainer as online_trainer


def train(experiment: experiment_lib.Experiment, process: trainer.Process
          ) -> Optional[evaluation.Evaluation]:
  """Trains in this process to the end, or until it should stop; see `Trainer.run`.

  Returns:
    The last evaluation, if training evaluates and came to its end.
  """
  kind = (online_trainer.OnlineTrainer if experiment.is_online
          else offline_trainer.OfflineTrainer)
  made = kind(experiment, process)
  return made.evaluation if made.run() else None
