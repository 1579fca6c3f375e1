"""Imports everything that a gin file may name."""

# pylint: disable=unused-import
import importlib.util

import gtrxl_tf.agents
import gtrxl_tf.collecting
import gtrxl_tf.cores
import gtrxl_tf.environments
import gtrxl_tf.environments.clues
import gtrxl_tf.environments.scores
import gtrxl_tf.networks
import gtrxl_tf.settings.sampling
import gtrxl_tf.training.offline.history_experiment
import gtrxl_tf.training.online.experiment

if importlib.util.find_spec('tf_agents'):  # The extra `online` brings it.
  import gtrxl_tf.networks.core_network
