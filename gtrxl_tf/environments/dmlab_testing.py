"""A stand-in for the package `deepmind_lab`, for tests and for measurements.

DeepMind Lab is built from source and is not installed where the tests run. This module
has its Python interface, as far as `dmlab.DMLab` uses it, written from its
documentation (google-deepmind/lab, `docs/users/python_api.md`, `actions.md`) and from
the binding itself (`python/dmlab_module.c`), whose errors it raises. It plays no game:

- frames are noise, drawn from the seed of the reset;
- each frame on which FIRE is held has reward 1, and nothing else has any;
- every episode has the same number of frames;
- levels of the language kind always give `INSTRUCTION`, and others give none.

An adapter that works with it makes well-formed calls. This does not show that DeepMind
Lab would build, start or return what the adapter expects.
"""

import contextlib
import sys
import types
from typing import Iterator

import numpy as np

from gtrxl_tf.environments import dmlab

INSTRUCTION = 'Pick the red object in the blue room.'

_ACTION_RANGES = np.array(
    [(-512, 512), (-512, 512), (-1, 1), (-1, 1), (0, 1), (0, 1), (0, 1)])
_FIRE = 4


@contextlib.contextmanager
def deepmind_lab(frames_per_episode: int = 40) -> Iterator[types.ModuleType]:
  """Makes `import deepmind_lab` find the stand-in, in this process.

  Yields:
    The module. Its list `labs` holds every `Lab` that was made, the oldest first.
  """
  module = types.ModuleType('deepmind_lab', doc=__doc__)
  module.labs = []

  def make(*args, **kwargs):
    lab = Lab(frames_per_episode, *args, **kwargs)
    module.labs.append(lab)
    return lab

  module.Lab = make
  absent = object()
  before = sys.modules.get('deepmind_lab', absent)
  sys.modules['deepmind_lab'] = module
  try:
    yield module
  finally:
    if before is absent:
      del sys.modules['deepmind_lab']
    else:
      sys.modules['deepmind_lab'] = before


class Lab:
  """A stand-in for `deepmind_lab.Lab`, which lacks the argument `frames_per_episode`.

  Attributes:
    level: as given, and so are `config` and `renderer`.
    seeds: the seed of every reset.
    steps: the action and the number of frames of every step since the last reset.
  """

  def __init__(self, frames_per_episode, level, observations, config=None,
               renderer='software'):
    config = {} if config is None else config
    for key, value in config.items():
      if not isinstance(key, str) or not isinstance(value, str):
        raise TypeError(f'bad argument type: {key!r} = {value!r} in config')
    folder, _, name = level.rpartition('/')
    if folder != 'contributed/dmlab30' or name not in dmlab.DMLAB_30:
      raise RuntimeError(f'Failed to init environment: no level {level!r}')
    if name in dmlab.PHOTOGRAPH_LEVELS and not config.get('datasetPath'):
      raise RuntimeError('Failed to init environment: follow instructions to download '
                         'datasets')
    self.level = level
    self.config = config
    self.renderer = renderer
    self.seeds = []
    self.steps = []
    self._observation_names = list(observations)
    self._shape = (int(config.get('height', '240')), int(config.get('width', '320')), 3)
    self._instruction = INSTRUCTION if name.startswith('language_') else ''
    self._frames_per_episode = frames_per_episode
    self._frames_left = 0

  def reset(self, seed=None) -> bool:
    # The binding takes a Python integer, not one of NumPy's, and cuts it to a C int.
    if seed is not None and not isinstance(seed, int):
      raise ValueError(f"'seed' must be int or None, was '{type(seed).__name__}'.")
    if seed is not None and not 0 <= seed < 2**31:
      raise ValueError(f'seed = {seed} is no C int >= 0, and would become another')
    self.seeds.append(seed)
    self.steps = []
    self._rng = np.random.default_rng(seed)
    self._frames_left = self._frames_per_episode
    return True

  def is_running(self) -> bool:
    return self._frames_left > 0

  def observations(self) -> dict:
    if not self.is_running():
      raise RuntimeError('Environment in wrong status for call to observations()')
    values = {
        'RGB_INTERLEAVED': self._rng.integers(256, size=self._shape, dtype=np.uint8),
        'INSTR': self._instruction,
    }
    return {name: values[name] for name in self._observation_names}

  def step(self, action, num_steps=1) -> float:
    if not isinstance(action, np.ndarray):
      raise TypeError(f'must be numpy.ndarray, not {type(action).__name__}')
    if not isinstance(num_steps, int) or num_steps < 1:
      raise TypeError(f'num_steps = {num_steps!r}: an integer >= 1 is required')
    if not self.is_running():
      raise RuntimeError('Environment in wrong status to advance.')
    if action.shape != (len(_ACTION_RANGES),):
      raise ValueError(f'action must have shape ({len(_ACTION_RANGES)})')
    if action.dtype != np.intc:
      raise ValueError('action must have dtype np.intc')
    # The binding does not check the next two; if they do not hold, what it does is
    # undefined.
    if not action.flags.c_contiguous:
      raise ValueError('action is read as if it were contiguous, and is not')
    low, high = _ACTION_RANGES.T
    if (action < low).any() or (action > high).any():
      raise ValueError(f'action = {action} is out of range')
    self.steps.append((action.tolist(), num_steps))
    frames = min(num_steps, self._frames_left)
    self._frames_left -= frames
    return float(frames * action[_FIRE])

  def close(self) -> None:
    self._frames_left = 0
