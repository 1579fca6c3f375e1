"""Tests of shared_memory.py: who may open the memory, and processes that are killed."""

# pylint: disable=protected-access

import os
import signal
import stat
import sys
import tempfile
import threading
import time
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf
import tree

from gtrxl_tf.replay import memory_replay
from gtrxl_tf.replay import packed_weights
from gtrxl_tf.replay import shared_memory
from gtrxl_tf.replay import staleness
from gtrxl_tf.replay import unroll
from gtrxl_tf.settings import config

_T, _M, _E = 3, 2, 2
_WEIGHTS = [tf.TensorSpec([100], tf.float32), tf.TensorSpec([3], tf.int64)]


def _layout(**sizes):
  scalars, integers = (tf.TensorSpec([_E], x) for x in (tf.float32, tf.int32))
  number = tf.TensorSpec([], tf.int64)
  row = unroll.Unroll(
      observation=tf.TensorSpec([_E, 5], tf.float32), step_type=integers, reward=scalars,
      discount=scalars, action=integers, policy=(), record=scalars,
      episode_return=scalars, episode_success=scalars, task=integers,
      target_step=number, unroll_id=number)
  return unroll.Layout(row, _T, _M, 0, 2, 1, _WEIGHTS, False)._replace(**sizes)


def _row(n):
  row = tree.map_structure(
      lambda x: np.full(x.shape, n, x.dtype.as_numpy_dtype), _layout().row)
  return row._replace(step_type=np.ones(_E, np.int32), task=np.zeros(_E, np.int32),
                      target_step=np.int64(0), unroll_id=np.int64(0),
                      episode_return=np.full(_E, np.nan, np.float32),
                      episode_success=np.full(_E, np.nan, np.float32))


class _Values:
  """Stands for variables of `_WEIGHTS`, which are all of one value."""

  def __init__(self, unused_variables, unused_half):
    self.value = 0

  def read(self):
    return [np.full(x.shape, self.value, x.dtype.as_numpy_dtype) for x in _WEIGHTS]

  def assign(self, vectors):
    value, = set(np.concatenate(vectors))  # Half-new weights would have two values.
    self.value = int(value)


