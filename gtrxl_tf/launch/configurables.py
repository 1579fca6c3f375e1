"""Imports everything that a gin file may name."""

# pylint: disable=unused-import
import importlib.util

import gtrxl_tf.agents.cql
import gtrxl_tf.agents.cql_sac
import gtrxl_tf.agents.decision
import gtrxl_tf.agents.distillation
import gtrxl_tf.agents.ppo
import gtrxl_tf.agents.r2d2
import gtrxl_tf.agents.tap
import gtrxl_tf.agents.vmpo
import gtrxl_tf.collecting
import gtrxl_tf.collecting.episodes
import gtrxl_tf.cores
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
import gtrxl_tf.environments.scores
import gtrxl_tf.environments.vizdoom_two_colors
import gtrxl_tf.networks
import gtrxl_tf.settings.sampling
import gtrxl_tf.training.offline.experiment
import gtrxl_tf.training.offline.history_experiment
import gtrxl_tf.training.offline.history_samplers
import gtrxl_tf.training.online.experiment

if importlib.util.find_spec('tf_agents'):  # The extra `online` brings it.
  import gtrxl_tf.networks.core_network
