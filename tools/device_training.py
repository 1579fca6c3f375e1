"""Trains on one device with the modules of `export_training.py`, without TensorFlow.

  python -m tools.device_training FOLDER PLATFORM STEPS SEED

PLATFORM is `cpu` or `cuda`. For STEPS environment steps the program plays an unroll in
all environments and takes a learner step on each part of it, in turns. Every few seconds
it prints a row of CSV: the mean return of the episodes that ended since the row before,
and the learner's newest metrics.

It needs jax 0.4.34, 0.6.2 or 0.11.2, dm_env, dm-tree and gin-config.
"""

import collections
from concurrent import futures
import json
import lzma
import pathlib
import sys
import time
from typing import Any, Dict, List

import jax  # pylint: disable=import-error
import numpy as np
import tree

from gtrxl_tf import environments
from tools import xla_runner

_PERIOD_SECONDS = 4  # Between two rows.


class Program:
  """Modules on a device, and the arrays there that they read and write, by name."""

  def __init__(self, folder: pathlib.Path, device: Any, seed: int):
    """Compiles the modules, and draws weights by the seed."""
    self.settings = json.loads((folder / 'program.json').read_text(encoding='utf-8'))
    self._device = device
    self._modules = modules = self.settings.pop('modules')
    with futures.ThreadPoolExecutor() as pool:
      self._compiled = dict(zip(modules, pool.map(lambda name: xla_runner.Module(
          lzma.decompress((folder / f'{name}.hlo.xz').read_bytes()), device), modules)))
    # What `collect` takes from before and after each step, and the values' names.
    self._kept: Dict[str, Dict[str, str]] = collections.defaultdict(dict)
    for path in modules['collect']['inputs']:
      when, step, name = path.split('/', 2)
      self._kept[f'{when}/{step}'][path] = name
    random = np.random.default_rng(seed)
    self.values: Dict[str, Any] = {}
    for name, x in self.settings.pop('values').items():
      low, high, shape = x['low'], x['high'], x['shape']
      drawn = np.full(shape, low) if low == high else random.uniform(low, high, shape)
      self.put(name, drawn.astype(x['dtype']))

  def put(self, name: str, value: np.ndarray) -> None:
    """Copies an array to the device."""
    self.values[name] = jax.device_put(value, self._device)

  def run(self, name: str) -> None:
    """Starts a module; its results replace values."""
    inputs, module = self._modules[name]['inputs'], self._compiled[name]
    returned = iter(self._modules[name]['outputs'])
    for i, x in enumerate(module.run([self.values[x] for x in inputs])):
      replaced = module.replaced.get(i)
      self.values[next(returned) if replaced is None else inputs[replaced]] = x

  def keep(self, when: str, step: int) -> None:
    """Keeps what `collect` takes from before or after a step."""
    for path, name in self._kept[f'{when}/{step}'].items():
      self.values[path] = self.values[name]


class Trainer:
  """Acts and learns in turns."""

  def __init__(self, program: Program, seed: int):
    """Resets the environments."""
    settings, random = program.settings, np.random.default_rng([seed, 1])
    self._program, self._random, self._seed = program, random, seed
    self._num = settings['environments']
    make = getattr(environments, settings['environment'])
    self._environment = environments.BatchedEnvironment([
        make(seed=x, **settings['settings'])
        for x in random.integers(2**31, size=self._num).tolist()], seed=seed)
    self._acting_steps = self._learner_steps = self.environment_steps = 0
    self._returns: List[float] = []
    program.run('publish')
    program.run('remember')
    self._seen = self._environment.reset(
        random.integers(settings['max_head_start'], size=self._num, endpoint=True))

  def _put_seen(self, step: int) -> None:
    seen = self._seen
    leaves = seen.step_type, seen.reward, seen.discount, *tree.flatten(seen.observation)
    self._program.put('time_step', np.concatenate(
        [x.ravel() for x in leaves], dtype=np.float32))
    self._program.keep('before', step)

  def act(self) -> None:
    """Plays an unroll."""
    program, unroll_length = self._program, self._program.settings['unroll_length']
    for step in range(unroll_length):
      self._put_seen(step)
      program.put('noise', np.array([self._seed, self._acting_steps], np.int32))
      program.run('act')
      program.keep('after', step)
      action = np.asarray(program.values['action'])
      if program.values['must_move']:
        program.run('move')
      self._acting_steps += 1
      self.environment_steps += self._num
      self._seen = self._environment.step(action)
      returns = self._seen.episode_return
      self._returns += returns[np.isfinite(returns)].tolist()
    self._put_seen(unroll_length)
    program.run('collect')

  def learn(self) -> None:
    """Takes learner steps on the unroll, remembers it, and renews keys and values."""
    program, settings = self._program, self._program.settings
    order = self._random.permutation(self._num).astype(np.int32)
    for rows in order.reshape(-1, settings['batch_size']):
      program.put('rows', rows)
      for _ in range(settings['num_epochs']):
        program.run('learn')
      self._learner_steps += 1
      if self._learner_steps % settings['publish_period'] == 0:
        program.run('publish')
    program.run('remember')

  def row(self) -> Dict[str, float]:
    """Returns a row of the output, and begins the next."""
    program, returns, self._returns = self._program, self._returns, []
    return {'environment_steps': self.environment_steps,
            'learner_steps': self._learner_steps, 'return': np.mean(returns or np.nan),
            **dict(zip(program.settings['metrics'], np.asarray(program.values['metrics'])))}


def main(folder: str, platform: str, steps: str, seed: str) -> None:
  """Compiles the modules and trains."""
  jax.config.update('jax_enable_x64', True)  # Or int64 becomes int32.
  device = jax.devices(platform)[0]
  trainer = Trainer(Program(pathlib.Path(folder), device, int(seed)), int(seed))
  due, began = 0.0, time.perf_counter()
  while trainer.environment_steps < int(steps):
    trainer.act()
    trainer.learn()
    elapsed = time.perf_counter() - began
    if elapsed >= due or trainer.environment_steps >= int(steps):
      row = {'seconds': elapsed, **trainer.row()}
      if not due:
        print(*row, sep=',')
      print(*(f'{x:.6g}' for x in row.values()), sep=',', flush=True)
      due = elapsed + _PERIOD_SECONDS


if __name__ == '__main__':
  main(*sys.argv[1:])
