"""The code that all training shares: experiment, trainer, learner, checkpoints."""

import gtrxl_tf.before_tf_agents  # noqa: F401
