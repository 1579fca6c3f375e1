"""Draws grids, and lets MuJoCo draw on machines without a screen.

MuJoCo and dm_control read the environment variable MUJOCO_GL once, when they are
imported. If it is unset, they take GLFW, which needs a display.
"""

import ctypes
import os
from typing import Mapping, Sequence, Tuple

import numpy as np

from gtrxl_tf.settings import config

_NO_RENDERER = ('disable', 'disabled', 'off', 'false', '0')  # As dm_control reads it.

# From the EGL extension EXT_platform_device.
_EGL_PLATFORM_DEVICE_EXT = 0x313F


# Colours of pictures of grids.
AGENT, GOAL, LIT, FLOOR, WALL = (
    (40, 100, 220), (60, 170, 80), (250, 205, 60), (225, 225, 225), (70, 70, 70))

Cell = Tuple[int, int]


def draw_grid(height: int, width: int, cells: Mapping[Cell, Sequence[int]],
              agent: Cell, cell_pixels: int = 24) -> np.ndarray:
  """Draws a grid of cells, uint8 [H, W, 3].

  Args:
    height: rows of cells.
    width: columns of cells.
    cells: colours of cells, by row and column; the others are floor.
    agent: row and column of the agent, a square within its cell.
    cell_pixels: side of a cell, in pixels.
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
  """Sets MUJOCO_GL to a backend that draws without a display, if there is one.

  Must be called before mujoco or dm_control is imported. If MUJOCO_GL is set, it stays
  as it is; if there is a display, the choice is left to dm_control. Otherwise MUJOCO_GL
  becomes 'egl' if EGL finds a usable device, else 'osmesa' if that library is
  installed. If neither is there it stays unset: physics works, images do not.
  """
  if os.environ.get('MUJOCO_GL') or os.environ.get('DISPLAY'):
    return
  if _egl_has_device():
    os.environ['MUJOCO_GL'] = 'egl'
  elif _loads('libOSMesa.so.8') or _loads('libOSMesa.so.6'):
    os.environ['MUJOCO_GL'] = 'osmesa'


def require_backend(needed_by: str) -> None:
  """Raises an error if MuJoCo cannot draw here; called after `choose_backend`.

  Args:
    needed_by: the environment's name, for the error.
  """
  backend = os.environ.get('MUJOCO_GL')
  if backend in _NO_RENDERER:
    raise config.ConfigError(
        f'{needed_by} cannot draw images with MUJOCO_GL={backend}: '
        'expected egl, osmesa or glfw')
  if not backend and not os.environ.get('DISPLAY'):
    raise config.ConfigError(
        f'{needed_by} cannot draw images: found no OpenGL for MuJoCo, expected '
        "EGL or OSMesa, as by Debian's `apt-get install libosmesa6`, or a display")


def _loads(library: str) -> bool:
  try:
    ctypes.CDLL(library)
  except OSError:
    return False
  return True


def _egl_has_device() -> bool:
  """Returns whether dm_control's EGL backend will find a display.

  Finding the libraries is not enough: without a driver, or with a device that may not
  be opened, they load but fail when used, and then importing dm_control fails.
  """
  if not _loads('libGL.so.1'):
    return False
  try:
    egl = ctypes.CDLL('libEGL.so.1')
    egl.eglGetProcAddress.restype = ctypes.c_void_p
  except (OSError, AttributeError):
    return False
  query_devices = egl.eglGetProcAddress(b'eglQueryDevicesEXT')
  get_display = egl.eglGetProcAddress(b'eglGetPlatformDisplayEXT')
  if not query_devices or not get_display:
    return False
  query_devices = ctypes.CFUNCTYPE(
      ctypes.c_uint, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p),
      ctypes.POINTER(ctypes.c_int))(query_devices)
  get_display = ctypes.CFUNCTYPE(
      ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p)(get_display)

  devices, num_devices = (ctypes.c_void_p * 10)(), ctypes.c_int()
  if not query_devices(len(devices), devices, ctypes.byref(num_devices)):
    return False
  for device in devices[:num_devices.value]:
    display = get_display(_EGL_PLATFORM_DEVICE_EXT, device, None)
    if display and egl.eglInitialize(ctypes.c_void_p(display), None, None):
      return True
  return False
