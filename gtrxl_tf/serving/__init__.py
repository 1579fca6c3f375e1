"""Export of policies as SavedModels."""

import gtrxl_tf.before_tf_agents  # noqa: F401
