import pathlib

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf import devices_testing
from gtrxl_tf.networks import popart
from gtrxl_tf.settings import config

GOLDEN = pathlib.Path(__file__).parents[2] / 'testdata' / 'golden' / 'vmpo.npz'
NUM_TASKS, NUM_FEATURES = 3, 4

devices_testing.split_cpu(2)


def _layer(num_features=NUM_FEATURES, num_tasks=NUM_TASKS, seed=0):
  layer = tf.keras.layers.Dense(num_tasks)
  layer.build([None, num_features])
  random = np.random.RandomState(seed)
  layer.set_weights([random.randn(*v.shape) for v in layer.variables])
  return layer


def _values(statistics, layer, features):
  """The head's denormalized values of states for each task, [N, K]."""
  outputs = layer(features)
  tasks = tf.range(statistics.num_tasks)
  return tf.transpose(statistics.denormalize(tf.transpose(outputs), tasks))


def _update(statistics, layer, targets, tasks, valid=None):
  valid = np.ones(np.shape(targets), bool) if valid is None else valid
  statistics.update(statistics.sums(targets, tasks, valid), layer)


class GoldenTest(tf.test.TestCase, parameterized.TestCase):
  """Agreement with rlax, whose rate is n beta instead of 1 - (1 - beta)^n."""

  @parameterized.parameters(*range(4))
  def test_update(self, i):
    golden = {k.split('/')[1]: v for k, v in np.load(GOLDEN).items() if 'popart' in k}
    mean = golden.get(f'shift{i}', np.zeros(5))
    scale = golden.get(f'scale{i}', np.ones(5))
    targets, tasks = golden[f'targets{i}'], golden[f'task{i}']
    for task in range(5):
      # With this step size the task's rate equals rlax's.
      n = np.sum(tasks == task)
      statistics = popart.PopArt(5, 1 - (1 - n * golden['step_size']) ** (1 / n))
      statistics.mean.assign(mean)
      statistics.variance.assign(scale ** 2)
      layer = _layer(8, 5)
      layer.set_weights([golden[f'w{i}'], golden[f'b{i}']])
      _update(statistics, layer, targets[:, None], tasks)
      for got, name in [(statistics.mean, 'shift'),
                        (statistics.scale(tf.range(5)), 'scale'),
                        (layer.kernel, 'w'), (layer.bias, 'b')]:
        self.assertAllClose(tf.convert_to_tensor(got)[..., task],
                            golden[f'{name}{i + 1}'][..., task], rtol=1e-5, atol=1e-5)

  @parameterized.parameters(*range(1, 4))
  def test_rescale(self, i):
    golden = np.load(GOLDEN)

    def get(name, j):
      return golden[f'popart/{name}{j}']

    kernel, bias = popart.rescale(
        get('w', i), get('b', i), get('shift', i), get('scale', i),
        get('shift', i + 1), get('scale', i + 1))
    self.assertAllClose(kernel, get('w', i + 1), rtol=1e-5, atol=1e-6)
    self.assertAllClose(bias, get('b', i + 1), rtol=1e-5, atol=1e-6)

  @parameterized.parameters(*range(1, 5))
  def test_scale_is_the_root_of_the_variance(self, i):
    golden = np.load(GOLDEN)
    statistics = popart.PopArt(5)
    statistics.variance.assign(
        golden[f'popart/second_moment{i}'] - golden[f'popart/shift{i}'] ** 2)
    self.assertAllClose(statistics.scale([4, 0]), golden[f'popart/scale{i}'][[4, 0]])


