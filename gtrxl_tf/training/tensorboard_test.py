"""Tests of summaries.py."""

import contextlib
import math
import pathlib

from absl.testing import absltest
from absl.testing import parameterized
from PIL import Image
from tensorboard.backend.event_processing import event_accumulator
import tensorflow as tf

from gtrxl_tf import testing
from gtrxl_tf.training import tensorboard


class SummariesTest(parameterized.TestCase):

  def read(self, folder):
    """Steps and names of all that was written."""
    values = []
    for path in folder.glob('events*'):
      # TensorBoard, too, stops at the first incomplete record.
      with contextlib.suppress(tf.errors.DataLossError):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
          values += [(event.step, value.tag) for value in event.summary.value]
    return values

  def test_numbers_are_written_unless_they_are_nan(self):
    folder = pathlib.Path(self.create_tempdir().full_path)
    writer = tensorboard.Summaries(folder)
    writer.flush()
    writer.write({'learner_step': 3, 'loss': 1.0, 'return': math.nan})
    writer.flush()
    self.assertEqual(
        self.read(folder), [(3, 'learner/learner_step'), (3, 'agent/loss')])

  def test_numbers_are_those_of_tf_summary(self):
    def written(write):
      folder = pathlib.Path(self.create_tempdir().full_path)
      write(folder)
      path, = folder.glob('events*')
      return [(event.step, value) for event
              in tf.compat.v1.train.summary_iterator(str(path))
              for value in event.summary.value]

    def ours(folder):
      writer = tensorboard.Summaries(folder)
      writer.write({'learner_step': 7, 'loss': 0.1, 'unrolls': 3})
      writer.flush()

    def theirs(folder):
      with tf.summary.create_file_writer(str(folder)).as_default():
        tf.summary.scalar('learner/learner_step', 7, step=7)
        tf.summary.scalar('agent/loss', 0.1, step=7)
        tf.summary.scalar('replay/unrolls', 3, step=7)

    found, expected = written(ours), written(theirs)
    self.assertLen(found, 3)
    for (step, value), (their_step, their_value) in zip(
        found, expected, strict=True):
      self.assertEqual((step, value.tag, value.metadata),
                       (their_step, their_value.tag, their_value.metadata))
      self.assertEqual(
          tf.make_ndarray(value.tensor), tf.make_ndarray(their_value.tensor))
      self.assertEqual(value.tensor.dtype, their_value.tensor.dtype)

  @parameterized.parameters(
      ('return_3', 'episodes'), ('greedy_normalized', 'episodes'),
      ('slowest_actor_steps_per_second', 'actors'), ('cpu_seconds', 'learner'),
      ('unrolls_stale', 'replay'), ('kl_mean', 'agent'))
  def test_numbers_are_grouped(self, column, group):
    self.assertEqual(tensorboard.tag(column), f'{group}/{column}')

  def test_tensorboard_shows_settings_pictures_and_sweeps(self):
    folder = pathlib.Path(self.create_tempdir().full_path)
    picture = folder / 'picture.gif'
    Image.new('RGB', (6, 4)).save(picture)
    writer = tensorboard.Summaries(folder / 'summaries')
    writer.settings('Experiment.seed = 1\n')
    writer.picture('films/episode_0', picture)
    writer.sweep_point({'model': 'gtrxl', 'seed': 1})
    writer.flush()
    seen = event_accumulator.EventAccumulator(str(folder / 'summaries'))
    seen.Reload()
    text, = seen.Tensors('settings')
    self.assertEqual(text.tensor_proto.string_val, [b'    Experiment.seed = 1'])
    image, = seen.Images('films/episode_0')
    self.assertEqual((image.width, image.height, image.encoded_image_string),
                     (6, 4, picture.read_bytes()))
    self.assertEqual(seen.PluginTagToContent('text').keys(), {'settings'})
    self.assertIn('_hparams_/session_start_info', seen.PluginTagToContent('hparams'))

  def test_only_what_a_full_disk_has_no_room_for_is_lost(self):
    disk = testing.small_disk(self, 64)
    writer = tensorboard.Summaries(disk / 'summaries')
    writer.write({'learner_step': 1, 'loss': 1.0})
    writer.flush()
    with testing.full(disk):
      with self.assertLogs('absl', 'ERROR') as logs:
        for step in (2, 3):
          writer.write({
              'learner_step': step, **{f'metric_{i}': 1.0 for i in range(85)}})
          writer.flush()
      self.assertIn('; training continues', logs.output[0])
    writer.write({'learner_step': 4, 'loss': 1.0})
    writer.flush()
    self.assertContainsSubset(
        [(1, 'agent/loss'), (4, 'agent/loss')], self.read(disk / 'summaries'))


if __name__ == '__main__':
  absltest.main()
