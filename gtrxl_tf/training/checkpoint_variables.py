"""The variables of an agent, in memory and in a checkpoint."""

import collections
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

import tensorflow as tf

# The description of a checkpoint inside it.
from tensorflow.core.protobuf import trackable_object_graph_pb2

_SHOWN = 4  # Variables in a message, for each kind of difference.


class Variable(NamedTuple):
  """What a value must have to fit a variable."""
  shape: Tuple[int, ...]
  dtype: str

  def __str__(self):
    return f'{list(self.shape)} {self.dtype}'


Variables = Dict[str, Variable]


def of_agent(agent: tf.Module) -> Variables:
  """Returns the variables of an agent, by their paths in it."""
  return {path: Variable(tuple(node.shape), node.dtype.name)
          for path, node in _walk(agent, tf.train.TrackableView.children, id)
          if isinstance(node, tf.Variable)}


def of_checkpoint(path: str) -> Variables:
  """Returns the variables of `agent` in a checkpoint, by their paths in it."""
  reader = tf.train.load_checkpoint(path)
  graph = trackable_object_graph_pb2.TrackableObjectGraph()
  graph.ParseFromString(reader.get_tensor('_CHECKPOINTABLE_OBJECT_GRAPH'))
  shapes = reader.get_variable_to_shape_map()
  dtypes = reader.get_variable_to_dtype_map()

  def children(node: int) -> Dict[str, int]:
    return {child.local_name: child.node_id for child in graph.nodes[node].children}

  if 'agent' not in children(0):
    return {}
  return {place: Variable(tuple(shapes[attribute.checkpoint_key]),
                          dtypes[attribute.checkpoint_key].name)
          for place, node in _walk(children(0)['agent'], children, lambda node: node)
          for attribute in graph.nodes[node].attributes
          if attribute.name == 'VARIABLE_VALUE'}


def _walk(root: Any, children: Callable[[Any], Dict[str, Any]],
          identity: Callable[[Any], int]) -> Iterator[Tuple[str, Any]]:
  """Walks over all objects that a root refers to, with their shortest paths."""
  # It keeps the nodes: some are made on demand, and their ids would be used again.
  seen, queue = {identity(root): root}, collections.deque([('agent', root)])
  while queue:
    path, node = queue.popleft()
    yield path, node
    for name, child in children(node).items():
      if identity(child) not in seen:
        seen[identity(child)] = child
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
