"""A test case of actors and of what acts for them, with small environments."""

# pylint: disable=protected-access

import functools
import itertools
import threading
import time

from absl.testing import parameterized
import dm_env
from dm_env import specs
import numpy as np
import portpicker
import tensorflow as tf
import tree

from gtrxl_tf import cores
from gtrxl_tf import nests
from gtrxl_tf.agents import vmpo
from gtrxl_tf.environments import t_maze
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import torsos
from gtrxl_tf.replay import connection
from gtrxl_tf.replay import replay_testing
from gtrxl_tf.replay import server
from gtrxl_tf.replay import staleness
from gtrxl_tf.training.online import actor as actor_lib
from gtrxl_tf.training.online import experiment as experiment_lib

T, E = 7, 3
CORES = {
    'trxl': lambda: cores.TransformerXL(2, 8, 2, 4, memory_length=5),
    'trxl_long_memory': lambda: cores.TransformerXL(2, 8, 2, 4, memory_length=18),
    'lstm': lambda: cores.DeepLSTM(2, 8),
    'memoryless': lambda: cores.Memoryless(1, 8),
}


def maze(seed):
  # Episodes of 4 or 5 steps, so that most unrolls hold the ends of two.
  return t_maze.TMaze(corridor_length=3, penalty=1.0, seed=seed)


def maze_of_length(length, seed):
  return t_maze.TMaze(length, seed=seed)


def make_actor(experiment, address, *args, **kwargs) -> actor_lib.Actor:
  """Makes an actor that connects to an address."""
  return actor_lib.Actor(
      experiment, connection.connect(address, experiment.layout), *args, **kwargs)


class Reach(dm_env.Environment):
  """Shows the action that it was given, in episodes of 4 steps."""

  def __init__(self, seed):
    del seed
    self._steps = 0

  def observation_spec(self):
    return specs.Array((3,), np.float32)

  def action_spec(self):
    return {'grip': specs.DiscreteArray(2),
            'move': specs.BoundedArray((2,), np.float32, 0, 10)}

  def reset(self):
    self._steps = 0
    return dm_env.restart(np.zeros(3, np.float32))

  def step(self, action):
    if self._steps == 4:
      return self.reset()
    tree.map_structure(lambda spec, x: spec.validate(x), self.action_spec(), action)
    self._steps += 1
    observation = np.float32([*action['move'], action['grip']])
    if self._steps == 4:
      return dm_env.termination(0.0, observation)
    return dm_env.transition(0.0, observation)


class Cards(dm_env.Environment):
  """Mixed observations, an array of integers as action, and a mask; 4 steps."""

  def __init__(self, seed):
    self._random = np.random.default_rng(seed)
    self._steps = 0

  def observation_spec(self):
    return {'action_mask': specs.BoundedArray((7,), np.int8, 0, 1),
            'hand': specs.BoundedArray((2,), np.int64, 1, [3, 200]),
            'place': specs.DiscreteArray(4), 'speed': specs.Array((2,), np.float32)}

  def action_spec(self):
    return specs.BoundedArray((2,), np.int64, [1, -2], [3, 1])  # 3 and 4 values.

  def _observe(self):
    # The first value is never allowed, and neither are some of the others.
    self._mask = self._random.random(7) < 0.5
    self._mask[[0, 3]], self._mask[[1, 6]] = False, True
    return {'action_mask': self._mask.astype(np.int8),
            'hand': self._random.integers(1, [4, 201]),
            'place': np.int32(self._random.integers(4)),
            'speed': self._random.normal(size=2).astype(np.float32)}

  def reset(self):
    self._steps = 0
    return dm_env.restart(self._observe())

  def step(self, action):
    if self._steps == 4:
      return self.reset()
    self.action_spec().validate(action)
    if not self._mask[action[0] - 1] or not self._mask[3 + action[1] + 2]:
      raise ValueError(f'the action {action} is not allowed')
    self._steps += 1
    last = self._steps == 4
    observation = self._observe()
    if last:
      observation['action_mask'][:] = 0
    return (dm_env.termination if last else dm_env.transition)(1.0, observation)