class StatisticsTest(tf.test.TestCase, parameterized.TestCase):

  def test_initial_units_are_those_of_the_rewards(self):
    statistics = popart.PopArt(NUM_TASKS)
    values = np.random.RandomState(0).randn(2, 5).astype(np.float32)
    self.assertAllEqual(statistics.normalize(values, [2, 0]), values)
    self.assertAllEqual(statistics.denormalize(values, [2, 0]), values)

  def test_each_row_is_normalized_as_its_task(self):
    statistics = popart.PopArt(NUM_TASKS)
    statistics.mean.assign([1., 2., 3.])
    statistics.variance.assign([4., 9., 16.])
    values = np.float32([[5, 7], [5, 7], [5, 7]])
    normalized = statistics.normalize(values, [2, 0, 2])
    self.assertAllClose(normalized, [[.5, 1], [2, 3], [.5, 1]])
    self.assertAllClose(statistics.denormalize(normalized, [2, 0, 2]), values)
    self.assertAllClose(statistics.scale([2, 0, 2]), [4, 2, 4])

  def test_converges_to_mean_and_deviation_of_each_task(self):
    random = np.random.RandomState(0)
    mean, scale = np.array([-3., 0., 500.]), np.array([0.5, 20., 7.])
    statistics, layer = popart.PopArt(NUM_TASKS, 1e-3), _layer()
    for _ in range(60):
      tasks = random.randint(NUM_TASKS, size=16)
      targets = mean[tasks, None] + scale[tasks, None] * random.randn(16, 50)
      _update(statistics, layer, targets, tasks)
    self.assertAllClose(statistics.mean, mean, rtol=0, atol=1.)
    self.assertAllClose(statistics.scale(tf.range(3)), scale, rtol=0.05)

  def test_a_scale_that_is_tiny_compared_to_the_mean_is_precise(self):
    random = np.random.RandomState(0)
    statistics, layer = popart.PopArt(1), _layer(num_tasks=1)
    mean, second = 0., 1.  # By the definition, in float64.
    for _ in range(40):
      targets = (1e5 + random.randn(128, 95)).astype(np.float32)
      _update(statistics, layer, targets, np.zeros(128, np.int32))
      rate = 1 - (1 - 1e-4) ** targets.size
      mean += rate * (targets.mean(dtype=np.float64) - mean)
      second += rate * (np.square(targets, dtype=np.float64).mean() - second)
    self.assertAllClose(statistics.mean, [mean], rtol=1e-7)
    self.assertAllClose(statistics.scale([0]), [np.sqrt(second - mean ** 2)], rtol=1e-4)

  @parameterized.product(n=[1, 7, 3000], step_size=[1e-4, 0.03])
  def test_n_equal_targets_have_the_effect_of_n_updates(self, n, step_size):
    statistics = popart.PopArt(1, step_size)
    statistics.mean.assign([-2.])
    statistics.variance.assign([5.])
    _update(statistics, _layer(num_tasks=1), np.full([1, n], 4.), [0])
    mean, second = -2., 5. + 4.  # By the definition, in float64.
    for _ in range(n):
      mean += step_size * (4. - mean)
      second += step_size * (4. ** 2 - second)
    self.assertAllClose(statistics.mean, [mean], rtol=1e-4)
    self.assertAllClose(statistics.variance, [second - mean ** 2], rtol=1e-4)

  def test_a_step_size_of_one_forgets_the_past(self):
    statistics = popart.PopArt(2, 1)
    targets = np.random.RandomState(0).randn(1, 9)
    _update(statistics, _layer(num_tasks=2), targets, [1])
    self.assertAllClose(statistics.mean, [0, targets.mean()])
    self.assertAllClose(statistics.variance, [1, targets.var()])

  def test_parts_of_a_batch_add_up(self):
    random = np.random.RandomState(0)
    statistics = popart.PopArt(NUM_TASKS)
    statistics.mean.assign([1., 2., 3.])
    targets, tasks = random.randn(8, 5), random.randint(NUM_TASKS, size=8)
    valid = random.rand(8, 5) < 0.7
    total = statistics.sums(targets, tasks, valid)
    parts = [statistics.sums(targets[i::2], tasks[i::2], valid[i::2]) for i in (0, 1)]
    self.assertAllClose(total, popart.PopArtSums(*map(tf.add, *parts)))
    self.assertAllEqual(
        total.count, [valid[tasks == task].sum() for task in range(NUM_TASKS)])

  @parameterized.product(garbage=[1e30, np.nan, np.inf], compiled=[False, True])
  def test_values_at_invalid_steps_have_no_influence(self, garbage, compiled):
    random = np.random.RandomState(0)
    statistics = popart.PopArt(NUM_TASKS)
    sums = tf.function(statistics.sums, autograph=False, jit_compile=compiled)
    targets = random.randn(8, 5).astype(np.float32)
    tasks, valid = random.randint(NUM_TASKS, size=8), random.rand(8, 5) < 0.6
    spoilt = np.where(valid, targets, np.float32(garbage))
    self.assertAllEqual(sums(tf.constant(spoilt), tf.constant(tasks), valid),
                        sums(tf.constant(targets), tf.constant(tasks), valid))

  def test_a_nan_affects_only_its_task(self):
    statistics, layer = popart.PopArt(2), _layer(num_tasks=2)
    _update(statistics, layer, [[np.nan, 1.], [5., 6.]], [0, 1])
    self.assertAllEqual(np.isnan(statistics.mean), [True, False])
    self.assertAllEqual(np.isnan(layer.bias), [True, False])


