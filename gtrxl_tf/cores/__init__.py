"""Memory cores. To add one, add a module here and an entry to `CORES`."""

import tensorflow as tf

from gtrxl_tf.cores import retention
from gtrxl_tf.cores.core import Core
from gtrxl_tf.cores.gates import GATES
from gtrxl_tf.cores.mamba import Mamba
from gtrxl_tf.cores.mamba_dm import MambaDM
from gtrxl_tf.cores.memoryless import Memoryless
from gtrxl_tf.cores.merlin import MERLIN
from gtrxl_tf.cores.rate import RATE
from gtrxl_tf.cores.recurrent import DeepGRU
from gtrxl_tf.cores.recurrent import DeepLSTM
from gtrxl_tf.cores.relative_attention import RelativeMultiHeadAttention
from gtrxl_tf.cores.segment_transformer import SegmentTransformer
from gtrxl_tf.cores.transformer_xl import TransformerXL
from gtrxl_tf.cores.xl_block import XLBlock

# The conformance suite runs over each of these.
CORES = (
    TransformerXL, SegmentTransformer, RATE, DeepLSTM, DeepGRU, Mamba, MambaDM, MERLIN,
    Memoryless)

# Keras files refer to layers by these registered names.
for _layer in (*CORES, *GATES.values(), RelativeMultiHeadAttention, XLBlock):
  tf.keras.utils.register_keras_serializable('gtrxl_tf')(_layer)
for _layer in retention.RETENTION.values():  # Two have the names of gates.
  tf.keras.utils.register_keras_serializable('gtrxl_tf.retention')(_layer)

__all__ = [
    'CORES', 'Core', 'DeepGRU', 'DeepLSTM', 'GATES', 'MERLIN', 'Mamba', 'MambaDM',
    'Memoryless', 'RATE', 'RelativeMultiHeadAttention', 'SegmentTransformer',
    'TransformerXL', 'XLBlock']
