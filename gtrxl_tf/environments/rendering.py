"""Draws grids, and lets MuJoCo draw on machines without a screen.

MuJoCo and dm_control read the environment variable MUJOCO_GL once, when they are
imported. If it is unset, they take GLFW, which needs a display.
"""

import ctypes
import functools
import os
import subprocess
import sys
from typing import Mapping, Sequence, Tuple

import numpy as np

from gtrxl_tf.environments import opengl
from gtrxl_tf.settings import config

_NO_RENDERER = ('disable', 'disabled', 'off', 'false', '0')  # As dm_control reads it.

# Colours of pictures of grids.
AGENT, GOAL, LIT, FLOOR, WALL = (
    (40, 100, 220), (60, 170, 80), (250, 205, 60), (225, 225, 225), (70, 70, 70))

Cell = Tuple[int, int]


def draw_grid(height: int, width: int, cells: Mapping[Cell, Sequence[int]],
              agent: Cell, cell_pixels: int = 24) -> np.ndarray:
  """Draws a grid of `height` rows and `width` columns, uint8 [H, W, 3].

  `cells` has colours by row and column, and the others are floor; the agent is a square
  within its cell. The side of a cell is `cell_pixels`.
  """
  image = np.full((height, width, 3), FLOOR, np.uint8)
  for cell, colour in cells.items():
    image[cell] = colour
  image = image.repeat(cell_pixels, axis=0).repeat(cell_pixels, axis=1)
  image[::cell_pixels] = image[:, ::cell_pixels] = WALL
  row, column = (cell_pixels * x for x in agent)
  edge = cell_pixels // 4
  image[row + edge:row + cell_pixels - edge + 1,
        column + edge:column + cell_pixels - edge + 1] = AGENT
  return image


def choose_backend() -> None:
  """Sets MUJOCO_GL, if it is unset and there is no display, to 'egl' or else 'osmesa'.

  Must be called before mujoco or dm_control is imported. Without either it stays unset:
  physics works, images do not.
  """
  if os.environ.get('MUJOCO_GL') or os.environ.get('DISPLAY'):
    return
  if _backend():
    os.environ['MUJOCO_GL'] = _backend()


def require_backend(needed_by: str) -> None:
  """Raises an error if MuJoCo cannot draw here, even after `choose_backend`."""
  backend = os.environ.get('MUJOCO_GL')
  if backend in _NO_RENDERER:
    raise config.ConfigError(
        f'{needed_by} cannot draw images with MUJOCO_GL={backend}: '
        'expected egl, osmesa or glfw')
  if not backend and not os.environ.get('DISPLAY'):
    raise config.ConfigError(
        f'{needed_by} cannot draw images: found no OpenGL for MuJoCo, expected '
        "EGL or OSMesa, as by Debian's `apt-get install libosmesa6`, or a display")


@functools.cache
def _backend() -> str:
  """Returns what `opengl.backend` returns in a process of its own."""
  backend, *libraries = subprocess.run(
      [sys.executable, '-I', opengl.__file__], stdout=subprocess.PIPE, text=True,
      check=False).stdout.splitlines() or ['']
  # TensorFlow 2.21 offers its LLVM to all libraries. Mesa would take it in place of its own,
  # and either would crash, unless Mesa is first loaded as here.
  for library in libraries:
    ctypes.CDLL(library, os.RTLD_NOW | os.RTLD_DEEPBIND)
  return backend