class SharedTest(parameterized.TestCase):

  def start(self, **sizes):
    self.layout = _layout(**sizes)
    descriptor = shared_memory.create(self.layout)
    self.addCleanup(os.close, descriptor)
    self.address = shared_memory.address(descriptor)
    return self.connect()

  def connect(self):
    return shared_memory.Connection(self.address, self.layout)

  def assert_refused(self, path, message, layout=None):
    with self.assertRaisesRegex(config.ConfigError, f'^--server={path}.*{message}'):
      shared_memory.Connection(path, layout or self.layout)

  def test_a_path_that_is_no_memory_of_the_run_is_refused(self):
    self.start()
    self.assert_refused('/proc/1234567/fd/3', 'the same machine and in the same cont')
    self.assert_refused(self.create_tempfile(content='x' * 100).full_path,
                        'expected the memory of a run')
    self.assert_refused(self.address, 'expected [0-9,]+ by', _layout(unroll_length=4))

  def test_the_memory_has_no_name_and_is_for_its_user_alone(self):
    before = os.listdir('/dev/shm'), os.listdir(tempfile.gettempdir())
    self.start()
    with mock.patch.object(os, 'memfd_create', create=True):
      del os.memfd_create
      self.start()  # A file instead.
    for path in self.address, self.address:
      mode = os.stat(path).st_mode
      self.assertEqual(stat.S_IMODE(mode), 0o600)
    self.assertEqual(
        (os.listdir('/dev/shm'), os.listdir(tempfile.gettempdir())), before)
    self.connect().check({})

  @parameterized.parameters(True, False)
  def test_a_change_wakes_who_waits(self, has_futex):
    if not has_futex:
      self.enter_context(mock.patch.object(shared_memory, '_FUTEX', None))
    here, there = self.start(), self.connect()
    waits = []

    def wait():
      began = time.monotonic()
      while not there.read(memory_replay.PUT):
        there.wait(memory_replay.PUT, 0, 20)
      waits.append(time.monotonic() - began)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.2)
    with here.locked() as words:
      words[memory_replay.PUT] = 1
    here.wake(memory_replay.PUT)
    thread.join()
    self.assertLess(waits[0], 10)
    there.wait(memory_replay.PUT, 0, 20)  # It was changed before: no wait.
    began = time.monotonic()
    there.wait(memory_replay.PUT, 1, 0.01)
    self.assertLess(time.monotonic() - began, 10)

  # ------------------------------------------------------------------ killed processes

  def killed_at(self, line, act):
    """Forks a process that kills itself at a line of memory_replay.py or shared_memory.py.

    Args:
      line: the lines that it executes before.
      act: what it does; takes its connection.

    Returns:
      Whether it was killed; otherwise it came to the end.
    """
    child = os.fork()
    if child == 0:
      left = line

      def trace(frame, event, _):
        nonlocal left
        if frame.f_code.co_filename not in (memory_replay.__file__, shared_memory.__file__):
          return None
        left -= event == 'line'
        if left < 0:
          os.kill(os.getpid(), signal.SIGKILL)
        return trace

      act = act(self.connect())
      sys.settrace(trace)
      act()
      os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
      self.assertEqual(os.WTERMSIG(status), signal.SIGKILL)
      return True
    self.assertEqual(os.WEXITSTATUS(status), 0)
    return False

  def kill_at_each_line(self, prepare, act, check):
    """Kills a process at each line of what it does, and checks what it left."""
    # A forked process cannot use TensorFlow, of which the learner needs only arrays here.
    self.enter_context(mock.patch.object(memory_replay.tf, 'constant', np.array))
    self.enter_context(mock.patch.object(packed_weights, 'Values', _Values))
    self.replay = self.start()
    self.ledger = staleness.Ledger(100)
    self.next = self.replay.queue(1, self.ledger)
    line, killed = 0, True
    while killed:
      prepare(line)
      killed = self.killed_at(line, lambda replay: act(replay, line))
      check(line)
      line += 1
    self.assertGreater(line, 15)

  def write(self, writer, first, items=1):
    """Writes items, whose rows begin with `first`; returns those that it had to take."""
    taken = []
    for n in range(first, first + items * _T + 1):
      if writer.starts_unroll:
        while not writer.wait(10):
          taken.append(self.take())
      writer.append(_row(n))
    while not writer.wait(10):
      taken.append(self.take())
    return taken

  def take(self):
    """Takes an item, which must be whole; returns the number of its first row."""
    item = self.next.next(lambda: False)
    first = int(item.observation[0, 0, 0])
    np.testing.assert_array_equal(
        item.observation, np.full([_E, 1, 5], 1) * np.arange(first, first + _T + 1)[:, None])
    np.testing.assert_array_equal(item.action[:, 1:], item.reward[:, :-1])
    self.assertContainsSubset(item.record.ravel(), [0, first - 1, first - 2])
    return first

  def take_all(self):
    taken = []
    while self.next.length():
      taken.append(self.take())
    return taken

  @pytest.mark.medium
  def test_an_actor_that_is_killed_in_any_line_loses_its_unroll_at_most(self):
    def act(replay, line):
      writer = replay.writer(0)
      writer.open()
      for n in range(1000 + line, 1000 + line + _T):
        writer.append(_row(n))
      return lambda: writer.append(_row(1000 + line + _T)) and writer.wait(10)

    def check(line):
      writer = self.replay.writer(0)
      writer.open()
      taken = self.write(writer, 500, items=4)
      self.assertLessEqual(self.next.length(), 2)
      taken += self.take_all()
      self.assertIn(taken, ([500, 503, 506, 509], [1000 + line, 500, 503, 506, 509]))

    self.kill_at_each_line(lambda line: None, act, check)
    self.assertEqual(self.ledger.refused, 0)

  @pytest.mark.medium
  def test_weights_are_whole_whenever_a_learner_is_killed(self):
    ends = []

    def prepare(_):
      if not ends:
        ends.extend(self.replay.weights([]) for _ in range(2))

    def act(replay, line):
      channel = replay.weights([])
      channel._values.value = line + 1
      return lambda: channel.publish(line + 1)

    def check(line):
      sender, receiver = ends
      step = receiver.receive()  # Raises an error if they are not whole.
      self.assertIn((step, receiver._values.value), (
          (None, -line), (line + 1, line + 1)))
      sender._values.value = -line - 1
      sender.publish(-line - 1)
      self.assertEqual(receiver.receive(), -line - 1)
      self.assertEqual(receiver._values.value, -line - 1)

    self.kill_at_each_line(prepare, act, check)


if __name__ == '__main__':
  absltest.main()
