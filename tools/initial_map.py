"""Measures how close cores are to the identity before training (*GTrXL*, section 3.2).

  python -m tools.initial_map 8

This prints, for each gate and order of norms with this number of layers, what the
output of a step depends on: the correlation of outputs that have only the last input in
common, and that of outputs that have none in common. A core that begins as the
identity, and so makes its policy Markovian, has about 1 and 0. If the two numbers are
equal, the output does not show the current input.
"""

import sys
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from gtrxl_tf import cores

_MODELS = {
    'gtrxl': {}, 'gtrxl, no identity initialization': {'gate_bias': 0.0},
    **{f'gtrxl, {gate} gate': {'gate': gate}
       for gate in ('output', 'highway', 'sigtanh', 'input')},
    'trxl_i': {'variant': 'trxl_i'}, 'trxl': {'variant': 'trxl'}}
_SEEDS = 10
_ROWS, _STEPS, _WIDTH = 64, 24, 64


class InitialMap(NamedTuple):
  """What a core's outputs depend on.

  Attributes:
    size: the standard deviation of outputs.
    same_input: the mean correlation of outputs for the same input after other inputs.
    other_input: the mean correlation of outputs that share no input.
  """
  size: float
  same_input: float
  other_input: float


def measure(core: cores.Core, seed: int) -> InitialMap:
  """Measures the output of the last of several steps of normal noise."""
  inputs, others = (
      tf.random.stateless_normal([_ROWS, _STEPS, _WIDTH], [seed, i]) for i in range(2))
  others = tf.concat([others[:, :-1], inputs[:, -1:]], axis=1)
  first, second = (core(x)[:, -1].numpy() for x in (inputs, others))
  return InitialMap(float(first.std()), _correlation(first, second),
                    _correlation(first, np.roll(first, 1, axis=0)))


def _correlation(x: np.ndarray, y: np.ndarray) -> float:
  """Returns the mean correlation of rows."""
  return float(np.mean([np.corrcoef(a, b)[0, 1] for a, b in zip(x, y)]))


def main() -> None:
  num_layers = int(sys.argv[1])
  print(f'| {num_layers} layers | size | same input | other input |')
  print('|---|--:|--:|--:|')
  for name, settings in _MODELS.items():
    found = []
    for seed in range(_SEEDS):
      tf.keras.utils.set_random_seed(seed)
      found.append(measure(cores.TransformerXL(
          num_layers=num_layers, model_dim=_WIDTH, num_heads=4, head_dim=16,
          memory_length=32, **settings), seed))
    print(f'| {name} | ' + ' | '.join(
        f'{mean:.2f} ± {deviation:.2f}' for mean, deviation in zip(
            np.mean(found, axis=0), np.std(found, axis=0))) + ' |')


if __name__ == '__main__':
  main()
