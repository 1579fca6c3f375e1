"""Sources: algorithms that learn while they play, and whose histories are recorded.

A learning history is everything that an algorithm saw and did from its first step to
its last. A model that predicts the actions in many of them distills the algorithm. A
source plays a batch of tasks of one family (`environments/task_batch.py`) at once and
learns in each of them separately. `histories.py` lets it play and writes the histories
to disk.

A new source, or a new family, is one file: the smallest examples are `bandit.py` here
and in `environments`.
"""

from gtrxl_tf.sources.bandit import UCB
from gtrxl_tf.sources.histories import HistoryCollector
from gtrxl_tf.sources.q_learning import QLearning
from gtrxl_tf.sources.source import LearningHistories
from gtrxl_tf.sources.source import play
from gtrxl_tf.sources.source import Source
