"""What TensorBoard shows of a run."""

import math
import pathlib
from typing import Mapping, Optional

from absl import logging
import tensorflow as tf

from gtrxl_tf import config


class Summaries:
  """Writes numbers for TensorBoard. A disk that is full is logged; the run goes on."""

  def __init__(self, folder: pathlib.Path):
    self._folder = folder
    self._writer: Optional[tf.summary.SummaryWriter] = None

  def write(self, step: int, row: Mapping[str, float]) -> None:
    """Writes the numbers of a learner step, but those that are NaN."""
    def write():
      if self._writer is None:
        self._writer = tf.summary.create_file_writer(str(self._folder))
      with self._writer.as_default():
        for name, value in row.items():
          if not math.isnan(value):
            tf.summary.scalar(name, value, step=step)
    self._try(write)

  def flush(self) -> None:
    """Has what was written on disk."""
    if self._writer is not None:
      self._try(self._writer.flush)

  def _try(self, call) -> None:
    try:
      call()
    except (OSError, tf.errors.OpError) as error:
      logging.error('summaries were not written in %s: %s; training goes on',
                    self._folder, config.one_line(error))
      self._writer = None  # Its file may end in the middle of a number: another file.
