"""Plays in an environment with random actions, and says what training would meet.

  gtrxl check_env --env=CartPole-v1

It prints the spaces, how each observation is embedded, episodes, steps a second, and a
line for each thing that would go wrong; its exit code is 1 if there is any.
"""

import sys

from absl import flags

from gtrxl_tf.launch import program

_ENV = flags.DEFINE_string(
    'env', None, 'The id of a gymnasium task, as CartPole-v1 or my_module:MyTask-v0, or '
    'the name of a class in gtrxl_tf.environments.', required=True)


def main() -> None:
  from gtrxl_tf.launch import checking  # pylint: disable=import-outside-toplevel
  sys.exit(bool(checking.check_env(_ENV.value)))


if __name__ == '__main__':
  program.run(main)
