"""Tasks that need memory, and batches of them.

| class                        | what must be remembered                              |
|------------------------------|------------------------------------------------------|
| `Numpad`                     | a sequence of pads, found by trial, for the rest of  |
|                              | the episode                                          |
| `TMaze`                      | one bit, along a corridor of any length              |
| `ActionRecall`               | one of a few actions, over a fixed delay             |
| `ActionAssociativeRetrieval` | the agent's own first action (RATE, appendix C)      |
| `DarkRoom`                   | a goal in the dark, from one episode to the next     |
| `DarkKeyToDoor`              | a key and a door, from one episode to the next       |
| `NumpadMujoco`               | as `Numpad`, with a rolling ball: the paper's task   |
| `AppleMaze`                  | where the apple is; GTrXL's Memory Maze              |
| `MemoryMaze`                 | a maze and its coloured balls (Pasukonis et al.)     |
| `MinigridMemory`             | an object, seen at the start of a hallway            |
| `Atari`                      | little: 57 games, for comparison                     |
| `DMLab`                      | depends on the level: the 30 levels of DMLab-30      |
| `VizdoomTwoColors`           | a colour, seen for 45 steps: which items heal (RATE) |
| `Bsuite`                     | a bit or many, over a delay: `memory_len` and others |
| `GymnasiumEnvironment`       | depends on the id: POPGym, MiniGrid, HalfCheetah ... |

The last nine need packages of the extra `envs` or, for `DMLab`, one built from source.
The classes can be imported without these packages, which only their use needs.
"""

from gtrxl_tf.environments.action_recall import ActionAssociativeRetrieval
from gtrxl_tf.environments.action_recall import ActionRecall
from gtrxl_tf.environments.apple_maze import AppleMaze
from gtrxl_tf.environments.atari import Atari
from gtrxl_tf.environments.bandit import BanditFamily
from gtrxl_tf.environments.batched_environment import BatchedEnvironment
from gtrxl_tf.environments.batched_environment import BatchedTimeStep
from gtrxl_tf.environments.batched_environment import EnvironmentFailed
from gtrxl_tf.environments.bsuite import Bsuite
from gtrxl_tf.environments.dark_room import DarkKeyToDoor
from gtrxl_tf.environments.dark_room import DarkRoom
from gtrxl_tf.environments.dark_room import DarkRoomFamily
from gtrxl_tf.environments.dmlab import DMLab
from gtrxl_tf.environments.episodic import informed_return
from gtrxl_tf.environments.episodic import MemoryTask
from gtrxl_tf.environments.gymnasium import FromGymnasium
from gtrxl_tf.environments.gymnasium import GymnasiumEnvironment
from gtrxl_tf.environments.making import make
from gtrxl_tf.environments.making import task_settings
from gtrxl_tf.environments.memory_maze import MemoryMaze
from gtrxl_tf.environments.minigrid_memory import MinigridMemory
from gtrxl_tf.environments.numpad import Numpad
from gtrxl_tf.environments.numpad_mujoco import NumpadMujoco
from gtrxl_tf.environments.specs import NamedActions
from gtrxl_tf.environments.specs import random_action
from gtrxl_tf.environments.specs import random_value
from gtrxl_tf.environments.t_maze import TMaze
from gtrxl_tf.environments.task_batch import TaskBatch
from gtrxl_tf.environments.task_batch import TaskFamily
from gtrxl_tf.environments.vizdoom_two_colors import VizdoomTwoColors
from gtrxl_tf.environments.wrappers import ClipReward
from gtrxl_tf.environments.wrappers import FrameStack
from gtrxl_tf.environments.wrappers import RepeatAction
from gtrxl_tf.environments.wrappers import ScaleReward
from gtrxl_tf.environments.wrappers import ShrinkImages
from gtrxl_tf.environments.wrappers import stacked_spec
from gtrxl_tf.environments.wrappers import StepLimit
from gtrxl_tf.environments.wrappers import Wrapper
