"""What all kinds of training share: experiment, trainer, learner, checkpoints."""

import gtrxl_tf.before_tf_agents  # noqa: F401
