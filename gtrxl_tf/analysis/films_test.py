"""Tests of films.py, and of the pictures that small environments draw."""

import pathlib
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import dm_env
from dm_env import specs
import numpy as np
from PIL import Image

from gtrxl_tf import environments
from gtrxl_tf.analysis import films
from gtrxl_tf.settings import config


class _Images(dm_env.Environment):
  """Shows images of a given shape."""

  def __init__(self, shape, picture=None):
    self._shape = shape
    if picture is not None:
      self.render = lambda: picture

  def observation_spec(self):
    return {'image': specs.Array(self._shape, np.uint8), 'clock': specs.Array((), np.float32)}

  def action_spec(self):
    return specs.DiscreteArray(2)

  def _observation(self):
    return {'image': np.arange(np.prod(self._shape), dtype=np.uint8).reshape(self._shape),
            'clock': np.float32(0)}

  def reset(self):
    return dm_env.restart(self._observation())

  def step(self, action):
    return dm_env.termination(0.0, self._observation())


def _played(environment):
  """A film of the first of two episodes of the informed policy, and its length."""
  filmed = films.Filmed(environment)
  time_step, num_steps = filmed.reset(), 1
  while not time_step.last():
    time_step = filmed.step(environment.informed_action())
    num_steps += 1
  assert filmed.step(0).first()
  return filmed, num_steps


class FilmedTest(parameterized.TestCase):

  @parameterized.parameters(
      (lambda: environments.Numpad(size=2, episode_length=9, seed=0), (80, 80, 3)),
      (lambda: environments.TMaze(corridor_length=4, seed=0), (72, 120, 3)),
      (lambda: environments.DarkRoom(size=5, seed=1), (120, 120, 3)),
      (lambda: environments.DarkKeyToDoor(size=5, seed=1), (120, 120, 3)))
  def test_one_episode_of_the_librarys_tasks(self, make, shape):
    filmed, num_steps = _played(make())
    self.assertLen(filmed.frames, num_steps)
    for frame in filmed.frames:
      self.assertEqual((frame.shape, frame.dtype), (shape, np.uint8))
    self.assertTrue(np.any(filmed.frames[0] != filmed.frames[-1]))

  def test_it_is_otherwise_the_same_environment(self):
    maze = environments.TMaze(corridor_length=4, seed=0)
    filmed, _ = _played(maze)
    self.assertEqual(filmed.observation_spec(), maze.observation_spec())
    self.assertEqual(filmed.action_spec(), maze.action_spec())
    self.assertEqual(filmed.reward_spec(), maze.reward_spec())
    seen = environments.BatchedEnvironment([filmed]).step(np.array([0]))
    self.assertEqual(seen.observation.shape, (1, 4))
    self.assertEqual(filmed.episode_success(), maze.episode_success())
    self.assertFalse(hasattr(films.Filmed(_Images((4, 4, 3))), 'episode_success'))

  def test_an_agent_in_a_t_maze_goes_to_the_green_end(self):
    filmed, _ = _played(environments.TMaze(corridor_length=4, seed=0))
    first, last = filmed.frames[0], filmed.frames[-1]
    end, = (row for row in (0, 2) if tuple(first[24 * row + 2, 98]) == (60, 170, 80))
    for frame, row, column in (first, 1, 0), (last, end, 4):
      self.assertEqual(tuple(frame[24 * row + 12, 24 * column + 12]), (40, 100, 220))

  @parameterized.parameters(config.ConfigError('no display'), RuntimeError('no pygame'))
  def test_a_render_that_cannot_draw(self, error):
    with mock.patch.object(_Images, 'render', create=True, side_effect=error):
      filmed = films.Filmed(_Images((6, 8, 3)))
      filmed.reset()  # The image takes the place of a picture.
      self.assertLen(filmed.frames, 1)
      with self.assertRaisesRegex(films.CannotDraw, f'from render.*: .*{error}'):
        films.Filmed(_Images((5,))).reset()

  @parameterized.parameters(((6, 8, 3), 0), ((6, 8, 1), 0), ((6, 8, 4), 3), ((6, 8, 9), 6))
  def test_images_take_the_place_of_pictures(self, shape, channel):
    filmed = films.Filmed(_Images(shape))
    image = filmed.reset().observation['image']
    frame, = filmed.frames
    self.assertEqual(frame.shape, (6, 8, 3))
    np.testing.assert_array_equal(frame[..., 0], image[..., channel])

  @parameterized.parameters(
      (_Images((5,)), 'got 0 images, and from render\\(\\): no such method'),
      (_Images((5,), np.zeros([4, 4])), r'got 0 images, .* float64 \[4, 4\]'))
  def test_what_cannot_be_drawn_is_refused(self, environment, message):
    with self.assertRaisesRegex(
        config.ConfigError, f'^_Images cannot be drawn: expected .*; {message}$'):
      films.Filmed(environment).reset()


class WriteTest(parameterized.TestCase):

  @parameterized.parameters(
      ((7, 5), (225, 315)), ((200, 300), (300, 200)), ((960, 480), (160, 320)))
  def test_a_film_has_its_frames_in_a_size_that_can_be_seen(self, shape, size):
    path = pathlib.Path(self.create_tempdir().full_path) / 'videos' / 'a.gif'
    frames = [np.full((*shape, 3), 40 * i, np.uint8) for i in range(5)]
    films.write(path, frames)
    with Image.open(path) as film:
      self.assertEqual((film.format, film.n_frames, film.size), ('GIF', 5, size))
      self.assertEqual((film.info['loop'], film.info['duration']), (0, 80))


if __name__ == '__main__':
  absltest.main()
