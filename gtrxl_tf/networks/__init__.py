"""Torsos, instruction encoder, heads, and what joins them to a memory core."""

import gtrxl_tf.before_tf_agents  # pylint: disable=unused-import
from gtrxl_tf.networks.actor_critic import ActorCritic
from gtrxl_tf.networks.actor_critic import NetworkInputs
from gtrxl_tf.networks.actor_critic import NetworkOutputs
from gtrxl_tf.networks.heads import MLPHead
from gtrxl_tf.networks.heads import PixelControlHead
from gtrxl_tf.networks.language import InstructionEncoder
from gtrxl_tf.networks.popart import PopArt
from gtrxl_tf.networks.torsos import PixelTorso
from gtrxl_tf.networks.torsos import Torso
from gtrxl_tf.networks.torsos import VectorTorso
