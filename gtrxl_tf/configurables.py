"""Imports everything that a gin file may name."""

# pylint: disable=unused-import
import gtrxl_tf.agents.vmpo.agent
import gtrxl_tf.cores
import gtrxl_tf.environments
import gtrxl_tf.networks.actor_critic
import gtrxl_tf.networks.torsos
import gtrxl_tf.training.experiment