class HeadTest(tf.test.TestCase, parameterized.TestCase):

  @parameterized.product(seed=[0, 1], compiled=[False, True])
  def test_values_stay_the_same_when_statistics_change(self, seed, compiled):
    random = np.random.RandomState(seed)
    statistics, layer = popart.PopArt(NUM_TASKS, 1e-2), _layer(seed=seed)
    features = random.randn(10, NUM_FEATURES).astype(np.float32)
    want = _values(statistics, layer, features)

    def update(*sums):
      statistics.update(popart.PopArtSums(*sums), layer)

    update = tf.function(update, autograph=False) if compiled else update
    for _ in range(20):
      tasks = random.randint(NUM_TASKS, size=6)
      scale = 10 ** random.uniform(-2, 3)
      update(*statistics.sums(
          scale * random.randn(6, 8), tasks, random.rand(6, 8) < 0.8))
    self.assertNotAllClose(statistics.mean, np.zeros(NUM_TASKS), atol=0.1)
    self.assertNotAllClose(statistics.variance, np.ones(NUM_TASKS), atol=0.1)
    self.assertAllClose(
        _values(statistics, layer, features), want, rtol=1e-4, atol=1e-3)

  @parameterized.parameters(3., 1e5)
  def test_tasks_without_steps_stay_bit_identical(self, mean):
    statistics, layer = popart.PopArt(NUM_TASKS), _layer()
    statistics.mean.assign([mean] * NUM_TASKS)
    statistics.variance.assign([0.3] * NUM_TASKS)
    variables = [*statistics.variables, *layer.variables]
    before = [v.numpy() for v in variables]
    valid = np.ones([2, 5], bool)
    valid[1] = False  # The only steps of task 2 do not count.
    _update(statistics, layer, np.random.RandomState(0).randn(2, 5), [1, 2], valid)
    for variable, old in zip(variables, before):
      self.assertAllEqual(variable.numpy()[..., [0, 2]], old[..., [0, 2]])
      self.assertNotAllEqual(variable.numpy()[..., 1], old[..., 1])

  @parameterized.parameters((1e-9, 1e-2), (1e9, 1e6))
  def test_the_scale_keeps_its_bounds_and_the_head_follows(self, size, bound):
    statistics, layer = popart.PopArt(1, 1.), _layer(num_tasks=1)
    features = np.random.RandomState(0).randn(6, NUM_FEATURES).astype(np.float32)
    want = _values(statistics, layer, features)
    _update(statistics, layer, [[-size, size]], [0])
    self.assertAllClose(statistics.scale([0]), [bound])
    self.assertAllClose(_values(statistics, layer, features), want, rtol=1e-4)

  def test_statistics_are_not_trained_and_survive_a_checkpoint(self):
    statistics, layer = popart.PopArt(NUM_TASKS), _layer()
    self.assertLen(statistics.variables, 2)
    self.assertEmpty(statistics.trainable_variables)
    _update(statistics, layer, np.random.RandomState(0).randn(3, 50), [0, 1, 2])
    path = tf.train.Checkpoint(statistics=statistics).save(
        self.create_tempfile().full_path)
    restored = popart.PopArt(NUM_TASKS)
    tf.train.Checkpoint(statistics=restored).restore(path).assert_consumed()
    for got, want in zip(restored.variables, statistics.variables):
      self.assertAllEqual(got, want)
    self.assertNotAllEqual(restored.mean, np.zeros(NUM_TASKS))


class ReplicasTest(tf.test.TestCase):

  def _run(self, strategy):
    """Three updates on parts of a batch, each in one function."""
    with strategy.scope():
      statistics, layer = popart.PopArt(NUM_TASKS, 1e-2), _layer()

    @tf.function(autograph=False)
    def step(seed):
      def share(context):
        random = np.random.RandomState(seed)
        batch = (random.randn(8, 5).astype(np.float32) + 7,
                 random.randint(NUM_TASKS, size=8), random.rand(8, 5) < 0.7)
        num = context.num_replicas_in_sync
        return tuple(np.split(x, num)[context.replica_id_in_sync_group] for x in batch)
      batches = strategy.experimental_distribute_values_from_function(share)
      sums = strategy.run(statistics.sums, batches)
      statistics.update(
          tf.nest.map_structure(lambda x: strategy.reduce('SUM', x, axis=None), sums),
          layer)

    for seed in range(3):
      step(seed)
    variables = [*statistics.variables, *layer.variables]
    return [[v.numpy() for v in strategy.experimental_local_results(variable)]
            for variable in variables]

  @pytest.mark.medium
  def test_two_replicas_equal_one_with_the_global_batch(self):
    want = self._run(tf.distribute.get_strategy())
    got = self._run(devices_testing.mirrored(self, 2))
    for replicas, [one] in zip(got, want):
      self.assertLen(replicas, 2)
      for replica in replicas:
        self.assertAllClose(replica, one, rtol=1e-5, atol=1e-5)


class BadInputTest(tf.test.TestCase):

  def test_settings(self):
    with self.assertRaisesRegex(config.ConfigError, '^PopArt.num_tasks = 0'):
      popart.PopArt(0)
    with self.assertRaisesRegex(config.ConfigError, '^PopArt.step_size = 2'):
      popart.PopArt(step_size=2)
    with self.assertRaisesRegex(config.ConfigError, '^PopArt.scale_min = 3'):
      popart.PopArt(scale_min=3, scale_max=2)

  def test_shapes(self):
    statistics = popart.PopArt(NUM_TASKS)
    with self.assertRaisesRegex(ValueError, '^values'):
      statistics.denormalize(np.zeros([2, 5, 3]), [0, 1])
    with self.assertRaisesRegex(ValueError, r'^tasks: expected the shape \(2,\) of values'):
      statistics.normalize(np.zeros([2, 5]), np.zeros([2, 5], np.int32))
    with self.assertRaisesRegex(ValueError, r'^valid: expected the shape \(2, 5\) of targets'):
      statistics.sums(np.zeros([2, 5]), [0, 1], [True, True])
    with self.assertRaisesRegex(ValueError, '^layer.kernel'):
      _update(statistics, _layer(num_tasks=2), np.zeros([2, 5]), [0, 1])


if __name__ == '__main__':
  absltest.main()
