"""Memory in TF-Agents' own DQN: a Q-network with a core, trained on whole episodes.

`tf_agents_recall.py` has the task, which needs memory: a feed-forward network can only
guess, and the same agent with a gated Transformer-XL remembers.

  python examples/tf_agents_dqn.py

With seed 0 this takes 34 s of CPU; the mean return is 1.00 with the Transformer-XL and
0.26 with the feed-forward network.
"""

import functools
from typing import Any, Callable, Sequence

import tensorflow as tf
from tf_agents.agents.dqn import dqn_agent
from tf_agents.replay_buffers import tf_uniform_replay_buffer
from tf_agents.specs import tensor_spec
from tf_agents.utils import common
import tf_agents_recall

from gtrxl_tf import cores
from gtrxl_tf import networks

LENGTH = tf_agents_recall.EPISODE_LENGTH + 1


def make_agent(environment, core: Callable[[], cores.Core]) -> dqn_agent.DqnAgent:
  """DQN with a torso, a core and one output for each action."""
  q_network = networks.CoreNetwork(
      environment.observation_spec(), core,
      torso=functools.partial(networks.VectorTorso, [32]),
      head=functools.partial(tf.keras.layers.Dense, tf_agents_recall.NUM_SYMBOLS))
  agent = dqn_agent.DqnAgent(
      environment.time_step_spec(), environment.action_spec(), q_network,
      tf.keras.optimizers.Adam(3e-3), epsilon_greedy=0.3, gamma=0.9,
      target_update_period=20)
  agent.initialize()
  return agent


def pairs(episodes: Any) -> Any:
  """Turns `[B, T, ...]` into `[B * (T - 1), 2, ...]`, for a network without state."""
  def of(x):
    frames = tf.stack([x[:, :-1], x[:, 1:]], axis=2)
    return tf.reshape(frames, tf.concat([[-1, 2], tf.shape(x)[2:]], axis=0))
  return tf.nest.map_structure(of, episodes)


def train(core: Callable[[], cores.Core], num_iterations: int, seed: int) -> float:
  """Trains an agent; returns its mean return in 512 new episodes."""
  tf.keras.utils.set_random_seed(seed)
  environment = tf_agents_recall.make_environment(16, seed)
  agent = make_agent(environment, core)
  # An item of the buffer is a whole episode, which DQN unrolls from its start.
  buffer = tf_uniform_replay_buffer.TFUniformReplayBuffer(
      tensor_spec.add_outer_dim(agent.collect_data_spec, LENGTH),
      environment.batch_size, max_length=100)
  episodes = iter(buffer.as_dataset(sample_batch_size=64))
  learn = common.function(agent.train)
  play = tf.function(
      lambda: tf_agents_recall.play(environment, agent.collect_policy))
  for _ in range(num_iterations):
    buffer.add_batch(play())
    batch, _ = next(episodes)
    learn(batch if agent.train_sequence_length is None else pairs(batch))
  test = tf_agents_recall.make_environment(512, seed + 1)
  return tf_agents_recall.mean_return(tf_agents_recall.play(test, agent.policy))


def main(argv: Sequence[str] | None = None) -> None:
  tf_agents_recall.compare(__doc__, train, num_iterations=200, argv=argv)


if __name__ == '__main__':
  main()
