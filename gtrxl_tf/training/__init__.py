"""What runs: the experiment's parts, the learner, the actors, and who watches them."""

import gtrxl_tf.before_tf_agents  # pylint: disable=unused-import
