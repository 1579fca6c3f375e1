"""The 57 Atari games of the usual benchmark, through ale-py."""

import collections
from typing import Literal, Optional

import dm_env
from dm_env import specs
import gin
import numpy as np

from gtrxl_tf.environments import episodic
from gtrxl_tf.environments import optional
from gtrxl_tf.environments import scores
from gtrxl_tf.settings import config

ATARI_57 = tuple(scores.ATARI_57)
gin.constant('ATARI_57', ATARI_57)

# gymnasium.wrappers.AtariPreprocessing is not used. It ends the episode where a life is
# lost, while here the discount of that step is 0 and play continues; and it draws
# no-ops from another generator, so that recorded episodes could not be played again.
_ACTION_REPEATS = 4
_MAX_NOOPS = 30

# Addresses of positions in the console's memory, for Pong: two of the ball, of which
# the first grows as the ball comes nearer, and one of the paddle's height.
_PONG_BALL, _PONG_PADDLE = (49, 54), 51


@config.configurable
class Atari(episodic.Episodic):
  """One game, preprocessed as for DQN (Mnih et al., 2015).

  An episode begins after 1 to 30 frames without action, drawn uniformly, as the games
  themselves always start in the same way. Each action is repeated for 4 frames. Each
  pixel has the brighter of its values in the last two frames, as some objects are drawn
  only in every other frame. The observation is uint8 [84, 84, 4]: grey pictures of this
  and the three steps before, the newest last; steps before the first are black.

  Game over ends the episode with discount 0; after `max_frames` it is cut off, with
  discount 1.

  The defaults are V-MPO's for all 57 games at once (Song et al., 2020); V-MPO is the
  agent of *GTrXL*, whose appendix E names no settings. For a single game V-MPO neither
  clips rewards nor regards lost lives: `max_reward` None, `zero_discount_on_life_loss`
  False.
  """

  def __init__(self,
               game: Literal[ATARI_57],
               full_action_set: bool = True,
               max_reward: Optional[config.PositiveFloat] = 1.0,
               zero_discount_on_life_loss: bool = True,
               max_frames: config.PositiveInt = 108_000,
               sticky_probability: config.UnitInterval = 0.0,
               seed: Optional[config.NonNegativeInt] = None,
               side: config.PositiveInt = 84,
               num_pictures: config.PositiveInt = 4):
    """Creates the environment.

    Args:
      game: one of `ATARI_57`.
      full_action_set: whether to have all 18 actions of the joystick, so that all games
        have the same actions, as an agent for many games needs; else only those that do
        something in this game.
      max_reward: upper bound of a step's reward, which is summed over 4 frames.
        Negative rewards stay as they are. None clips nothing.
      zero_discount_on_life_loss: whether a step in which a life is lost has discount 0;
        the episode continues.
      max_frames: frames of the longest episode, including those without action. The
        default, half an hour of play, is also that of the usual random and human
        scores.
      sticky_probability: probability that a frame repeats the action of the frame
        before, whatever the agent chose. 0 by default: the random and human scores that
        normalise GTrXL's come from games with no-op starts instead. Machado et al.
        (2018) recommend 0.25.
      seed: seeds the no-ops and the sticky actions.
      side: height and width of a picture, in pixels.
      num_pictures: pictures in an observation. Datasets store one at each step, and
        `OfflineExperiment.frame_stack` stacks them.
    """
    ale_py = optional.load('ale_py', needed_by='Atari')
    roms = optional.load('ale_py.roms', needed_by='Atari')
    self._cv2 = optional.load('cv2', needed_by='Atari')
    self._rng = np.random.default_rng(seed)
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # No banner.
    self._ale = ale_py.ALEInterface()
    self._ale.setInt('random_seed', int(self._rng.integers(1, 2**31)))
    self._ale.setFloat('repeat_action_probability', sticky_probability)
    self._ale.loadROM(roms.get_rom_path(game))
    self._side, self._num_pictures = side, num_pictures
    self._game = game
    self._seen = None  # Ball and paddle, when `pong_action` last looked.
    # The legal action set of Skiing has only 9; the other 9 are no-ops there.
    self._actions = (list(ale_py.Action) if full_action_set else self._ale.getMinimalActionSet())
    self._num_actions = len(self._actions)
    self.action_names = [action.name for action in self._actions]
    self._noop = ale_py.Action.NOOP
    self._max_reward = np.inf if max_reward is None else max_reward
    self._zero_discount_on_life_loss = zero_discount_on_life_loss
    self._max_frames = max_frames
    self._episode_return = 0.0

  def episode_return(self) -> float:
    """Returns the game's score, without clipping; called after the last step."""
    return self._episode_return

  def pong_action(self) -> int:
    """Returns an action that moves towards the ball in Pong while it approaches.

    It is called at every step, for recorded episodes. This player of medium strength
    makes about as many points as its opponent. It reads the positions of ball and
    paddle in the console's memory.
    """
    if self._game != 'pong':
      raise ValueError(f"pong_action() in {self._game!r}: expected 'pong'")
    memory = self._ale.getRAM()
    x, y, paddle = now = tuple(int(memory[i]) for i in (*_PONG_BALL, _PONG_PADDLE))
    old_x, old_y, old_paddle = self._seen or now
    self._seen = now
    wanted = 'NOOP'
    if y and old_y and x > old_x:  # The height is 0 while there is no ball.
      # The paddle slides on, and its height is that of its upper end.
      ahead = paddle + (paddle - old_paddle) - (y + 2 * (y - old_y) - 12)
      wanted = 'RIGHT' if ahead > 4 else 'LEFT' if ahead < -4 else 'NOOP'
    return self.action_names.index(wanted)

  def _reset(self) -> dm_env.TimeStep:
    self._episode_return = 0.0
    self._seen = None
    self._ale.reset_game()
    for _ in range(self._rng.integers(1, _MAX_NOOPS, endpoint=True)):
      self._ale.act(self._noop)
    self._lives = self._ale.lives()
    black = np.zeros([self._side, self._side], np.uint8)
    self._pictures = collections.deque([black] * self._num_pictures, maxlen=self._num_pictures)
    return dm_env.restart(self._observation(self._ale.getScreenGrayscale()))

  def _step(self, action: int) -> dm_env.TimeStep:
    score = 0
    screens = collections.deque(maxlen=2)
    for _ in range(_ACTION_REPEATS):
      score += self._ale.act(self._actions[action])
      screens.append(self._ale.getScreenGrayscale())
      if self._ale.game_over():
        break
    self._episode_return += score
    reward = min(float(score), self._max_reward)
    observation = self._observation(np.maximum(screens[0], screens[-1]))

    lives, self._lives = self._lives, self._ale.lives()
    life_lost = self._zero_discount_on_life_loss and self._lives < lives
    if self._ale.game_over():
      return dm_env.termination(reward, observation)
    discount = 0.0 if life_lost else 1.0
    if self._ale.getEpisodeFrameNumber() >= self._max_frames:
      return dm_env.truncation(reward, observation, discount)
    return dm_env.transition(reward, observation, discount)

  def observation_spec(self) -> specs.BoundedArray:
    return specs.BoundedArray(
        [self._side, self._side, self._num_pictures], np.uint8, 0, 255, 'pictures')

  def _observation(self, screen: np.ndarray) -> np.ndarray:
    # The mean over an area counts every pixel. OpenCV's default, bilinear interpolation
    # of the nearest pixels, leaves out every fifth row of the screen.
    self._pictures.append(self._cv2.resize(
        screen, (self._side, self._side), interpolation=self._cv2.INTER_AREA))
    return np.stack(self._pictures, axis=-1)