def experiment(core, environment=maze, torso=lambda: torsos.VectorTorso((8,)),
                normalize_observations=False, **settings):
  def network(action_spec, num_values=1):
    return actor_critic.ActorCritic(
        action_spec, torso(), core(), head_units=8, num_values=num_values,
        normalize_observations=normalize_observations)
  return experiment_lib.OnlineExperiment(**{**dict(
      environment=environment, network=network, unroll_length=T, batch_size=E,
      environments_per_actor=E), **settings})


def waiting_experiment(core, limit, **settings):
  """Publishes weights at every learner step, and has a queue that is never full."""
  agent = functools.partial(vmpo.VMPOAgent, target_update_period=1)
  return experiment(CORES[core], agent=agent, queue_batches=10,
                    batches_per_weights=limit, **settings)


class ActingTestCase(parameterized.TestCase):
  """A replay, and an actor whose unrolls are compared with what a learner computes."""
  seconds = 240  # For all batches of a test.
  tolerance = 1e-5

  def start(self, experiment, reverb=False):
    """Starts a replay, and the actor in a thread."""
    self.stop = threading.Event()
    self.start_replay(experiment, reverb)
    self.start_actor()

  def start_replay(self, experiment, reverb=False):
    """Makes memory, or starts a server; `weights` are kept by their step."""
    self.experiment = experiment
    self.network = experiment.make_agent().online
    self.weights = {}
    self.port = portpicker.pick_unused_port() if reverb else None
    if reverb:
      self.address = f'localhost:{self.port}'
      self.start_server()
    else:
      self.address = replay_testing.memory(self, experiment)
      self.connect()
    self.publish(step=0)

  def start_actor(self):
    self.actor = make_actor(self.experiment, self.address, 0, self.stop.is_set)
    self.thread = self.start_thread(self.actor.run)

  def start_thread(self, run):
    thread = threading.Thread(target=run)
    thread.start()
    self.addCleanup(thread.join)
    self.addCleanup(self.stop.set)
    return thread

  def start_server(self):
    self.server = server.serve(self.port, self.experiment.layout)
    self.addCleanup(self.server.stop)
    self.connect()

  def connect(self):
    """Connects as a learner does."""
    self.replay = connection.connect(self.address, self.experiment.layout)
    self.channel = self.replay.weights(self.network.variables)

  def publish(self, step):
    """Publishes weights that are new, and large enough for memory to matter."""
    random = np.random.RandomState(step)
    for variable in self.network.variables:
      values = 0.4 * random.randn(*variable.shape)
      variable.assign(np.abs(values) if 'variance' in variable.name else values)
    self.weights[step] = [v.numpy() for v in self.network.variables]
    self.channel.publish(step)

  def batches(self):
    """Batches until the test has enough."""
    deadline = time.time() + self.seconds
    self.ledger = staleness.Ledger(
        max_age=1000, num_tasks=len(self.experiment.task_names))
    self.ledger.learner_step = 100
    def lost():
      return time.time() > deadline or not self.thread.is_alive()
    queue = self.replay.queue(1, self.ledger)
    try:
      queue.connect()
      while (batch := queue.next(lost)) is not None:
        yield batch
    finally:
      queue.close()
    self.fail('The actor has died, or there were too few batches.')

  def assert_learner_agrees(self, batch):
    """Unrolls the network that acted from restored memory, and compares logits."""
    for variable, value in zip(
        self.network.variables, self.weights[batch.target_step.numpy().item()]):
      variable.assign(value)
    memory_length = batch.memory_length
    is_first = batch.is_first()
    state = self.network.core.restore(
        nests.from_half(batch.record), is_first[:, :memory_length])
    outputs, _ = self.network(actor_critic.NetworkInputs(
        batch.observation, batch.action, batch.reward, is_first[:, memory_length:]),
                              state)
    tf.nest.map_structure(
        lambda ours, its: np.testing.assert_allclose(
            ours[:, :-1], its, atol=self.tolerance, rtol=self.tolerance),
        tuple(outputs.policy), tuple(batch.policy))

  def steps_of_the_next(self, number):
    """Returns the learner steps whose weights acted in the `number` queued unrolls."""
    steps = []
    for batch in itertools.islice(self.batches(), number):
      self.assert_learner_agrees(batch)
      steps.append(batch.target_step.numpy().item())
    time.sleep(0.3)
    queue = self.replay.queue(1, self.ledger)
    self.assertEqual(queue.length(), 0)
    return steps
