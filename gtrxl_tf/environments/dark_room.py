"""DarkRoom and DarkKeyToDoor, for any number of rooms at once and as environments.

They follow *Memory-Efficient Algorithm Distillation*, section 4 and appendix A.3. The
docstrings of `DarkRooms` and `DarkRoomFamily` explain the choices where the paper is
silent. The paper's large forms differ only in size and episode length.
"""

import itertools
from typing import Annotated, Dict, Literal, NamedTuple, Optional, Sequence

import dm_env
from dm_env import specs
import numpy as np

from gtrxl_tf.environments import episodic
from gtrxl_tf.environments import rendering
from gtrxl_tf.environments import task_batch
from gtrxl_tf.settings import config

UP, DOWN, LEFT, RIGHT, NONE = range(5)
_MOVES = np.array([(0, 1), (0, -1), (-1, 0), (1, 0), (0, 0)])

Task = Literal['normal', 'dense', 'quick']

# Coordinates must fit a byte, and distances a signed byte.
Size = Annotated[int, config.Range(3, 64)]
Cell = Sequence[config.NonNegativeInt]


class Setting(NamedTuple):
  """A row of the paper's Table S1.

  Attributes:
    num_targets: 1 in DarkRoom, a goal; 2 in DarkKeyToDoor, a key and a door.
    task: which rewards there are.
    size: the room has `size` times `size` cells.
    episode_length: steps after which an episode is cut off.
    num_episodes: episodes of full length in a learning history; with early success, more.
  """
  num_targets: int
  task: Task
  size: int
  episode_length: int
  num_episodes: int


# Table S1 is damaged in the known copies of the paper. Sizes, lengths and episodes can
# be read. The transitions are length times episodes, as its note says; what is left of
# that column agrees if it is read one row lower.
SETTINGS: Dict[str, Setting] = {
    'dr': Setting(1, 'normal', 9, 20, 125),
    'dktd': Setting(2, 'normal', 9, 50, 150),
    'drln': Setting(1, 'normal', 13, 50, 150),
    'drlq': Setting(1, 'quick', 13, 50, 250),
    'drld': Setting(1, 'dense', 15, 50, 175),
    'dktdln': Setting(2, 'normal', 11, 70, 200),
    'dktdlq': Setting(2, 'quick', 9, 50, 400),
    'dktdld': Setting(2, 'dense', 11, 70, 350),
}


