"""The variables of an agent, and the difference between those of two agents."""

import collections
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

import tensorflow as tf

_SHOWN = 4  # Variables in a message, for each kind of difference.


class Variable(NamedTuple):
  """The properties that a value must have to fit a variable."""
  shape: Tuple[int, ...]
  dtype: str

  def __str__(self):
    return f'{list(self.shape)} {self.dtype}'


Variables = Dict[str, Variable]


def agent_variables(agent: tf.Module) -> Variables:
  """Returns the variables of an agent, by their paths in it."""
  return {path: Variable(tuple(node.shape), node.dtype.name)
          for path, node in _walk(agent) if isinstance(node, tf.Variable)}


def _walk(root: tf.Module) -> Iterator[Tuple[str, Any]]:
  """Walks over all objects that a root refers to, with their shortest paths."""
  # `seen` keeps the objects: some are made on demand, and their ids would be used
  # again.
  seen, queue = {id(root): root}, collections.deque([('agent', root)])
  while queue:
    path, node = queue.popleft()
    yield path, node
    for name, child in tf.train.TrackableView.children(node).items():
      if id(child) not in seen:
        seen[id(child)] = child
        queue.append((f'{path}/{name}', child))


def difference(saved: Variables, expected: Variables) -> str:
  """Describes in a line how `saved` differs from `expected`; empty if it does not."""
  def some(text: str, items: List[str]) -> List[str]:
    more = f' and {len(items) - _SHOWN} more' if len(items) > _SHOWN else ''
    return [text + ', '.join(items[:_SHOWN]) + more] if items else []
  return '; '.join([
      *some('it has ', [f'{path} {saved[path]} (expected {variable})'
                        for path, variable in expected.items()
                        if saved.get(path, variable) != variable]),
      *some('it lacks ', [f'{path} {variable}' for path, variable in expected.items()
                          if path not in saved]),
      *some('it has what was not expected, ',
            [f'{path} {variable}' for path, variable in saved.items()
             if path not in expected])])
