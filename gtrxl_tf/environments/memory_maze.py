"""Memory Maze of Pasukonis et al. (2022), through the package memory-maze."""

import functools
from typing import Literal, Optional

import dm_env
from dm_env import specs

from gtrxl_tf.environments import episodic
from gtrxl_tf.environments import optional
from gtrxl_tf.environments import rendering
from gtrxl_tf.settings import config


@config.configurable
class MemoryMaze(episodic.Episodic):
  """A random maze with coloured balls, to be touched in a given order.

  A border around the image shows the colour of the ball to find. Touching this ball
  gives reward 1, and another colour is asked for; touching others gives nothing. Maze,
  balls and start are drawn for each episode and then stay, so that an agent that
  remembers where the balls are can go straight to them. The "Memory Maze" of *GTrXL* is
  another task, see `AppleMaze`.

  | size           | 9    | 11   | 13   | 15   |
  |----------------|------|------|------|------|
  | colours        | 3    | 4    | 5    | 6    |
  | episode, steps | 1000 | 2000 | 3000 | 4000 |

  Every episode has this length: the agent rolls as a ball at 4 steps a second, and none
  of its actions ends the episode. The last step has discount 1, as in the package: the
  episode is cut off, the task is not over.

  Actions: 0 nothing, 1 forward, 2 left, 3 right, 4 forward and left, 5 forward and
  right. Observations:

    image: uint8 [64, 64, 3], what the agent sees, with the border.

  Two things are faster than in the package, with the same results: there is no map for
  shadows, as no light casts any; and one comparison over all contacts, instead of a
  loop, finds what a ball touches.
  """

  def __init__(self,
               size: Literal[9, 11, 13, 15] = 9,
               seed: Optional[config.NonNegativeInt] = None):
    """Creates the environment; this takes seconds, and so does each new episode.

    Args:
      size: cells along each side, without the outer walls.
      seed: seeds mazes, balls, colours and starts.
    """
    rendering.choose_backend()
    rendering.require_backend(needed_by='MemoryMaze')
    tasks = optional.load('memory_maze.tasks', needed_by='MemoryMaze')
    make = getattr(tasks, f'memory_maze_{size}x{size}')
    self._environment = _quickened(make(seed=seed))
    self._num_actions = self._environment.action_spec().num_values

  def _reset(self) -> dm_env.TimeStep:
    return self._selected(self._environment.reset())

  def _step(self, action: int) -> dm_env.TimeStep:
    return self._selected(self._environment.step(action))

  def observation_spec(self) -> dict[str, specs.Array]:
    return {'image': self._environment.observation_spec()['image'].replace(name='image')}

  def close(self) -> None:
    self._environment.close()

  def _selected(self, time_step: dm_env.TimeStep) -> dm_env.TimeStep:
    return time_step._replace(observation={'image': time_step.observation['image']})


def _quickened(environment: dm_env.Environment) -> dm_env.Environment:
  """Makes the package's environment faster; called before its first episode."""
  task = environment.task
  # This is read when the model is compiled, at the beginning of every episode.
  task.root_entity.mjcf_model.visual.quality.shadowsize = 0
  for target in task._targets:  # pylint: disable=protected-access
    target._update_activation = functools.partial(_update_activation, target)
  return environment


def _update_activation(target, physics) -> None:
  """Does what `TargetSphere`'s method does, for targets that anything may touch."""
  # pylint: disable=protected-access
  if not target._activated and (physics.data.contact.geom == target._geom_id).any():
    target._activated = True
    physics.bind(target._material).rgba[-1] = 0
