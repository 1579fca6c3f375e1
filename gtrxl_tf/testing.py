"""Shared code of tests: a tiny agent, its batches, a scripted policy, small disks."""

import contextlib
import os
import pathlib
import subprocess
from typing import Any, Callable, Dict, Iterator, NamedTuple, Tuple

from absl.testing import absltest
import dm_env
from dm_env import specs
import numpy as np
import tensorflow as tf
import tree

from gtrxl_tf import cores
from gtrxl_tf import datasets
from gtrxl_tf import environments
from gtrxl_tf.agents import policy
from gtrxl_tf.agents import vmpo
from gtrxl_tf.environments import t_maze
from gtrxl_tf.networks import action_space
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import torsos
from gtrxl_tf.replay import unroll

_OBSERVATION_SIZE = 4
DISCRETE = specs.DiscreteArray(3)
CONTINUOUS = specs.BoundedArray((2,), np.float32, [-1, 0], [1, 10])
HYBRID = {'grip': specs.DiscreteArray(2), 'move': CONTINUOUS}
INTEGERS = specs.BoundedArray((3,), np.int64, [1, 0, -2], [3, 1, 2])
_MEMORY_LENGTH, _NUM_LAYERS, _MODEL_DIM = 3, 1, 4


def tiny_network(action_spec: Any = DISCRETE, **settings) -> actor_critic.ActorCritic:
  """Makes a small GTrXL network with random trained variables."""
  network = actor_critic.ActorCritic(
      action_spec, torsos.VectorTorso((4,)),
      cores.TransformerXL(_NUM_LAYERS, _MODEL_DIM, num_heads=2, head_dim=2,
                          memory_length=_MEMORY_LENGTH),
      head_units=4, **settings)
  network.create_variables(specs.Array((_OBSERVATION_SIZE,), np.float32))
  random = np.random.RandomState(0)
  for variable in network.trainable_variables:
    variable.assign(0.5 * random.randn(*variable.shape))
  return network


_shared: Dict[str, Tuple[Any, Any]] = {}  # Networks, and the values they began with.


def shared_networks(*args, **settings
                    ) -> Tuple[actor_critic.ActorCritic, actor_critic.ActorCritic]:
  """Returns two equal networks of `tiny_network`, built once: building takes long.

  Each call gives all variables the values they began with. So the networks are a
  test's own until somebody asks for the same ones again.
  """
  key = repr((args, settings))
  if key not in _shared:
    networks = tiny_network(*args, **settings), tiny_network(*args, **settings)
    _shared[key] = networks, [
        (variable, variable.numpy()) for network in networks
        for variable in network.variables]
  networks, values = _shared[key]
  for variable, value in values:
    variable.assign(value)
  return networks


def tiny_agent(network: Callable[[], actor_critic.ActorCritic] = tiny_network,
               **settings) -> vmpo.VMPOAgent:
  """Makes a V-MPO agent on two networks."""
  return vmpo.VMPOAgent(network(), network(), **settings)


def loss_and_gradients(agent: Any, batch: unroll.Unroll) -> Tuple[Any, Any, Any]:
  """Returns an agent's loss and metrics, and the gradients of what it learns."""
  with tf.GradientTape() as tape:
    loss, metrics = agent.loss(batch)
  return loss, metrics, tape.gradient(loss, agent.learned_variables)


def outputs(network: actor_critic.ActorCritic, batch: unroll.Unroll
            ) -> actor_critic.NetworkOutputs:
  """Returns a network's outputs for whole unrolls, from the memory in their records."""
  m, is_first = batch.memory_length, batch.is_first()
  return network(
      actor_critic.NetworkInputs(
          batch.observation, batch.action, batch.reward, is_first[:, m:]),
      network.core.restore(batch.record, is_first[:, :m]))[0]


def random_unrolls(seed: int, batch_size: int = 4, unroll_length: int = 5,
                   action_spec: Any = DISCRETE, num_tasks: int = 1
                   ) -> unroll.Unroll:
  """Makes a random batch; in all rows but the first an episode ends and another begins."""
  random = np.random.RandomState(seed)
  t, m = unroll_length, _MEMORY_LENGTH
  step_type = np.full((batch_size, m + t + 1), dm_env.StepType.MID, np.int32)
  for i, row in enumerate(step_type[1:]):
    # The last step, which a first step follows, is any of rows 0 .. T - 1.
    last = m + i % t
    row[last], row[last + 1] = dm_env.StepType.LAST, dm_env.StepType.FIRST
  space = action_space.ActionSpace(action_spec)

  def normal(*shape: int) -> np.ndarray:
    return random.randn(batch_size, *shape).astype(np.float32)

  def draw(spec: specs.Array) -> np.ndarray:
    if isinstance(spec, specs.BoundedArray) and spec.dtype.kind in 'iu' and spec.shape:
      return random.randint(spec.maximum - spec.minimum + 1,
                            size=(batch_size, t + 1, *spec.shape)).astype(np.int32)
    if isinstance(spec, specs.DiscreteArray):
      return random.randint(spec.num_values, size=(batch_size, t + 1)).astype(np.int32)
    return normal(t + 1, *spec.shape)

  action = tree.map_structure(draw, action_spec)
  no_episode = np.full((batch_size, t), np.nan, np.float32)
  return tf.nest.map_structure(tf.constant, unroll.Unroll(
      observation=normal(t + 1, _OBSERVATION_SIZE), step_type=step_type,
      reward=normal(t + 1),
      discount=random.randint(2, size=(batch_size, t + 1)).astype(np.float32),
      action=action, policy=space.policy(normal(t, space.num_outputs)),
      record=normal(m, _NUM_LAYERS, _MODEL_DIM),
      episode_return=no_episode, episode_success=no_episode,
      task=np.arange(batch_size, dtype=np.int32)[:, np.newaxis] % num_tasks,
      target_step=np.zeros((1, 1), np.int64), unroll_id=np.zeros((1, 1), np.int64)))


