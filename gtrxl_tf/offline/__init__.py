"""Offline training: a learner reads datasets of episodes or of learning histories."""

import gtrxl_tf.before_tf_agents  # noqa: F401
