"""Agents and their policies. To add one, add a file here and its classes below."""

from gtrxl_tf.agents.cql import CQLAgent
from gtrxl_tf.agents.cql import CQLPolicy
from gtrxl_tf.agents.cql_sac import CQLSACActor
from gtrxl_tf.agents.cql_sac import CQLSACAgent
from gtrxl_tf.agents.decision import DecisionAgent
from gtrxl_tf.agents.decision import DecisionPolicy
from gtrxl_tf.agents.distillation import DistillationAgent
from gtrxl_tf.agents.distillation import DistillationPolicy
from gtrxl_tf.agents.distillation import HistoryBatch
from gtrxl_tf.agents.policy import ActorCriticPolicy
from gtrxl_tf.agents.policy import NetworkPolicy
from gtrxl_tf.agents.ppo import PPOAgent
from gtrxl_tf.agents.r2d2 import EpsilonGreedy
from gtrxl_tf.agents.r2d2 import EpsilonGreedyPolicy
from gtrxl_tf.agents.r2d2 import R2D2Agent
from gtrxl_tf.agents.tap import TAPAgent
from gtrxl_tf.agents.tap import TAPPolicy
from gtrxl_tf.agents.vmpo import VMPOAgent
from gtrxl_tf.networks.decision import Segments

__all__ = [
    'ActorCriticPolicy', 'CQLAgent', 'CQLPolicy', 'CQLSACActor', 'CQLSACAgent',
    'DecisionAgent', 'DecisionPolicy', 'DistillationAgent', 'DistillationPolicy',
    'EpsilonGreedy', 'EpsilonGreedyPolicy', 'HistoryBatch', 'NetworkPolicy',
    'PPOAgent', 'R2D2Agent', 'Segments', 'TAPAgent', 'TAPPolicy', 'VMPOAgent']
