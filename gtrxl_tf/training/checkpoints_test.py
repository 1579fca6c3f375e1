"""Tests of checkpoints.py: what is kept, what is refused, and disks that are full."""

import pathlib
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import devices_testing
from gtrxl_tf import testing
from gtrxl_tf.training import checkpoints
from gtrxl_tf.training import learner

devices_testing.split_cpu(2)


class _Agent(tf.Module):

  def __init__(self, units=3, **others):
    super().__init__()
    self.layers = [{'kernel': tf.Variable(tf.zeros([2, units])),
                    'bias': tf.Variable(tf.zeros([units]))}]
    self.scale = tf.Variable(1.0, dtype=others.pop('dtype', tf.float32))
    for name in others:
      setattr(self, name, tf.Variable(0.0))


class _Run:
  """An agent that trains, with its optimizer and checkpoints."""

  def __init__(self, folder, max_to_keep=3, hours=None, kind='Experiment', agent=None,
               **settings):
    self.agent = agent or _Agent()
    self.seconds = tf.Variable(0.0)
    self.checkpoints = checkpoints.Checkpoints(
        folder, max_to_keep, hours, kind=kind, agent=self.agent, seconds=self.seconds,
        **settings)
    self.restored = self.checkpoints.restore()

  def save(self, *steps):
    for step in steps:
      self.agent.scale.assign(step)
      self.seconds.assign(step / 2)
      self.checkpoints.save(step)
    return self


def contents(folder):
  """Every byte below a folder."""
  return {str(path.relative_to(folder)): path.read_bytes()
          for path in sorted(pathlib.Path(folder).rglob('*')) if path.is_file()}


class CheckpointsTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = pathlib.Path(self.create_tempdir().full_path) / 'checkpoints'

  def steps(self):
    return sorted(int(path.stem.split('-')[1]) for path in self.folder.glob('*.index'))

  def refused(self, call, pattern):
    """Asserts that it is refused on one line, and that nothing is changed."""
    before = contents(self.folder)
    with self.assertRaisesRegex(checkpoints.CheckpointError, pattern) as caught:
      call()
    self.assertLen(str(caught.exception).splitlines(), 1)
    self.assertEqual(contents(self.folder), before)

  def test_the_newest_is_restored(self):
    self.assertIsNone(_Run(self.folder).save(10, 20).restored)
    run = _Run(self.folder)
    self.assertEqual(run.restored, str(self.folder / 'ckpt-20'))
    self.assertEqual(run.checkpoints.latest, run.restored)
    self.assertEqual((float(run.agent.scale), float(run.seconds)), (20, 10))
    # TensorFlow's own tools find it too.
    self.assertEqual(tf.train.latest_checkpoint(str(self.folder)), run.restored)

  @parameterized.parameters((None, [8, 9]), (2.0, [2, 4, 6, 8, 9]))
  def test_old_ones_are_kept_by_policy(self, hours, kept):
    with mock.patch('time.time', return_value=0.0) as now:
      run = _Run(self.folder, 2, hours)
      for step in range(1, 6):
        now.return_value = 3600.0 * step
        run.save(step)
      run = _Run(self.folder, 2, hours)  # The policy needs no memory.
      for step in range(6, 10):
        now.return_value = 3600.0 * step
        run.save(step)
    self.assertEqual(self.steps(), kept)

  def test_one_process_writes(self):
    other = _Run(self.folder, writes=False)
    self.assertTrue(other.checkpoints.save(5))
    self.assertFalse(self.folder.exists())
    _Run(self.folder).save(5)
    before = contents(self.folder)
    other = _Run(self.folder, writes=False)
    self.assertEqual(float(other.agent.scale), 5)
    other.save(6)
    self.assertEqual(contents(self.folder), before)

  def test_a_folder_is_stamped_before_its_first_checkpoint(self):
    _Run(self.folder)
    self.assertEqual(list(contents(self.folder)), ['stamp.json'])
    self.refused(lambda: _Run(self.folder, agent=_Agent(4)), r'kernel \[2, 3\] float32 '
                 r'\(expected \[2, 4\] float32\), .*bias \[3\]')

  @parameterized.parameters(
      (dict(agent=lambda: _Agent(5)),
       r'checkpoints belongs to another network .* it has agent/layers/0/kernel \[2, 3\] '
       r'float32 \(expected \[2, 5\] float32\), agent/layers/0/bias \[3\]'),
      (dict(agent=lambda: _Agent(dtype=tf.float64)),
       r'scale \[\] float32 \(expected \[\] float64\)$'),
      (dict(agent=lambda: _Agent(gate=1)), r'it lacks agent/gate \[\] float32$'),
      (dict(agent=lambda: _Agent(x=1, a=1, b=1, c=1, d=1)),
       'it lacks agent/x .* and 1 more$'),
      (dict(agent=testing.tiny_agent),
       'it has what was not expected, agent/scale .*, agent/layers'),
      (dict(kind='OfflineExperiment'),
       'belongs to an experiment of kind Experiment: expected OfflineExperiment'))
  def test_another_network_is_refused(self, settings, message):
    _Run(self.folder).save(1)
    settings = {**settings, 'agent': settings.get('agent', _Agent)()}
    self.refused(lambda: _Run(self.folder, **settings), message)
    if 'kind' not in settings:
      self.refused(lambda: checkpoints.restore_agent(self.folder, settings['agent']),
                   message)

  def test_the_objects_besides_the_agent_are_compared_too(self):
    _Run(self.folder).save(1)
    agent = _Agent()
    other = checkpoints.Checkpoints(
        self.folder, 3, kind='Experiment', agent=agent, rows=tf.Variable([1.0, 2.0]))
    self.refused(
        other.restore, 'ckpt-1 does not have the parts that these settings make')

  def test_an_agent_alone_is_restored(self):
    agent = _Agent()
    with self.assertRaisesRegex(FileNotFoundError, 'no checkpoint in'):
      checkpoints.restore_agent(self.folder, agent)
    _Run(self.folder).save(1, 2)
    checkpoints.restore_agent(self.folder, agent)
    self.assertEqual(float(agent.scale), 2)

  @pytest.mark.medium
  def test_replicas_and_one_device_have_the_same_checkpoints(self):
    strategy = devices_testing.mirrored(self, 2)
    def made(scope):
      with scope:
        agent = testing.tiny_agent()
        optimizer = tf.keras.optimizers.legacy.Adam(1e-3)
      learner.Learner(agent, optimizer, strategy)
      return agent, optimizer
    agent, optimizer = made(strategy.scope())
    agent.temperature.assign(7.0)
    optimizer.iterations.assign(5)
    saved = checkpoints.Checkpoints(self.folder, 3, kind='Experiment', agent=agent,
                                    optimizer=optimizer)
    saved.restore()
    saved.save(5)
    plain = testing.tiny_agent()
    checkpoints.restore_agent(self.folder, plain)
    self.assertEqual(float(plain.temperature), 7)
    other, optimizer = made(strategy.scope())
    restored = checkpoints.Checkpoints(self.folder, 3, kind='Experiment', agent=other,
                                       optimizer=optimizer, writes=False)
    self.assertEqual(restored.restore(), saved.latest)
    for value in strategy.experimental_local_results(other.temperature):
      self.assertEqual(float(value), 7)
    self.assertEqual(optimizer.iterations.numpy(), 5)

  def test_checkpoints_without_a_stamp_are_refused(self):
    _Run(self.folder).save(1)
    (self.folder / 'stamp.json').unlink()
    self.refused(lambda: _Run(self.folder), 'stamp.json: missing: expected it beside')

  def test_a_damaged_file_is_named_with_a_way_to_continue(self):
    _Run(self.folder).save(1, 2, 3)
    data = self.folder / 'ckpt-3.data-00000-of-00001'
    data.write_bytes(data.read_bytes()[:-1])
    way = ('The newest intact checkpoint is ckpt-2: to resume from it, remove '
           r'ckpt-3\.\* from ')
    self.refused(lambda: _Run(self.folder), rf'ckpt-3: is damaged: .*\. {way}')
    self.refused(lambda: checkpoints.restore_agent(self.folder, _Agent()), way)
    for path in self.folder.glob('ckpt-3.*'):
      path.unlink()
    self.assertEqual(float(_Run(self.folder).agent.scale), 2)
    for path in self.folder.glob('ckpt-*.index'):
      path.write_bytes(b'')
    self.refused(lambda: _Run(self.folder), 'No checkpoint is intact')

  def test_the_best_weights_are_read_as_they_were_written(self):
    folder = pathlib.Path(self.create_tempdir().full_path, 'checkpoints')
    self.assertIsNone(checkpoints.load_best(folder))
    weights = [np.full([i], i, np.float32) for i in range(12)]
    checkpoints.save_best(folder, checkpoints.Best(0.5, 30, 640, weights))
    measure, *steps, found = checkpoints.load_best(folder)
    self.assertEqual((measure, steps), (0.5, [30, 640]))
    for x, y in zip(found, weights, strict=True):
      np.testing.assert_array_equal(x, y)
    (folder / 'best.npz').write_bytes(b'damaged')
    self.assertIsNone(checkpoints.load_best(folder))

  def test_an_incomplete_checkpoint_of_a_killed_process_is_removed(self):
    _Run(self.folder).save(1)
    before = contents(self.folder)
    (self.folder / 'ckpt-2_temp').mkdir()
    (self.folder / 'ckpt-2_temp' / 'part-00000-of-00001.index').write_bytes(b'1')
    (self.folder / 'ckpt-2.data-00000-of-00001').write_bytes(b'1')
    self.assertEqual(float(_Run(self.folder).agent.scale), 1)
    self.assertEqual(contents(self.folder), before)


class FullDiskTest(parameterized.TestCase):

  # A save may fail at each of its files, and in the middle of the large one.
  @parameterized.parameters(0, 30, 60)
  def test_a_full_disk(self, free_pages):
    disk = testing.small_disk(self, 1024)
    folder = disk / 'checkpoints'
    run = _Run(folder, agent=_Agent(20000)).save(1, 2)
    before = contents(folder)
    with testing.full(disk, free_pages):
      with self.assertLogs('absl', 'ERROR') as logs:
        self.assertFalse(run.checkpoints.save(3))
        self.assertFalse(run.checkpoints.save(4))
      self.assertLen(logs.output, 2)
      self.assertRegex(logs.output[0], 'checkpoint 3 was not saved in .*; the newest '
                       'is .*ckpt-2; training continues')
      with self.assertRaisesRegex(checkpoints.SaveFailed, 'checkpoint 4 was not saved'):
        run.checkpoints.save(4, last=True)
      self.assertEqual(contents(folder), before)
      self.assertEmpty(list(folder.glob('*_temp*')))
      self.assertEqual(
          float(_Run(folder, agent=_Agent(20000)).agent.scale), 2)
    self.assertTrue(run.checkpoints.save(5))
    self.assertEqual(_Run(folder, agent=_Agent(20000)).restored, str(folder / 'ckpt-5'))


if __name__ == '__main__':
  absltest.main()
