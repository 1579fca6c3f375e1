"""Online training: actors write unrolls to a queue, from which a learner reads."""

import gtrxl_tf.before_tf_agents  # noqa: F401
