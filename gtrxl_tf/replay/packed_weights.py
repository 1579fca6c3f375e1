"""The weights that the learner sends to the actors, packed in vectors."""

from __future__ import annotations

import functools
from typing import List, Sequence

import numpy as np
import tensorflow as tf

from gtrxl_tf import nests


def specs(variables: Sequence[tf.Variable], half: bool = False) -> List[tf.TensorSpec]:
  """Returns the specs of what is sent for variables.

  Args:
    variables: the variables of the network.
    half: whether weights have 16 bits, see `nests.to_half`. Variables that are not
      trained, such as statistics of observations, are not rounded: a mean may be far
      larger than the deviation from it.
  """
  return [tf.TensorSpec(v.shape, tf.uint16 if _is_halved(v, half) else v.dtype)
          for v in variables]


def _is_halved(variable: tf.Variable, half: bool) -> bool:
  return half and variable.trainable and variable.dtype == tf.float32


def vectors(weights: Sequence[tf.TensorSpec]) -> List[tf.TensorSpec]:
  """Returns the specs of weights as `Values.read` packs them, a vector for each dtype."""
  sizes = {}
  for spec in weights:
    sizes[spec.dtype] = sizes.get(spec.dtype, 0) + spec.shape.num_elements()
  return [tf.TensorSpec([size], dtype) for dtype, size in sizes.items()]


def item_specs(weights: Sequence[tf.TensorSpec]) -> List[tf.TensorSpec]:
  """Returns the specs of an item: its step, whether it is the last, and the vectors."""
  return [tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.bool), *vectors(weights)]


class Values:
  """The values of a network's variables, packed as `nests.Packing` does."""

  def __init__(self, variables: Sequence[tf.Variable], half: bool = False):
    """Traces how to read and assign them; see `specs`."""
    variables = list(variables)
    packing = nests.Packing(specs(variables, half))
    self._read = tf.function(lambda: packing.pack([
        nests.to_half(v.value()) if _is_halved(v, half) else v.value()
        for v in variables]), autograph=False)

    # It does not refer to `self`. Otherwise the client of a channel would outlive it until
    # garbage is collected, and new clients would share its broken connection.
    @functools.partial(tf.function, autograph=False)
    def assign(vectors):
      for variable, value in zip(variables, packing.unpack(vectors)):
        variable.assign(nests.from_half(value) if _is_halved(variable, half) else value)

    self._assign = assign

  def read(self) -> List[np.ndarray]:
    """Returns the vectors of the variables' values."""
    tensors = self._read()
    vectors = [x.numpy() for x in tensors]
    nests.free_attributes(tensors)
    return vectors

  def assign(self, vectors: Sequence[np.ndarray]) -> None:
    """Assigns what `read` returned to the variables."""
    tensors = list(map(tf.constant, vectors))
    self._assign(tensors)
    nests.free_attributes(tensors)
