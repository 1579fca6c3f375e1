"""A journal of what a learner trains on, for tests of faults.

A gin file that imports this module makes the run's learner write it. Each start has its
own file in the folder $JOURNAL: one line per learner step, with the ids of the unrolls in
its batch. The journal is independent of the learner's ledger (`replay.staleness`).
"""

import collections
import os
import pathlib
import time
from typing import Dict, List, NamedTuple

# A start: the ids of the unrolls of each learner step.
Start = Dict[int, List[int]]


class Account(NamedTuple):
  """A summary of a journal.

  Attributes:
    lost: for each start but the last, how many of its steps later starts repeated.
    steps: the learner steps that the final weights are the result of.
    items: the items of the queue that those steps were trained on.
    duplicates: repeated ids of unrolls in those steps.
    duplicates_overall: repeated ids of unrolls in all steps, including those lost.
  """
  lost: List[int]
  steps: List[int]
  items: int
  duplicates: int
  duplicates_overall: int


def read(journal: pathlib.Path) -> List[Start]:
  """Returns the starts in the order in which they began, if they took a step."""
  starts = []
  for path in sorted(journal.glob('*'), key=lambda path: int(path.name)):
    lines = [list(map(int, line.split())) for line in path.read_text().splitlines()]
    starts.append({step: ids for step, *ids in lines})
  return [start for start in starts if start]


def account(starts: List[Start]) -> Account:
  """Summarizes the starts of a learner, see `Account`."""
  lost, kept, first_later = [], [], None
  for start in reversed(starts):
    if first_later is not None:
      lost.append(max(0, max(start) + 1 - first_later))
    kept += [(step, ids) for step, ids in start.items()
             if first_later is None or step < first_later]
    first_later = min(start) if first_later is None else min(first_later, min(start))
  def repeated(steps):
    counts = collections.Counter(i for ids in steps for i in ids)
    return sum(counts.values()) - len(counts)
  return Account(
      lost[::-1], sorted(step for step, _ in kept), sum(len(ids) for _, ids in kept),
      repeated(ids for _, ids in kept),
      repeated(ids for start in starts for ids in start.values()))


def _write_journal(journal: pathlib.Path) -> None:
  # pylint: disable-next=g-import-not-at-top
  from gtrxl_tf.training.online import trainer
  next_batch = trainer.OnlineTrainer._next_batch
  journal.mkdir(exist_ok=True)
  path = journal / str(time.time_ns())

  def noted(self):
    batch = next_batch(self)
    if batch is not None:
      with open(path, 'a', encoding='ascii') as file:
        print(self.step + 1, *batch.unroll_id.numpy().flat, file=file)
    return batch

  trainer.OnlineTrainer._next_batch = noted


if 'JOURNAL' in os.environ:
  _write_journal(pathlib.Path(os.environ['JOURNAL']))
