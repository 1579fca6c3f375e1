"""Small policies with random weights, for tests of exported policies."""

import pathlib
import shutil
import tempfile
from typing import Any, List, Sequence, Tuple, Type
import unittest

import numpy as np
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf import environments
from gtrxl_tf.agents import policy as policy_lib
from gtrxl_tf.environments import t_maze
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import torsos
from gtrxl_tf.serving import export

CORES = {
    'trxl': lambda: cores.TransformerXL(2, 8, 2, 4, memory_length=5),
    'lstm': lambda: cores.DeepLSTM(2, 8),
    'memoryless': lambda: cores.Memoryless(1, 8),
}


def environment(num: int) -> environments.BatchedEnvironment:
  """Makes environments with episodes of 4 or 5 steps: some end and others begin."""
  return environments.BatchedEnvironment(
      [t_maze.TMaze(corridor_length=3, penalty=1.0, seed=i) for i in range(num)])


def make_policy(core: str, scale: float = 1.5, biases: bool = True
                ) -> policy_lib.ActorCriticPolicy:
  """Makes a greedy policy of a network with one of `CORES` and random variables.

  Args:
    core: a key of `CORES`.
    scale: standard deviation of the variables. The larger it is, the more the logits
      differ, and the more rounding changes them.
    biases: whether biases, too, are random, not zero. They can make one action the most
      likely one everywhere.
  """
  played = environment(1)
  network = actor_critic.ActorCritic(
      played.action_spec(), torsos.VectorTorso((8,)), CORES[core](), head_units=8)
  network.create_variables(played.observation_spec())
  random = np.random.RandomState(0)
  for variable in network.variables:
    value = scale * random.randn(*variable.shape)
    variable.assign(value if biases or 'bias' not in variable.name else 0 * value)
  return policy_lib.ActorCriticPolicy(
      network, played.observation_spec(), played.action_spec(), greedy=True)


def export_for_class(tests: Type[unittest.TestCase], policy: Any) -> pathlib.Path:
  """Exports a policy to a temporary folder, which the end of the tests removes."""
  folder = pathlib.Path(tempfile.mkdtemp())
  tests.addClassCleanup(shutil.rmtree, folder)
  export.save_policy(policy, folder / 'policy')
  return folder / 'policy'


# A client's input: whether an episode begins, the reward and the observation.
Shown = Tuple[bool, float, List[float]]


def alone(folder: pathlib.Path, shown: Sequence[Shown]) -> np.ndarray:
  """Computes the exported policy's logits for one client's inputs, step by step."""
  policy = tf.saved_model.load(str(folder))
  memory = policy.signatures['get_initial_state'](batch_size=tf.constant(1))
  logits = []
  for first, reward, observation in shown:
    done = policy.signatures['action'](**{
        '0/step_type': tf.constant([0 if first else 1]),
        '0/reward': tf.constant([reward], tf.float32), '0/discount': tf.ones([1]),
        '0/observation': tf.constant([observation], tf.float32),
        **{f'1/{name}': x for name, x in memory.items()}})
    memory = {name.removeprefix('state/'): x for name, x in done.items()
              if name.startswith('state/')}
    logits.append(done['info/policy/logits'].numpy()[0])
  return np.array(logits)


def draw(seed: int, num_steps: int) -> List[Shown]:
  """Draws a client's inputs; episodes begin at random steps."""
  random = np.random.RandomState(seed)
  return [(t == 0 or random.rand() < 0.15, float(random.randn()),
           random.randn(4).tolist()) for t in range(num_steps)]