class DarkRooms(task_batch.TaskBatch):
  """B rooms of one size, each with invisible targets to be found in order.

  The agent sees its position (x, y). It begins every episode in the centre and moves by
  one cell: up (y + 1), down, left, right (x + 1) or not at all; walls stop it. The
  agent finds a target by being on it after a step, when it is that target's turn:
  standing on the door without the key changes nothing. Finding the last target
  terminates the episode; otherwise it is truncated at its full length. Every episode
  has the same targets.

  Rewards depend on the task:

    normal  1 for each target found, else 0.
    quick   -1 for each step, the last one too.
    dense   minus the L1 distance from the agent, after the step, to the target whose
            turn it was before the step. Figure 4's dense room shows 1 for the last
            target, where the text has 0, as here.

  A state is an integer that encodes the cell and the number of targets found. It tells
  the source whether it has the key; a model that learns from the source's histories
  does not see states.
  """

  def __init__(self, targets: np.ndarray, size: int, episode_length: int, task: Task):
    """Creates the rooms; an episode is cut off after `episode_length` steps.

    `targets` are integers [B, K, 2], (x, y) of the K targets of each room; a room has `size`
    times `size` cells.
    """
    self.targets = np.asarray(targets)
    num_tasks, self._num_targets, _ = self.targets.shape
    super().__init__(num_tasks, num_actions=len(_MOVES))
    self._size = size
    self._episode_length = episode_length
    self._task = task
    self._cells = np.stack(np.divmod(np.arange(size**2), size)[::-1], axis=1)
    self._centre = _centre(size)
    self._num_cells = size**2
    after = np.clip(self._cells + _MOVES[:, None], 0, size - 1)
    self._after = _number(after, size).ravel()  # [actions cells]
    self._distance = np.abs(self._cells[:, None] - self._cells).sum(axis=-1).ravel()
    self._seen = self._cells.astype(np.uint8)
    _check_targets(self.targets, size, self._centre)
    self._targets = _number(self.targets, size).T.ravel()  # [K B]
    self._rows = np.arange(num_tasks)
    self.restart()

  def observation_spec(self) -> specs.BoundedArray:
    return specs.BoundedArray((2,), np.uint8, 0, self._size - 1, 'x_y')

  def reward_spec(self) -> specs.Array:
    return specs.Array((), np.int8, 'reward')

  def state_spec(self) -> specs.DiscreteArray:
    return specs.DiscreteArray(self._num_targets * self._num_cells, np.int64, 'found_and_cell')

  @property
  def state(self) -> np.ndarray:
    return self._found * self._num_cells + self._cell

  def observe(self, state: np.ndarray) -> np.ndarray:
    return self._seen.take(state % self._num_cells, axis=0)

  def restart(self) -> None:
    self._cell = np.full(self.num_tasks, self._centre)
    self._found = np.zeros(self.num_tasks, np.int64)
    self._num_steps = np.zeros(self.num_tasks, np.int64)

  def informed_actions(self) -> np.ndarray:
    """Goes to the next target, along x first.

    No policy returns more, except where the task is dense and the key is far from the
    door: waiting beside the key costs 1 a step, and the way to the door may cost more.
    """
    dx, dy = (self._cells[self._target()] - self._cells[self._cell]).T
    return np.select([dx > 0, dx < 0, dy > 0, dy < 0], [RIGHT, LEFT, UP, DOWN], NONE)

  def _target(self) -> np.ndarray:
    """Returns the cells of the targets whose turn it is, [B]."""
    return self._targets.take(self._found * self.num_tasks + self._rows)

  def _step(self, actions: np.ndarray) -> task_batch.Outcome:
    target = self._target()
    cell = self._after.take(actions.astype(np.int64) * self._num_cells + self._cell)
    hit = cell == target
    found = self._found + hit
    terminated = found == self._num_targets
    num_steps = self._num_steps + 1
    ends = terminated | (num_steps == self._episode_length)
    reward = self._reward(cell, target, hit)
    # There is no state in which all targets are found; the last stage stands for it.
    state = np.minimum(found, self._num_targets - 1) * self._num_cells + cell
    going_on = ~ends
    self._cell = np.where(ends, self._centre, cell)
    self._found = found * going_on
    self._num_steps = num_steps * going_on
    return task_batch.Outcome(reward, terminated, ends & ~terminated, state)

  def _reward(self, cell: np.ndarray, target: np.ndarray, hit: np.ndarray) -> np.ndarray:
    if self._task == 'normal':
      return hit.astype(np.float32)
    if self._task == 'quick':
      return np.full(self.num_tasks, -1, np.float32)
    return (-self._distance.take(cell * self._num_cells + target)).astype(np.float64)


class _Room(episodic.MemoryTask):
  """A batch of one room as a dm_env environment."""

  def __init__(self, rooms: DarkRooms):
    super().__init__(rooms.num_actions, seed=None)
    self._rooms = rooms
    self._reset()  # Every attribute of an episode exists from here on.

  def observation_spec(self) -> specs.BoundedArray:
    return self._rooms.observation_spec()

  def informed_action(self) -> int:
    """Returns an action that finishes the task without delay, given its targets."""
    return int(self._rooms.informed_actions()[0])

  def render(self) -> np.ndarray:
    """Returns a picture, uint8 [H, W, 3], with the targets, which agents do not see."""
    size = int(self.observation_spec().maximum) + 1
    x, y = map(int, self._observation())
    cells = {(size - 1 - y, x): colour for (x, y), colour in zip(
        reversed(self._rooms.targets[0].tolist()), (rendering.GOAL, rendering.LIT))}
    return rendering.draw_grid(size, size, cells, (size - 1 - y, x))

  def _reset(self) -> dm_env.TimeStep:
    self._rooms.restart()
    self._state = self._rooms.state
    self._success = False
    return dm_env.restart(self._observation())

  def _step(self, action: int) -> dm_env.TimeStep:
    outcome = self._rooms.step(np.array([action]))
    self._state = outcome.state
    self._success = bool(outcome.terminated[0])
    return episodic.later_step(
        float(outcome.reward[0]), self._observation(), self._success, outcome.truncated[0])

  def _observation(self) -> np.ndarray:
    return self._rooms.observe(self._state)[0]


