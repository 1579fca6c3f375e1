"""Datasets of episodes and histories on disk: writes, reads, checks, imports, exports.

`format.py` describes the format.
"""

from gtrxl_tf.datasets.format import DatasetError
from gtrxl_tf.datasets.format import End
from gtrxl_tf.datasets.format import Episode
from gtrxl_tf.datasets.format import from_dm_env
from gtrxl_tf.datasets.format import Specs
from gtrxl_tf.datasets.reader import check
from gtrxl_tf.datasets.reader import Dataset
from gtrxl_tf.datasets.reader import gather
from gtrxl_tf.datasets.reader import open_dataset
from gtrxl_tf.datasets.reader import SegmentBatch
from gtrxl_tf.datasets.reader import segments
from gtrxl_tf.datasets.writer import EpisodeWriter
