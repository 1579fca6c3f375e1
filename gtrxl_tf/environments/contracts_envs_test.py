"""Tests of what every environment of other packages must hold."""

import functools

from absl.testing import absltest

from gtrxl_tf import environments
from gtrxl_tf.environments import contracts_testing


def _gymnasium(name):
  return functools.partial(environments.GymnasiumEnvironment, name)


for _name, _make, _num_steps in (
    ('AppleMaze', lambda seed: environments.AppleMaze(episode_length=5, seed=seed), 20),
    ('Atari', lambda seed: environments.Atari(
        'breakout', max_frames=200, seed=seed), 100),
    ('StickyAtari', lambda seed: environments.Atari(
        'breakout', max_frames=200, sticky_probability=0.25, seed=seed), 100),
    ('MemoryMaze', lambda seed: environments.MemoryMaze(seed=seed), 6),
    ('MinigridMemory', lambda seed: environments.MinigridMemory(
        size=7, max_steps=20, seed=seed), 60),
    ('MinigridMemoryPixels', lambda seed: environments.MinigridMemory(
        size=7, pixels=True, max_steps=20, seed=seed), 60),
    ('NumpadMujoco', lambda seed: environments.NumpadMujoco(
        episode_length=10, seed=seed), 25),
    ('VizdoomTwoColors', lambda seed: environments.VizdoomTwoColors(
        max_steps=20, seed=seed), 60),
    ('Pendulum', _gymnasium('Pendulum-v1'), 200),
    ('CartPole', _gymnasium('CartPole-v1'), 200),
    ('Blackjack', _gymnasium('Blackjack-v1'), 200),
    ('Taxi', _gymnasium('Taxi-v4'), 200)):
  globals()[f'{_name}Test'] = contracts_testing.contract(_make, _num_steps)

if __name__ == '__main__':
  absltest.main()
