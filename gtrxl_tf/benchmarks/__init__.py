"""Measurements: learner steps, memory cores, and how far a run scales."""

import gtrxl_tf.before_tf_agents  # noqa: F401
