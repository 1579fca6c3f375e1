"""Memory of transformers for agents: GTrXL, RATE, and algorithm distillation."""

import sys
import types

# tf_agents imports gym, which prints a page about its successor at every import, in
# every process, unless its list of notices is empty.
_notices = types.ModuleType('gym_notices.notices')
_notices.notices = {}
sys.modules.setdefault('gym_notices.notices', _notices)

from gtrxl_tf.environments import rendering  # pylint: disable=wrong-import-position

# Where dm_control is installed tf_agents imports it, and it reads the choice once.
rendering.choose_backend()
