"""Agents out of checkpoints."""

import pathlib

import tensorflow as tf

from gtrxl_tf import config


def restore_agent(folder: pathlib.Path, agent: tf.Module) -> None:
  """Gives an agent the values it has in the newest checkpoint of a folder.

  Args:
    folder: `checkpoints/` of a run.
    agent: with its variables.

  Raises:
    FileNotFoundError: there is none.
    config.ConfigError: it is of another agent, or of networks of other sizes.
  """
  path = tf.train.latest_checkpoint(str(folder))
  if path is None:
    raise FileNotFoundError(f'no checkpoint in {folder}')
  checkpoint = tf.train.Checkpoint(agent=agent)
  try:
    # Partial, as what only training needs is there too.
    checkpoint.restore(path).expect_partial().assert_existing_objects_matched()
  except (ValueError, AssertionError) as error:
    raise config.ConfigError(
        f'{path} is of another agent than these settings make') from error
