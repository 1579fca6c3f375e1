"""Policies as SavedModels: written here, read anywhere."""

import gtrxl_tf.before_tf_agents  # pylint: disable=unused-import
