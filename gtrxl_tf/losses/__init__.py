"""Losses as pure functions of tensors, without variables.

Each raises a `ValueError` for shapes that do not fit and for numbers out of range.
"""

from gtrxl_tf.losses import averages
from gtrxl_tf.losses import cql
from gtrxl_tf.losses import distributions
from gtrxl_tf.losses import pixel_control
from gtrxl_tf.losses import ppo
from gtrxl_tf.losses import r2d2
from gtrxl_tf.losses import returns
from gtrxl_tf.losses import tap
from gtrxl_tf.losses import vmpo
