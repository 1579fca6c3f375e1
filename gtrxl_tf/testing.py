"""What tests share: an agent as small as can be, and batches for it."""

import dm_env
from dm_env import specs
import numpy as np
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf.agents.vmpo import agent as agent_lib
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import torsos
from gtrxl_tf.replay import unroll as unroll_lib

_OBSERVATION_SIZE, _NUM_ACTIONS = 4, 3
_MEMORY_LENGTH, _NUM_LAYERS, _MODEL_DIM = 3, 1, 4


def tiny_network() -> actor_critic.ActorCritic:
  """A GTrXL with variables, all of them away from their initial values."""
  network = actor_critic.ActorCritic(
      specs.DiscreteArray(_NUM_ACTIONS), torsos.VectorTorso((4,)),
      cores.TransformerXL(_NUM_LAYERS, _MODEL_DIM, num_heads=2, head_dim=2,
                          memory_length=_MEMORY_LENGTH),
      head_units=4)
  network.create_variables(specs.Array((_OBSERVATION_SIZE,), np.float32))
  random = np.random.RandomState(0)
  for variable in network.variables:
    variable.assign(0.5 * random.randn(*variable.shape))
  return network


def tiny_agent(**settings) -> agent_lib.VMPOAgent:
  """A V-MPO agent on two such networks."""
  return agent_lib.VMPOAgent(tiny_network(), tiny_network(), **settings)


def random_unrolls(seed: int, batch_size: int = 4, unroll_length: int = 5
                   ) -> unroll_lib.Unroll:
  """A batch for the agent; in all but the first row an episode ends and one begins."""
  random = np.random.RandomState(seed)
  t, m = unroll_length, _MEMORY_LENGTH
  normal = lambda *shape: random.randn(batch_size, *shape).astype(np.float32)
  step_type = np.full((batch_size, m + t + 1), dm_env.StepType.MID, np.int32)
  for i, row in enumerate(step_type[1:]):
    # The last step, which is followed by a first, is any of rows 0 .. T - 1.
    last = m + i % t
    row[last], row[last + 1] = dm_env.StepType.LAST, dm_env.StepType.FIRST
  no_episode = np.full((batch_size, t), np.nan, np.float32)
  return tf.nest.map_structure(tf.constant, unroll_lib.Unroll(
      observation=normal(t + 1, _OBSERVATION_SIZE), step_type=step_type,
      reward=normal(t + 1),
      discount=random.randint(2, size=(batch_size, t + 1)).astype(np.float32),
      action=random.randint(_NUM_ACTIONS, size=(batch_size, t + 1)).astype(np.int32),
      policy=normal(t, _NUM_ACTIONS), record=normal(m, _NUM_LAYERS, _MODEL_DIM),
      episode_return=no_episode, episode_success=no_episode,
      target_step=np.zeros((1, 1), np.int64), unroll_id=np.zeros((1, 1), np.int64)))
