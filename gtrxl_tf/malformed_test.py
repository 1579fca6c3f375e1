"""Random malformed inputs for every reader of files and messages.

Each is refused with the intended error, on one line that names the place, and nothing
that existed before is changed. An input that is still valid, for example because the
flipped bit is never read, must be read as the same values.
"""

import ast
import atexit
import pathlib
import tempfile

from absl.testing import absltest
from absl.testing import parameterized
from dm_env import specs as dm_specs
import gin
import hypothesis
from hypothesis import configuration
from hypothesis import strategies as st
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import datasets
from gtrxl_tf.datasets import episodes_testing
from gtrxl_tf.launch import configurables  # noqa: F401 (for gin)
from gtrxl_tf.settings import config
from gtrxl_tf.training import checkpoints

_ROOT = pathlib.Path(__file__).parents[1]

_HYPOTHESIS_HOME = tempfile.TemporaryDirectory()
configuration.set_hypothesis_home_dir(_HYPOTHESIS_HOME.name)
atexit.register(_HYPOTHESIS_HOME.cleanup)


def _examples(number):
  return hypothesis.settings(
      max_examples=number, derandomize=True, database=None, deadline=None,
      suppress_health_check=list(hypothesis.HealthCheck),
      phases=(hypothesis.Phase.generate,))


def _files(folder):
  return {path.relative_to(folder): path.read_bytes()
          for path in sorted(folder.rglob('*')) if path.is_file()}


def _put(folder, files):
  """Replaces the files of a folder by these."""
  for path in [path for path in folder.rglob('*') if path.is_file()]:
    if path.relative_to(folder) not in files:
      path.unlink()
  for name, data in files.items():
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