def small_disk(test: absltest.TestCase, kilobytes: int) -> pathlib.Path:
  """Mounts a small disk for a test, which is skipped if mounting is not permitted."""
  path = pathlib.Path(test.create_tempdir().full_path)
  mounted = subprocess.run(
      ['mount', '-t', 'tmpfs', '-o', f'size={kilobytes}k', 'tmpfs', str(path)],
      capture_output=True, text=True, check=False)
  if mounted.returncode:
    test.skipTest(f'may not mount a disk: {mounted.stderr.strip()}')
  test.addCleanup(subprocess.run, ['umount', '--lazy', str(path)], check=True)
  return path


@contextlib.contextmanager
def full(disk: pathlib.Path, free_pages: int = 0) -> Iterator[None]:
  """Makes a context in which a disk has only `free_pages` pages of 4 KiB left."""
  stuff = disk / 'stuff'
  with contextlib.suppress(OSError):
    with open(stuff, 'wb', buffering=0) as file:
      while file.write(bytes(4096)):
        pass
  os.truncate(stuff, stuff.stat().st_size - 4096 * free_pages)
  try:
    yield
  finally:
    stuff.unlink()


def restart(observation: Any, num: int) -> dm_env.TimeStep:
  """Returns the first time steps of episodes in `num` environments."""
  return dm_env.TimeStep(
      tf.fill([num], int(dm_env.StepType.FIRST)), tf.zeros([num]), tf.ones([num]),
      observation)


def transition(observation: Any, reward: tf.Tensor) -> dm_env.TimeStep:
  """Returns time steps within episodes, with their rewards `[B]`."""
  return dm_env.TimeStep(
      tf.fill(reward.shape, int(dm_env.StepType.MID)), reward, tf.ones_like(reward),
      observation)


def termination(observation: Any, reward: tf.Tensor) -> dm_env.TimeStep:
  """Returns the last time steps of episodes, with their rewards `[B]`."""
  return dm_env.TimeStep(
      tf.fill(reward.shape, int(dm_env.StepType.LAST)), reward, tf.zeros_like(reward),
      observation)


class MazeState(NamedTuple):
  """The memory of `MazeSolver`."""
  clue: tf.Tensor  # [B], the episode's.
  flag: tf.Tensor  # [B], the previous step's.


class MazeSolver(policy.NetworkPolicy):
  """Solves T-Mazes from memory: after the flag, it turns as the clue showed.

  With `turn = -1` it always turns the wrong way.
  """

  def __init__(self, maze: t_maze.TMaze, turn: int = 1):
    self._turn = turn
    super().__init__(None, maze.observation_spec(), maze.action_spec())

  @property
  def variables(self) -> tuple:
    """No variables: it does not learn."""
    return ()

  def get_initial_state(self, batch_size: int) -> MazeState:
    """Returns the memory before the first step."""
    return MazeState(tf.zeros([batch_size]), tf.zeros([batch_size]))

  def action(self, time_step: dm_env.TimeStep, policy_state: MazeState,
             seed: Any = None) -> policy.PolicyStep:
    """Takes one step."""
    clue = tf.where(
        time_step.first(), time_step.observation[:, 1], policy_state.clue)
    at_junction = ~time_step.first() & (policy_state.flag == 1)
    turn = tf.where(self._turn * clue == 1, t_maze.UP, t_maze.DOWN)
    action = tf.cast(tf.where(at_junction, turn, t_maze.RIGHT), self.action_spec.dtype)
    return policy.PolicyStep(action, MazeState(clue, time_step.observation[:, 2]))


def write_informed_episodes(path: Any, environment: environments.MemoryTask,
                            num_episodes: int) -> None:
  """Writes a dataset of episodes whose actions use the task's hidden information."""
  specs = datasets.Specs(environment.observation_spec(), environment.action_spec())
  name = type(environment).__name__
  with datasets.EpisodeWriter(path, specs, environment=name) as writer:
    for _ in range(num_episodes):
      time_steps, actions = [environment.reset()], []
      while not time_steps[-1].last():
        actions.append(np.int32(environment.informed_action()))
        time_steps.append(environment.step(actions[-1]))
      writer.write([datasets.from_dm_env(time_steps, actions, specs)])