@config.configurable
class DarkRoom(_Room):
  """A room without light, with an invisible goal to find and to remember.

  Observations are uint8 [2]: x and y of the agent. It begins every episode in the
  centre and moves up, down, left, right or not at all. Reaching the goal ends the
  episode. The goal stays in the same place in all episodes.
  """

  def __init__(self,
               size: Size = 9,
               episode_length: config.PositiveInt = 20,
               task: Task = 'normal',
               goal: Optional[Cell] = None,
               seed: Optional[config.NonNegativeInt] = None):
    """Creates the task; the defaults are the paper's setting dr.

    Args:
      size: the room has `size` times `size` cells; 13 or 15 in the large form.
      episode_length: steps after which an episode is cut off; 50 in the large form.
      task: which rewards there are, see `DarkRooms`.
      goal: [x, y]; if None, it is drawn uniformly from all cells but the centre.
      seed: seeds the goal.
    """
    super().__init__(DarkRooms(_targets(size, [goal], seed), size, episode_length, task))


@config.configurable
class DarkKeyToDoor(_Room):
  """A dark room with an invisible key, and a door that it opens.

  The rules are those of `DarkRoom`, but the agent has to step on the key first and then
  on the door, which ends the episode. The agent does not see whether it has the key.
  """

  def __init__(self,
               size: Size = 9,
               episode_length: config.PositiveInt = 50,
               task: Task = 'normal',
               key: Optional[Cell] = None,
               door: Optional[Cell] = None,
               seed: Optional[config.NonNegativeInt] = None):
    """Creates the task; the defaults are the paper's setting dktd.

    Args:
      size: as of `DarkRoom`; 11 in the large form.
      episode_length: as of `DarkRoom`; 70 in the large form.
      task: as of `DarkRoom`.
      key: [x, y]; if None, it is drawn uniformly from all cells but the centre and the
        door.
      door: [x, y]; if None, it is drawn in the same way.
      seed: seeds key and door.
    """
    super().__init__(DarkRooms(_targets(size, [key, door], seed), size, episode_length, task))


