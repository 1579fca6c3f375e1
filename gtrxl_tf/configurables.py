"""Imports everything that a gin file may name."""

# pylint: disable=unused-import
import importlib.util

import gtrxl_tf.agents.cql.agent
import gtrxl_tf.agents.cql.network
import gtrxl_tf.agents.cql.policy
import gtrxl_tf.agents.cql.sac
import gtrxl_tf.agents.decision.agent
import gtrxl_tf.agents.decision.network
import gtrxl_tf.agents.decision.policy
import gtrxl_tf.agents.distillation.agent
import gtrxl_tf.agents.distillation.network
import gtrxl_tf.agents.distillation.policy
import gtrxl_tf.agents.ppo.agent
import gtrxl_tf.agents.vmpo.agent
import gtrxl_tf.analysis.scores
import gtrxl_tf.cores
import gtrxl_tf.datasets.collect
import gtrxl_tf.environments
import gtrxl_tf.environments.apple_maze
import gtrxl_tf.environments.atari
import gtrxl_tf.environments.bsuite
import gtrxl_tf.environments.clues
import gtrxl_tf.environments.dmlab
import gtrxl_tf.environments.gymnasium
import gtrxl_tf.environments.memory_maze
import gtrxl_tf.environments.minigrid_memory
import gtrxl_tf.environments.numpad_mujoco
import gtrxl_tf.environments.vizdoom_two_colors
import gtrxl_tf.networks
import gtrxl_tf.offline.experiment
import gtrxl_tf.offline.history_experiment
import gtrxl_tf.offline.history_schemes
import gtrxl_tf.online.experiment
import gtrxl_tf.sampling
import gtrxl_tf.sources

if importlib.util.find_spec('tf_agents'):  # The extra `online` brings it.
  import gtrxl_tf.networks.core_network
