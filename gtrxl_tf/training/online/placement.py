"""The settings of acting by inference servers."""

import math
from typing import Optional

from gtrxl_tf.settings import config


@config.configurable(name='Inference')
class Inference:
  """Where and how inference servers act for the environments of a run.

  With `OnlineExperiment.inference = @Inference()`, `gtrxl train` starts the servers, and
  actors that only step environments. Parts that are started one by one decide by their
  flags where the policy acts, and take the other settings from here. The idea is that of
  SEED RL (Espeholt et al., 2020); none of the defaults is from there.

  Args:
    num_servers: processes that act. With 0 the learner's process acts too, on the same
      device. Each server acts for an equal share of the actors' processes.
    actors_per_process: how many of `OnlineExperiment.num_actors` one process plays in
      turn. While one waits for its actions, the next steps its environments.
    max_batch: the most environments that a step of the policy serves; by default all
      of the server's.
    max_wait_ms: how long the first request of a batch waits for others, in milliseconds.
      With 0, requests wait only while the policy is busy, and the next step serves all.
  """

  def __init__(
      self,
      num_servers: config.NonNegativeInt = 1,
      actors_per_process: config.PositiveInt = 2,
      max_batch: Optional[config.PositiveInt] = None,
      max_wait_ms: config.NonNegativeFloat = 0.0):
    self.num_servers = num_servers
    self.actors_per_process = actors_per_process
    self.max_batch = max_batch
    self.max_wait_ms = max_wait_ms

  @property
  def description(self) -> str:
    """Says what acts."""
    return (f'{self.num_servers} inference server(s) act' if self.num_servers
            else 'the learner acts')

  def num_processes(self, num_actors: int) -> int:
    """Returns how many processes play that many actors."""
    return math.ceil(num_actors / self.actors_per_process)

  def actors_of(self, process: int, num_actors: int) -> range:
    """Returns the indices of the actors that a process plays."""
    processes = self.num_processes(num_actors)
    if process >= processes:
      raise config.ConfigError(
          f'--index={process}: expected less than {processes}, since '
          f'OnlineExperiment.num_actors = {num_actors} and Inference.actors_per_process '
          f'= {self.actors_per_process}')
    first = process * self.actors_per_process
    return range(first, min(first + self.actors_per_process, num_actors))

  def actors_per_server(self, num_actors: int) -> int:
    """Returns the largest number of actors that a server acts for."""
    processes = math.ceil(self.num_processes(num_actors) / max(1, self.num_servers))
    return min(num_actors, processes * self.actors_per_process)