@st.composite
def _damaged(draw, whole):
  """Returns files of which one is cut, removed, changed, or replaced by another.

  Returns:
    The files, and the names of those that changed.
  """
  name = draw(st.sampled_from(sorted(whole)))
  data = whole[name]
  files = dict(whole)
  kind = draw(st.sampled_from(['cut', 'flip', 'flip', 'swap', 'gone', 'more']))
  if kind == 'cut':
    files[name] = data[:draw(st.integers(0, max(len(data) - 1, 0)))]
  elif kind == 'flip':
    bit = draw(st.integers(0, 8 * len(data) - 1))
    flipped = bytearray(data)
    flipped[bit // 8] ^= 1 << bit % 8
    files[name] = bytes(flipped)
  elif kind == 'swap':
    other = draw(st.sampled_from(sorted(whole)))
    files[name], files[other] = whole[other], data
  elif kind == 'gone':
    del files[name]
  else:
    files[name] = data + draw(st.binary(min_size=1, max_size=9))
  return files, [name for name in whole if files.get(name) != whole[name]]


class MalformedTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.refusals = 0
    self.folder = pathlib.Path(self.create_tempdir().full_path) / 'folder'

  def tearDown(self):
    print(f'{self._testMethodName}: {self.refusals} refused')  # For -s.
    super().tearDown()

  def assert_refused(self, error, names):
    """Counts a refusal, and checks that its message has one of the names."""
    self.refusals += 1
    self.assertLen(str(error).splitlines(), 1)
    self.assertTrue(any(name in str(error) for name in names), (str(error), names))

  def assert_read_or_refused(self, read, error_type, names, same):
    """Accepts a refusal or equal values; checks that nothing changes on disk."""
    before = _files(self.folder)
    try:
      found = read()
    except error_type as error:
      self.assert_refused(error, names)
    else:
      same(found)
    self.assertEqual(_files(self.folder), before)

  # Datasets.

  def dataset(self):
    specs = datasets.Specs(
        {'image': dm_specs.BoundedArray((2, 2), np.uint8, 0, 255),
         'x': dm_specs.Array((), np.float32)}, dm_specs.DiscreteArray(3))
    rng = np.random.default_rng(0)
    episodes = [episodes_testing.random_episode(specs, rng) for _ in range(4)]
    episodes_testing.write(self.folder, specs, episodes, shard_episodes=2)
    def same(dataset):
      self.assertEqual(dataset.num_episodes, len(episodes))
      for i, episode in enumerate(episodes):
        episodes_testing.assert_equal(dataset.episode(i), episode)
    return same

  @pytest.mark.medium
  def test_a_damaged_dataset(self):
    same = self.dataset()
    whole = _files(self.folder)

    @_examples(100)
    @hypothesis.given(_damaged(whole))
    def check(damaged):
      files, changed = damaged
      _put(self.folder, files)
      self.assert_read_or_refused(
          lambda: datasets.check(self.folder), datasets.DatasetError,
          [str(name) for name in changed] + ['no dataset.json'], same)

    check()
    self.assertGreaterEqual(self.refusals, 80)

  # Gin.

  @staticmethod
  def bindings():
    """Settings that cannot be used: the binding, and what its refusal names."""
    word = st.text('abcdefgXYZ_', min_size=1, max_size=8)
    texts = st.text(min_size=0, max_size=5).map(repr)
    no_number = st.one_of(texts, st.sampled_from(
        ['None', 'True', '(1,)', '{}', '[]', '1j', '@TransformerXL', '1e999']))
    no_integer = st.one_of(no_number, st.floats(0.01, 0.99).map(repr))
    def below(n):
      return st.integers(-2**70, n - 1).map(repr)
    settings = {
        'TransformerXL.num_layers': st.one_of(no_integer, below(1)),
        'TransformerXL.memory_length': st.one_of(no_integer, below(0)),
        'TransformerXL.gate': st.one_of(texts, below(0), st.just('None')),
        'RATE.dropout': st.one_of(no_number, st.floats(1.01, 1e30).map(repr)),
        'SegmentTransformer.num_heads': st.one_of(no_integer, below(1)),
        'TMaze.corridor_length': st.one_of(no_integer, below(1))}
    named = st.sampled_from(sorted(settings)).flatmap(
        lambda name: settings[name].map(lambda value: (f'{name} = {value}', name)))
    lines = st.one_of(
        word.map(lambda x: (f'{x}Configurable.size = 1', f'{x}Configurable')),
        word.map(lambda x: (f'TransformerXL.{x}_ = 1', f'{x}_')),
        word.map(lambda x: (f'TransformerXL.gate = %{x}', f'%{x}')),
        word.map(lambda x: (f'TransformerXL.gate = @{x}Name', f'{x}Name')),
        word.map(lambda x: (f'TransformerXL.gate = {x}_', f'{x}_')),
        word.map(lambda x: (f'import {x}_', f'{x}_')),
        word.map(lambda x: (f"include '{x}_.gin'", f'{x}_.gin')),
        word.map(lambda x: (f'TransformerXL.{x}', x)),
        word.map(lambda x: (f'TransformerXL.gate = ("{x}"', 'TransformerXL.gate')),
        word.map(lambda x: (f'{x} + 1 = 2', x)))
    return st.one_of(named, named, lines)

  def use(self, name):
    """Calls the configurables of the settings."""
    gin.get_configurable(name)()

  @pytest.mark.medium
  def test_settings_that_cannot_be_used(self):
    self.addCleanup(gin.clear_config)
    self.folder.mkdir()

    @_examples(150)
    @hypothesis.given(self.bindings(), st.booleans())
    def check(binding, in_a_file):
      line, name = binding
      gin.clear_config()
      file = self.folder / 'settings.gin'
      file.write_text(f'{line}\n', encoding='utf-8')
      with self.assertRaises(config.ConfigError) as caught:
        if in_a_file:
          config.parse([str(file)], [])
        else:
          config.parse([], [line])
        self.use(name.split('.')[0])
      self.assert_refused(
          ValueError(config.one_line(caught.exception)), [name, str(file)])

    check()
    self.assertGreaterEqual(self.refusals, 140)

  # Checkpoints.

  @staticmethod
  def agent():
    agent = tf.Module()
    random = np.random.default_rng(0)
    agent.parts = [tf.Variable(random.normal(size=shape), dtype=tf.float32)
                   for shape in ((2, 3), (3,), ())]
    return agent

  def restore(self, agent):
    for part in agent.parts:
      part.assign(tf.zeros_like(part))
    counter = tf.Variable(0)
    made = checkpoints.Checkpoints(
        self.folder, 3, kind='Kind', agent=agent, writes=False, counter=counter)
    made.restore()
    return agent, int(counter)

  def save(self):
    """Saves two checkpoints; returns a check that the last one was restored."""
    agent, counter = self.agent(), tf.Variable(0)
    made = checkpoints.Checkpoints(
        self.folder, 3, kind='Kind', agent=agent, counter=counter)
    made.restore()
    for step in (1, 2):
      counter.assign(step)
      made.save(step)
      values = [part.numpy() for part in agent.parts]
      for part in agent.parts:
        part.assign(part + 1)
    def same(restored):
      agent, step = restored
      self.assertEqual(step, 2)
      for part, value in zip(agent.parts, values):
        np.testing.assert_array_equal(part, value)
    return same

  @pytest.mark.medium
  def test_a_damaged_checkpoint(self):
    same, agent = self.save(), self.agent()

    @_examples(120)
    @hypothesis.given(_damaged(_files(self.folder)))
    def check(damaged):
      files, changed = damaged
      _put(self.folder, files)
      self.assert_read_or_refused(
          lambda: self.restore(agent), checkpoints.CheckpointError,
          [path.name.split('.')[0] for path in changed], same)

    check()
    self.assertGreaterEqual(self.refusals, 40)

  # Everything.

  @pytest.mark.medium
  def test_nothing_is_unpickled(self):
    for path in [*_ROOT.glob('gtrxl_tf/**/*.py'), *_ROOT.glob('binaries/*.py'),
                 *_ROOT.glob('tools/*.py')]:
      for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
          names = [alias.name for alias in node.names] + [getattr(node, 'module', None)]
          self.assertNoCommonElements(
              names, ['pickle', 'cPickle', 'cloudpickle', 'dill', 'joblib', 'marshal',
                      'shelve'], path)
        if (isinstance(node, ast.Call) and not path.name.endswith('_test.py')
            and ast.unparse(node.func) in ('np.load', 'np.lib.format.read_array')):
          self.assertIn('allow_pickle=False', ast.unparse(node), path)


if __name__ == '__main__':
  absltest.main()
