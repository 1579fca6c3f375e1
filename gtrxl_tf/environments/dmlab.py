"""DMLab-30: thirty first-person tasks of DeepMind Lab (Beattie et al., 2016)."""

import importlib
from typing import Literal, Optional

import dm_env
from dm_env import specs
import gin
import numpy as np

from gtrxl_tf.environments import episodic
from gtrxl_tf.environments import instructions
from gtrxl_tf.environments import scores
from gtrxl_tf.settings import config

# A level's index here can also be the number of its value function.
DMLAB_30 = tuple(scores.DMLAB_30)
gin.constant('DMLAB_30', DMLAB_30)

# These show photographs that do not come with DeepMind Lab.
PHOTOGRAPH_LEVELS = (
    'psychlab_arbitrary_visuomotor_mapping',
    'psychlab_continuous_recognition',
)

# Look left-right, look down-up, strafe left-right, move back-forward, fire. The native
# action also has jump and crouch, which the paper does not use.
ACTION_SETS = {
    'dmlab30': (  # Table 5, from Hessel et al. (2018).
        (0, 0, 0, 1, 0),     # Forward.
        (0, 0, 0, -1, 0),    # Backward.
        (0, 0, -1, 0, 0),    # Strafe left.
        (0, 0, 1, 0, 0),     # Strafe right.
        (-10, 0, 0, 0, 0),   # Small look left.
        (10, 0, 0, 0, 0),    # Small look right.
        (-60, 0, 0, 0, 0),   # Large look left.
        (60, 0, 0, 0, 0),    # Large look right.
        (0, 10, 0, 0, 0),    # Look down.
        (0, -10, 0, 0, 0),   # Look up.
        (-10, 0, 0, 1, 0),   # Forward and small look left.
        (10, 0, 0, 1, 0),    # Forward and small look right.
        (-60, 0, 0, 1, 0),   # Forward and large look left.
        (60, 0, 0, 1, 0),    # Forward and large look right.
        (0, 0, 0, 0, 1),     # Fire.
    ),
    'avm': (  # Table 6, from Wayne et al. (2018), who had no no-op.
        (-10, 0, 0, 0, 0),   # Small look left.
        (10, 0, 0, 0, 0),    # Small look right.
        (0, 10, 0, 0, 0),    # Look down.
        (0, -10, 0, 0, 0),   # Look up.
        (0, 0, 0, 0, 0),     # No-op.
    ),
}

_HEIGHT, _WIDTH = 72, 96
_MAX_WORDS = 16


@config.configurable
class DMLab(episodic.Episodic):
  """One level of DMLab-30 as GTrXL's agents see it (appendix A).

  Rewards are the level's own, summed over the frames of a repeated action and neither
  scaled nor clipped, as in V-MPO.

  An episode ends when the level says so, usually by the clock, with discount 0: the
  paper does not say, but IMPALA's code and DeepMind Lab's own dm_env binding do so.
  DeepMind Lab does not show the state in which an episode ends. The last step repeats
  the observation before it, so that pixel control sees no change.

  Actions: the integers below 15 or 5, rows of `ACTION_SETS`. Observations:

    rgb: uint8 [72, 96, 3], the agent's view.
    instruction: int32 [16], the level's instruction as `instructions.hash_instruction`
      returns it; only padding where the level has none. The paper does not give a
      length; the longest instruction in DMLab-30's documentation has eight words.

  It needs the package `deepmind_lab`, which has to be built from source
  (docs/environments.md).
  """

  def __init__(self,
               level: Literal[DMLAB_30],
               actions: Literal[tuple(ACTION_SETS)] = 'dmlab30',
               action_repeat: config.PositiveInt = 4,
               renderer: Literal['software', 'hardware'] = 'software',
               dataset_path: Optional[str] = None,
               seed: Optional[config.NonNegativeInt] = None):
    """Starts DeepMind Lab.

    Args:
      level: a name in `DMLAB_30`.
      actions: 'dmlab30' for the 15 actions of Table 5; 'avm' for the 5 of Table 6, used
        for `psychlab_arbitrary_visuomotor_mapping` in figure 9.
      action_repeat: frames, of 60 a second, for which an action lasts (Table 8: 4).
      renderer: 'software' draws on the CPU, 'hardware' on a GPU through EGL or GLX,
        whichever DeepMind Lab was built with.
      dataset_path: folder of the photographs of Brady et al. (2008), `0001.png` and so
        on, which only the levels in `PHOTOGRAPH_LEVELS` show.
      seed: seeds the episodes' seeds; None draws differently in every process.
    """
    if level in PHOTOGRAPH_LEVELS and dataset_path is None:
      raise config.ConfigError(
          f'DMLab.dataset_path is not set: expected the folder of the photographs that '
          f'{level} shows (see docs/environments.md)')
    native_actions = np.zeros([len(ACTION_SETS[actions]), 7], np.intc)
    native_actions[:, :5] = ACTION_SETS[actions]
    self._native_actions = native_actions
    self._num_actions = len(native_actions)
    self._action_repeat = action_repeat
    self._rng = np.random.default_rng(seed)
    settings = {'width': str(_WIDTH), 'height': str(_HEIGHT), 'logLevel': 'WARN'}
    if dataset_path is not None:
      settings['datasetPath'] = dataset_path
    try:
      deepmind_lab = importlib.import_module('deepmind_lab')
    except ModuleNotFoundError as error:
      raise config.ConfigError(
          'DMLab needs the package deepmind_lab, which is not installed: expected it '
          'built from source (see docs/environments.md)') from error
    self._lab = deepmind_lab.Lab(
        f'contributed/dmlab30/{level}', ['RGB_INTERLEAVED', 'INSTR'],
        config=settings, renderer=renderer)

  def _reset(self) -> dm_env.TimeStep:
    # DeepMind Lab takes a Python int that fits a C int.
    self._lab.reset(seed=int(self._rng.integers(2**31 - 1)))
    self._observation = self._observe()
    return dm_env.restart(self._observation)

  def _step(self, action: int) -> dm_env.TimeStep:
    reward = self._lab.step(self._native_actions[action], num_steps=self._action_repeat)
    if self._lab.is_running():
      self._observation = self._observe()
      return dm_env.transition(reward, self._observation)
    return dm_env.termination(reward, self._observation)

  def observation_spec(self) -> dict[str, specs.Array]:
    return {
        'instruction': specs.Array([_MAX_WORDS], np.int32, name='instruction'),
        'rgb': specs.Array([_HEIGHT, _WIDTH, 3], np.uint8, name='rgb'),
    }

  def close(self) -> None:
    self._lab.close()

  def _observe(self) -> dict[str, np.ndarray]:
    observations = self._lab.observations()
    return {
        'instruction': instructions.hash_instruction(
            observations['INSTR'], _MAX_WORDS),
        'rgb': observations['RGB_INTERLEAVED'],
    }
