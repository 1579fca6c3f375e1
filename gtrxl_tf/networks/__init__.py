"""Networks: torsos, heads, an instruction encoder, and their connection to a core.

`CoreNetwork` is imported when it is first used, because it imports TF-Agents.
"""

import importlib
from typing import TYPE_CHECKING

from gtrxl_tf.networks.actor_critic import ActorCritic
from gtrxl_tf.networks.actor_critic import NetworkInputs
from gtrxl_tf.networks.actor_critic import NetworkOutputs
from gtrxl_tf.networks.cql import CQLNetwork
from gtrxl_tf.networks.decision import DecisionNetwork
from gtrxl_tf.networks.decision import Segments
from gtrxl_tf.networks.distillation import DistillationNetwork
from gtrxl_tf.networks.distillation import Histories
from gtrxl_tf.networks.distillation import Transition
from gtrxl_tf.networks.heads import MLPHead
from gtrxl_tf.networks.heads import PixelControlHead
import gtrxl_tf.networks.keras_2  # noqa: F401
from gtrxl_tf.networks.language import InstructionEncoder
from gtrxl_tf.networks.memory_network import MemoryNetwork
from gtrxl_tf.networks.popart import PopArt
from gtrxl_tf.networks.predictor import Predictor
from gtrxl_tf.networks.spec_torso import SpecTorso
from gtrxl_tf.networks.tap import TAPNetwork
from gtrxl_tf.networks.torsos import ConvTorso
from gtrxl_tf.networks.torsos import PixelTorso
from gtrxl_tf.networks.torsos import Torso
from gtrxl_tf.networks.torsos import VectorTorso

if TYPE_CHECKING:
  from gtrxl_tf.networks.core_network import CoreNetwork

__all__ = [
    'ActorCritic', 'CQLNetwork', 'ConvTorso', 'CoreNetwork', 'DecisionNetwork',
    'DistillationNetwork', 'Histories', 'InstructionEncoder', 'MLPHead', 'MemoryNetwork',
    'NetworkInputs', 'NetworkOutputs', 'PixelControlHead', 'PixelTorso', 'PopArt',
    'Predictor', 'Segments', 'SpecTorso', 'TAPNetwork', 'Torso', 'Transition',
    'VectorTorso']


def __getattr__(name: str) -> object:
  """Imports `CoreNetwork` (PEP 562)."""
  if name == 'CoreNetwork':
    return importlib.import_module(f'{__name__}.core_network').CoreNetwork
  raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
