"""Checks of an environment before training: what an agent sees, and what would go wrong."""

import contextlib
import logging
import time
from typing import Any, Callable, Iterator, List

import numpy as np
import tree

from gtrxl_tf import environments
from gtrxl_tf.environments import specs as specs_lib
from gtrxl_tf.launch import prepare
from gtrxl_tf.settings import config
from gtrxl_tf.settings import gin_files
from gtrxl_tf.settings import seeds
from gtrxl_tf.settings import shortcuts
from gtrxl_tf.training import experiment as experiment_lib

_KINDS = {'image': 'an image, by convolutions', 'bit': 'bits, as they are',
          'index': 'one-hot vectors', 'row': 'rows of a learned table',
          'number': 'numbers'}
_SLOW = 200  # Steps a second, below which a run of 200,000 takes more than a quarter hour.
_SMALL = 0.01  # Rewards, see gymnasium_cpu.gin.


def check_env(environment: Any, seconds: float = 5.0,
              show: Callable[[str], None] = print) -> List[str]:
  """Plays episodes with random actions, and says what training would meet.

  It shows the spaces, the episodes and the speed, and what would go wrong, with what to do.

  Args:
    environment: the id of a gymnasium task, the name of a class in
      `gtrxl_tf.environments`, or a class or a function that makes an environment.
    seconds: how long to play; at least one episode, and at most 20,000 steps.
    show: called with each line.

  Returns:
    The lines of what would go wrong; none if nothing was found.
  """
  found: List[str] = []
  with gin_files.own_gin(), _warnings_in(found):
    try:
      files, lines = shortcuts.gin(environment)
      experiment = prepare.prepare(files, lines, check=False)
      _show_specs(experiment, show)
      _play(experiment, seconds, show, found)
      if not found:
        experiment.check()  # It makes the network, and computes a loss.
    except (config.ConfigError, environments.EnvironmentFailed) as error:
      found.append(config.one_line(error))
  for line in found or ['Nothing was found that would go wrong.']:
    show(f'- {line}' if found else line)
  return found


def _show_specs(experiment: experiment_lib.Experiment, show: Callable[[str], None]
                ) -> None:
  for kind, nest in (('observation', experiment.observation_spec),
                     ('action', experiment.action_spec)):
    for path, spec in tree.flatten_with_path(nest):
      name = kind + ''.join(f'[{key!r}]' for key in path)
      low, high = specs_lib.bounds(spec)
      text = (f'{name}: {spec.dtype.name} {list(spec.shape)}, {np.min(low):g} to '
              f'{np.max(high):g}' if low.size else f'{name}: empty')
      if path[-1:] == (specs_lib.MASK,):
        text += ', masks actions'
      elif kind == 'observation':
        text += f', embedded as {_KINDS[specs_lib.kind(spec)]}'
      show(text)


def _play(experiment: experiment_lib.Experiment, seconds: float,
          show: Callable[[str], None], found: List[str]) -> None:
  """Plays in two environments of one seed, which should be equal."""
  random, returns, lengths, rewards = np.random.default_rng(0), [], [], []
  pair = [experiment.make_environments(1, seeds.Stream.SPECS) for _ in range(2)]
  try:
    pair[0].watched = ('image', 'number')
    seen = [x.reset() for x in pair]
    taken = ended = 0  # Steps so far, and when the last episode ended.
    busy, equal, end = 0.0, True, time.monotonic() + seconds
    while taken < 20_000 and (time.monotonic() < end or not lengths and taken < 2_000):
      if equal and not all(map(np.array_equal, *(
          tree.flatten((x.observation, x.reward, x.step_type)) for x in seen))):
        equal = False
        found.append('two environments with one seed differ after equal actions, so that '
                     'runs cannot be repeated: expected random numbers from the seed, as '
                     'from self.np_random after super().reset(seed=seed)')
      if seen[0].last()[0]:
        returns.append(float(seen[0].episode_return[0]))
        lengths.append(taken - ended)
        ended = taken
      action = tree.map_structure(lambda x: x[np.newaxis], environments.random_action(
          experiment.action_spec,
          tree.map_structure(lambda x: x[0], seen[0].observation), random))
      taken += not seen[0].last()[0]
      began = time.monotonic()
      step = pair[0].step(action)
      busy += time.monotonic() - began
      rewards.append(float(step.reward[0]))
      seen = [step, pair[1].step(action) if equal else seen[1]]
  finally:
    for x in pair:
      x.close()
  speed = taken / max(busy, 1e-9)
  if lengths:
    show(f'{len(lengths):,} episodes of {np.mean(lengths):.0f} steps (up to '
         f'{max(lengths):,}), return {np.mean(returns):.2f} with random actions')
  else:
    found.append(f'no episode ended in {taken:,} steps: if they never do, '
                 'Experiment.wrappers = [@StepLimit] with StepLimit.steps cuts them off')
  show(f'{speed:,.0f} steps a second')
  most = max(map(abs, rewards), default=0)
  if most == 0:
    found.append(f'every reward was 0 in {taken:,} steps: random actions, with which '
                 'learning begins, must sometimes be rewarded')
  elif most < _SMALL:
    found.append(f'no reward was larger than {most:.2g}: Experiment.wrappers = '
                 '[@ScaleReward] with ScaleReward.factor makes them about 1')
  if speed < _SLOW:
    found.append(f'{speed:.0f} steps a second: 200,000 steps take '
                 f'{200_000 / speed / 3600:.1f} hours for one actor: expected several, by '
                 'num_actors')


@contextlib.contextmanager
def _warnings_in(found: List[str]) -> Iterator[None]:
  """Adds this library's warnings to a list, once each, instead of showing them."""
  def add(record: logging.LogRecord) -> None:
    if (text := record.getMessage()) not in found:
      found.append(text)

  handler, logger = logging.Handler(logging.WARNING), logging.getLogger('absl')
  handler.emit = add
  before = logger.handlers[:], logger.propagate
  logger.handlers[:], logger.propagate = [handler], False
  try:
    yield
  finally:
    logger.handlers[:], logger.propagate = before
