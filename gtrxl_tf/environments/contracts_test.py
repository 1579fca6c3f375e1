"""Tests of what every environment of this library alone must hold."""

from absl.testing import absltest

from gtrxl_tf import environments
from gtrxl_tf.environments import contracts_testing

for _name, _make in {
    'ActionRecall': lambda seed: environments.ActionRecall(delay=2, seed=seed),
    'ActionAssociativeRetrieval': lambda seed: environments.ActionAssociativeRetrieval(
        delay=2, min_delay=0, seed=seed),
    'AppleMaze': lambda seed: environments.AppleMaze(
        observation='state', episode_length=10, seed=seed),
    'Numpad': lambda seed: environments.Numpad(episode_length=10, seed=seed),
    'TMaze': lambda seed: environments.TMaze(3, penalty=1.0, seed=seed),
    'TMazeOfManyLengths': lambda seed: environments.TMaze(
        4, min_corridor_length=1, flag='at', seed=seed)}.items():
  globals()[f'{_name}Test'] = contracts_testing.contract(_make, num_steps=50)

if __name__ == '__main__':
  absltest.main()
