"""Plays episodes, and films them as animated pictures."""

import io
import math
import pathlib
from typing import Any, List, NamedTuple

import dm_env
import numpy as np
from PIL import Image
import tensorflow as tf
import tree

from gtrxl_tf import environments
from gtrxl_tf.agents import decision as decision_agent
from gtrxl_tf.agents import policy as policy_lib
from gtrxl_tf.environments import batched_environment
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import decision
from gtrxl_tf.settings import config
from gtrxl_tf.settings import seeds
from gtrxl_tf.training import evaluation
from gtrxl_tf.training import experiment as experiment_lib
from gtrxl_tf.training import rollout as rollout_lib

WIDTH, HEIGHT = 480, 320  # The most pixels of a film.
MOST_FRAMES = 1000  # The frames of a film; later steps of an episode are left out.
_FRAMES_PER_SECOND = 12
_QUALITY = 60  # WebP's lossless films would take three times as much.


class CannotDraw(config.ConfigError):
  """An environment has no picture of itself."""


class Filmed(environments.Wrapper):
  """An environment that keeps the pictures of its first episode, uint8 [H, W, 3].

  A picture is what the environment's `render()` returns or, without this method, the
  one image in the observation.
  """

  def __init__(self, environment: dm_env.Environment):
    super().__init__(environment)
    self.frames: List[np.ndarray] = []
    self._is_over = False

  def reset(self) -> dm_env.TimeStep:
    self.frames, self._is_over = [], False
    return self._filmed(super().reset())

  def step(self, action) -> dm_env.TimeStep:
    return self._filmed(super().step(action))

  def _filmed(self, time_step: dm_env.TimeStep) -> dm_env.TimeStep:
    if not self._is_over and len(self.frames) < MOST_FRAMES:
      self.frames.append(_picture(self._environment, time_step.observation))
    self._is_over |= time_step.last()
    return time_step


def _picture(environment: dm_env.Environment, observation: Any) -> np.ndarray:
  """Returns a picture of the environment's current state, uint8 [H, W, 3]."""
  picture, why = None, 'no such method'
  try:
    if callable(getattr(environment, 'render', None)):
      picture = np.asarray(environment.render())
      why = f'{picture.dtype} {list(picture.shape)}'
  except batched_environment.ERRORS as error:  # A package may be missing.
    why = config.described(error)
  if picture is None or not _is_image(picture) or picture.shape[-1] != 3:
    images = [x for x in map(np.asarray, tree.flatten(observation)) if _is_image(x)]
    if len(images) != 1:
      raise CannotDraw(
          f'{type(environment).__name__} cannot be drawn: expected a method '
          'render() that returns uint8 [H, W, 3], or one image in the observation; got '
          f'{len(images)} images, and from render(): {why}')
    picture, = images
  channels = picture.shape[-1]
  newest = 1 if channels in (1, 4) else 3  # The last of stacked frames is the newest.
  return np.broadcast_to(
      picture[..., channels - newest:], (*picture.shape[:2], 3)).copy()


def _is_image(x: np.ndarray) -> bool:
  return (x.dtype == np.uint8 and x.ndim == 3 and min(x.shape) > 0
          and (x.shape[-1] in (1, 4) or x.shape[-1] % 3 == 0))


class Episode(NamedTuple):
  """The first episode that a policy played in an environment, of T recorded steps.

  Attributes:
    frames: a picture of each step, uint8 [H, W, 3]; none if it was not filmed.
    action: nest of [T, ...]; what the policy answered to the last step had no effect.
    reward: [T], the reward before each action.
    episode_return: the return of the whole episode; NaN if it was cut off.
    success: 1 or 0; NaN if the environment does not report it.
    inputs: what a network saw, [1, T, ...], without actions where these are tokens; ()
      if it is not known, as with a SavedModel.
  """
  task: int
  frames: List[np.ndarray]
  action: Any
  reward: np.ndarray
  episode_return: float
  success: float
  inputs: Any = ()


def play(experiment: experiment_lib.Experiment, policy: Any, count: int,
         film: bool = True, most_steps: float = math.inf) -> List[Episode]:
  """Plays one episode in each of `count` environments; the tasks take turns.

  The policy may be a SavedModel. Episodes are cut off after `most_steps`. Raises a
  `CannotDraw` if there are no pictures to `film`.
  """
  filmed: List[Filmed] = []

  def wrap(environment: dm_env.Environment) -> Filmed:
    filmed.append(Filmed(environment))
    # If it cannot be drawn, this raises a CannotDraw, not an EnvironmentFailed.
    filmed[-1].reset()
    return filmed[-1]

  environment = experiment.make_environments(
      count, seeds.Stream.EVALUATION, **({'wrap': wrap} if film else {}))
  rollout = rollout_lib.Rollout(
      environment, policy.action, policy.get_initial_state(count))
  steps, ends, number = [], {}, 0
  while len(ends) < count and number < most_steps:
    before = rollout.policy_state
    seen, policy_step = rollout.step()
    number += 1
    if number <= MOST_FRAMES:
      steps.append((seen, policy_step.action, _inputs(seen, before, rollout.policy_state)))
    for i in np.flatnonzero(seen.last()):
      ends.setdefault(int(i), (number, seen))
    if not ends:
      evaluation.warn_of_no_end(number)
  environment.close()
  episodes = []
  for i in range(count):
    length, last = ends.get(i, (number, None))
    recorded, action, inputs = tree.map_structure(
        lambda *x, i=i: np.stack([y[i] for y in x]), *steps[:length])
    episodes.append(Episode(
        int(environment.tasks[i]), filmed[i].frames[:length] if film else [], action,
        recorded.reward, float(last.episode_return[i]) if last else math.nan,
        float(last.episode_success[i]) if last else math.nan,
        tf.nest.map_structure(lambda x: tf.constant(x)[tf.newaxis], inputs)))
  return episodes


def _inputs(seen: environments.BatchedTimeStep, before: Any, after: Any) -> Any:
  """Returns what a network saw of a step, from its policy's state before and after."""
  if isinstance(before, policy_lib.PolicyState):
    action = tf.nest.map_structure(lambda x: x.numpy(), before.previous_action)
    return actor_critic.NetworkInputs(
        seen.observation, action, seen.reward, seen.first())
  if isinstance(after, decision_agent.DecisionState):
    return decision.Segments(
        after.return_to_go.numpy(), seen.observation, (), seen.first(),
        after.steps.numpy() - 1)
  return ()


def scaled(frame: np.ndarray) -> Image.Image:
  """Enlarges a frame by a whole number, or shrinks it, to fit into a film."""
  image = Image.fromarray(frame)
  scale = min(WIDTH // image.width, HEIGHT // image.height)
  if scale:
    return image.resize(
        (image.width * scale, image.height * scale), Image.Resampling.NEAREST)
  image.thumbnail((WIDTH, HEIGHT))
  return image


def write(path: pathlib.Path, frames: List[np.ndarray]) -> None:
  """Writes pictures, uint8 [H, W, 3], as an animated GIF that repeats."""
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_bytes(encode([scaled(frame) for frame in frames], 'GIF'))


def encode(images: List[Image.Image], form: str) -> bytes:
  """Returns pictures as an animation that repeats, in Pillow's format `form`."""
  film = io.BytesIO()
  images[0].save(film, form, save_all=True, append_images=images[1:], loop=0,
                 duration=1000 // _FRAMES_PER_SECOND, quality=_QUALITY)
  return film.getvalue()
