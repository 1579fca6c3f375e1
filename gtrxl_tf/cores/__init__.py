"""Memory cores. To add one, add a module here and an entry to `CORES`."""

from gtrxl_tf.cores.core import Core
from gtrxl_tf.cores.gates import GATES
from gtrxl_tf.cores.mamba import Mamba
from gtrxl_tf.cores.memoryless import Memoryless
from gtrxl_tf.cores.rate import RATE
from gtrxl_tf.cores.recurrent import DeepGRU
from gtrxl_tf.cores.recurrent import DeepLSTM
from gtrxl_tf.cores.relative_attention import RelativeMultiHeadAttention
from gtrxl_tf.cores.segment_transformer import SegmentTransformer
from gtrxl_tf.cores.transformer_xl import TransformerXL

# The conformance suite runs over each of these.
CORES = (
    TransformerXL, SegmentTransformer, RATE, DeepLSTM, DeepGRU, Mamba, Memoryless)

__all__ = [
    'CORES', 'Core', 'DeepGRU', 'DeepLSTM', 'GATES', 'Mamba', 'Memoryless', 'RATE',
    'RelativeMultiHeadAttention', 'SegmentTransformer', 'TransformerXL']
