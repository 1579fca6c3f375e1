"""Collects episodes and learning histories into datasets.

`episodes.py` collects episodes of a policy, or of a scripted method of the environment.
The other modules are about sources: algorithms that learn while they play, and whose
histories are recorded.

A learning history is everything that an algorithm saw and did from its first step to
its last. A model that learns to predict the actions in many histories distills the
algorithm. A source plays a batch of tasks of one family (`environments/task_batch.py`)
at once and learns in each of them separately. `histories.py` writes the histories that
it plays to disk.

A new source, or a new family, is one file: the smallest examples are `bandit.py` here
and in `environments`.
"""

from gtrxl_tf.collecting.bandit import UCB
from gtrxl_tf.collecting.episodes import Collector
from gtrxl_tf.collecting.histories import HistoryCollector
from gtrxl_tf.collecting.q_learning import QLearning
from gtrxl_tf.collecting.source import LearningHistories
from gtrxl_tf.collecting.source import play
from gtrxl_tf.collecting.source import Source
