"""Sources: algorithms that learn while they play, and whose histories are recorded.

What an algorithm went through from its first step to its last is a learning history,
and a model that predicts the actions in many of them is said to distill the algorithm.
A source plays a batch of tasks of one family (`environments/task_batch.py`) at once,
and learns in each apart from the others. `histories.py` has it play and puts on disk
what happened.

Another source, or another family, is one file: `bandit.py` here, and the one in
`environments`, are the smallest.
"""

from gtrxl_tf.sources.bandit import UCB
from gtrxl_tf.sources.histories import HistoryCollector
from gtrxl_tf.sources.q_learning import QLearning
from gtrxl_tf.sources.source import Histories
from gtrxl_tf.sources.source import play
from gtrxl_tf.sources.source import Source
