"""Summaries of a run for TensorBoard."""

import contextlib
import math
import pathlib
import re
from typing import Iterator, List, Mapping, Optional, Union

from absl import logging
from PIL import Image
import tensorflow as tf

from gtrxl_tf.settings import config

# Groups of the columns of `metrics.csv`. All other columns are the agent's: its losses,
# temperatures and the like.
_GROUPS = {
    'learner': r'learner_.*|seconds|cpu_seconds|gradient_norm',
    'episodes': r'(.*_)?(return|success|score|normalized)(_.*)?|episodes|episode_length',
    'actors': r'environment_steps.*|actors|.*_actor_.*',
    'replay': r'unrolls.*|queue_.*|oldest_.*|data_age',
}


def tag(column: str) -> str:
  """Returns the name that a column of `metrics.csv` has in TensorBoard.

  >>> tag('return'), tag('learner_idle'), tag('queue_length'), tag('policy_loss')
  ('episodes/return', 'learner/learner_idle', 'replay/queue_length', 'agent/policy_loss')
  """
  found = [group for group, names in _GROUPS.items() if re.fullmatch(names, column)]
  return f'{found[0] if found else "agent"}/{column}'


def _metadata(plugin: str) -> tf.compat.v1.SummaryMetadata:
  """Returns the metadata that `tf.summary` writes for a plugin."""
  return tf.compat.v1.SummaryMetadata(
      plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name=plugin))


class Summaries:
  """Writes summaries for TensorBoard. Errors, as on a full disk, are only logged."""

  def __init__(self, folder: pathlib.Path):
    self._folder = folder
    self._writer: Optional[tf.summary.SummaryWriter] = None

  def write(self, row: Mapping[str, float]) -> None:
    """Writes a row at its environment step, or at its learner step; NaN is left out."""
    step = int(row.get('environment_steps', row['learner_step']))
    # Like `tf.summary.scalar`, but one op for all, in an eighth of the time.
    self._write(step, [
        tf.compat.v1.Summary.Value(
            tag=tag(name), metadata=_metadata('scalars'),
            tensor=tf.make_tensor_proto(value, tf.float32))
        for name, value in row.items() if not math.isnan(value)])

  def settings(self, text: str) -> None:
    """Writes the text of a gin file."""
    text = '\n'.join(f'    {line}' for line in text.splitlines())  # A block of Markdown.
    self._write(0, [tf.compat.v1.Summary.Value(
        tag='settings', tensor=tf.make_tensor_proto(text, tf.string),
        metadata=_metadata('text'))])

  def picture(self, name: str, path: pathlib.Path) -> None:
    """Writes the picture of a file, PNG or animated GIF."""
    with self._errors_logged():
      with Image.open(path) as image:
        width, height = image.size
      self._write(0, [tf.compat.v1.Summary.Value(
          tag=name, image=tf.compat.v1.Summary.Image(
              width=width, height=height, colorspace=3,
              encoded_image_string=path.read_bytes()))])

  def sweep_point(self, values: Mapping[str, Union[str, float]]) -> None:
    """Writes the settings that the runs of a comparison differ in, for HParams."""
    # pylint: disable-next=import-outside-toplevel
    from tensorboard.plugins.hparams import api

    with self._errors_logged(), self._opened().as_default():
      api.hparams(dict(values))

  def _write(self, step: int, values: List[tf.compat.v1.Summary.Value]) -> None:
    summary = tf.compat.v1.Summary(value=values)
    with self._errors_logged(), self._opened().as_default():
      tf.summary.experimental.write_raw_pb(summary.SerializeToString(), step=step)

  def _opened(self) -> tf.summary.SummaryWriter:
    if self._writer is None:
      self._writer = tf.summary.create_file_writer(str(self._folder))
    return self._writer

  def flush(self) -> None:
    """Flushes the summaries to disk."""
    if self._writer is not None:
      with self._errors_logged():
        self._writer.flush()

  @contextlib.contextmanager
  def _errors_logged(self) -> Iterator[None]:
    """Logs an error that the context raises, and then begins another file."""
    try:
      yield
    except (OSError, tf.errors.OpError) as error:
      logging.error('summaries were not written in %s: %s; training continues',
                    self._folder, config.one_line(error))
      self._writer = None  # Its file may end in the middle of a record.