@config.configurable
class DarkRoomFamily(task_batch.TaskFamily):
  """The rooms of one of the paper's eight settings, with targets kept for evaluation.

  A task is the cell of a goal, or the ordered pair of the cells of a key and a door,
  none in the centre. There are 80 tasks in dr, 168 in drln and drlq, 224 in drld, 6,320
  in dktd and dktdlq, and 14,280 in dktdln and dktdld. So most of 10,000 rooms share
  their targets with others, and differ only in how the source came to learn them. The
  paper's "disjoint targets" hold for the two splits here: the tasks are shuffled, the
  first `training_share` are for training and the others for evaluation. No pair of key
  and door is then in both, but single cells are, unless cells are split instead.

  >>> family = DarkRoomFamily('dr')
  >>> family.num_steps
  2500
  >>> rooms = family.make('training', num_tasks=3, seed=0)
  >>> outcome = rooms.step(np.array([UP, LEFT, NONE]))
  >>> rooms.observe(outcome.state).tolist()
  [[4, 5], [3, 4], [4, 4]]
  """

  def __init__(self,
               setting: Literal[tuple(SETTINGS)] = 'dr',
               size: Optional[Size] = None,
               episode_length: Optional[config.PositiveInt] = None,
               num_episodes: Optional[config.PositiveInt] = None,
               training_share: config.PositiveFraction = 0.85,
               split_seed: config.NonNegativeInt = 0,
               split_by: Literal['tasks', 'cells'] = 'tasks'):
    """Creates the family.

    Args:
      setting: a setting of the paper's Table S1.
      size: the size of the rooms; the setting's if None.
      episode_length: the setting's if None.
      num_episodes: episodes of full length in a learning history; the setting's if
        None.
      training_share: share of the tasks, or cells, that are for training. The paper
        does not name it; 0.85 is headless-ad's.
      split_seed: seeds the shuffle.
      split_by: 'tasks', or 'cells' to shuffle the cells instead. Then no key or door of
        training is anywhere in evaluation, and pairs with one cell of each split are in
        neither. 'cells' is not the default because the paper does not say whether key
        and door count as targets together or each alone.
    """
    given = dict(size=size, episode_length=episode_length, num_episodes=num_episodes)
    self.setting = SETTINGS[setting]._replace(
        **{name: value for name, value in given.items() if value is not None})
    self.name = f'dark rooms, setting {setting}'
    for name, value, usual in (('training_share', training_share, 0.85),
                               ('split_seed', split_seed, 0), ('split_by', split_by, 'tasks')):
      if value != usual:
        self.name += f', {name} {value}'
    self.num_steps = self.setting.episode_length * self.setting.num_episodes
    cells = np.delete(np.arange(self.setting.size**2), _centre(self.setting.size))
    num_targets = self.setting.num_targets
    units = np.array(list(itertools.permutations(
        cells, num_targets if split_by == 'tasks' else 1)))
    task_batch.random_state(split_seed).shuffle(units)
    num_training = round(training_share * len(units))
    self._tasks = {'training': units[:num_training], 'evaluation': units[num_training:]}
    if split_by == 'cells':
      self._tasks = {
          split: np.array(list(itertools.permutations(kept.ravel(), num_targets)))
          for split, kept in self._tasks.items()}
    for split, kept in self._tasks.items():
      if not len(kept):
        raise config.ConfigError(
            f'DarkRoomFamily.training_share = {training_share}: expected a share that '
            f'leaves tasks for {split}, of {len(units)} {split_by}')

  def targets(self, split: task_batch.Split) -> np.ndarray:
    """Returns (x, y) of the K targets of all N tasks of the split, [N, K, 2]."""
    return np.stack(np.divmod(self._tasks[split], self.setting.size)[::-1], axis=-1)

  def make(self, split: task_batch.Split, num_tasks: int, seed: int) -> DarkRooms:
    targets = self.targets(split)
    drawn = task_batch.random_state(seed).randint(len(targets), size=num_tasks)
    return DarkRooms(targets[drawn], self.setting.size, self.setting.episode_length,
                     self.setting.task)


def _targets(size: int, given: Sequence[Optional[Cell]], seed: Optional[int]) -> np.ndarray:
  """Returns the targets, [1, K, 2]; those that are None are drawn."""
  if any(cell is not None and len(cell) != 2 for cell in given):
    raise config.ConfigError(f'the targets {list(given)}: expected each to be [x, y]')
  taken = {(size // 2, size // 2), *(tuple(cell) for cell in given if cell is not None)}
  free = [(x, y) for x in range(size) for y in range(size) if (x, y) not in taken]
  drawn = iter(np.random.default_rng(seed).permutation(free))
  return np.array([[next(drawn) if cell is None else cell for cell in given]])


def _number(x_y: np.ndarray, size: int) -> np.ndarray:
  """Returns the numbers of cells [..., 2]."""
  return x_y[..., 1] * size + x_y[..., 0]


def _centre(size: int) -> int:
  return size // 2 * (size + 1)


def _check_targets(targets: np.ndarray, size: int, centre: int) -> None:
  numbers = np.sort(_number(targets, size))
  wrong = ((targets < 0) | (targets >= size)).any(axis=(1, 2)) | (
      numbers == centre).any(axis=1) | (np.diff(numbers) == 0).any(axis=1)
  if wrong.any():
    raise config.ConfigError(
        f'the targets {targets[np.argmax(wrong)].tolist()}: expected different cells '
        f'[x, y] in a room of size {size}, and not its centre')
