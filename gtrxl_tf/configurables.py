"""Imports everything that a gin file may name, and the constants: `%DMLAB_30`."""

# pylint: disable=unused-import
import gin

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
import gtrxl_tf.agents.vmpo.agent
import gtrxl_tf.analysis.scores
import gtrxl_tf.cores
import gtrxl_tf.datasets.collect
import gtrxl_tf.environments
import gtrxl_tf.environments.clues
from gtrxl_tf.environments import atari
from gtrxl_tf.environments import dmlab
import gtrxl_tf.networks
import gtrxl_tf.offline.experiment
import gtrxl_tf.offline.history_experiment
import gtrxl_tf.offline.history_schemes
import gtrxl_tf.online.experiment
import gtrxl_tf.sampling
import gtrxl_tf.sources

gin.constant('ATARI_57', atari.ATARI_57)
gin.constant('DMLAB_30', dmlab.DMLAB_30)
