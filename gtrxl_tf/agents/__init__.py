"""Agents: V-MPO, and those that learn from recorded episodes."""

import gtrxl_tf.before_tf_agents  # pylint: disable=unused-import
