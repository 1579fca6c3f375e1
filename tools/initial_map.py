"""Measures how close cores are to the identity before training (*GTrXL*, section 3.2).

  python -m tools.initial_map 8

This prints, for each gate and order of norms with this number of layers, what the
output of a step depends on: the correlation of outputs that have only the last input in
common, and that of outputs that have none in common. A core that begins as the
identity, and so makes its policy Markovian, has about 1 and 0. If the two numbers are
equal, the output does not show the current input.
"""

import sys
from typing import Dict

import numpy as np
import tensorflow as tf

from gtrxl_tf import cores
import tools

_MODELS = {
    'gtrxl': {}, 'gtrxl, no identity initialization': {'gate_bias': 0.0},
    **{f'gtrxl, {gate} gate': {'gate': gate}
       for gate in ('output', 'highway', 'sigtanh', 'input')},
    'trxl_i': {'variant': 'trxl_i'}, 'trxl': {'variant': 'trxl'}}
_SEEDS = 10
_ROWS, _STEPS, _WIDTH = 64, 24, 64


def measure(core: cores.Core, seed: int) -> Dict[str, float]:
  """Measures the output of the last of several steps of normal noise.

  Returns:
    The standard deviation of outputs, and the mean correlations of outputs for the same
    input after other inputs, and of outputs that share no input.
  """
  inputs, others = (
      tf.random.stateless_normal([_ROWS, _STEPS, _WIDTH], [seed, i]) for i in range(2))
  others = tf.concat([others[:, :-1], inputs[:, -1:]], axis=1)
  first, second = (core(x)[:, -1].numpy() for x in (inputs, others))
  return {'size': first.std(), 'same input': _correlation(first, second),
          'other input': _correlation(first, np.roll(first, 1, axis=0))}


def _correlation(x: np.ndarray, y: np.ndarray) -> float:
  """Returns the mean correlation of rows."""
  return float(np.mean([np.corrcoef(a, b)[0, 1] for a, b in zip(x, y)]))


def _row(num_layers: int, name: str) -> Dict[str, str]:
  found = []
  for seed in range(_SEEDS):
    tf.keras.utils.set_random_seed(seed)
    found.append(measure(cores.TransformerXL(
        num_layers=num_layers, model_dim=_WIDTH, num_heads=4, head_dim=16,
        memory_length=32, **_MODELS[name]), seed))
  return {f'{num_layers} layers': name, **{
      title: f'{np.mean([x[title] for x in found]):.2f} ± '
             f'{np.std([x[title] for x in found]):.2f}' for title in found[0]}}


if __name__ == '__main__':
  tools.print_table(_row(int(sys.argv[1]), model) for model in _MODELS)
