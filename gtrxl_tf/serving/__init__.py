"""Export of policies as SavedModels."""

import gtrxl_tf.before_tf_agents  # pylint: disable=unused-import
