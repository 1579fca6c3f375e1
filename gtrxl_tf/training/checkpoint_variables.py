"""The variables of an agent, as it is and as a checkpoint has it."""

import collections
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

import tensorflow as tf
# What TensorFlow itself describes checkpoints with.
from tensorflow.core.protobuf import trackable_object_graph_pb2

_SHOWN = 4  # Variables, of each kind of difference.


class Variable(NamedTuple):
  """What decides whether one value fits a variable."""
  shape: Tuple[int, ...]
  dtype: str

  def __str__(self):
    return f'{list(self.shape)} {self.dtype}'


Variables = Dict[str, Variable]


def of_agent(agent: tf.Module) -> Variables:
  """Those of an agent, by their paths in it."""
  return {path: Variable(tuple(node.shape), node.dtype.name)
          for path, node in _walk(agent, tf.train.TrackableView.children, id)
          if isinstance(node, tf.Variable)}


def of_checkpoint(path: str) -> Variables:
  """Those of `agent` in a checkpoint, which says how its objects hang together."""
  reader = tf.train.load_checkpoint(path)
  graph = trackable_object_graph_pb2.TrackableObjectGraph()
  graph.ParseFromString(reader.get_tensor('_CHECKPOINTABLE_OBJECT_GRAPH'))
  shapes = reader.get_variable_to_shape_map()
  dtypes = reader.get_variable_to_dtype_map()
  children = lambda node: {
      child.local_name: child.node_id for child in graph.nodes[node].children}
  if 'agent' not in children(0):
    return {}
  return {place: Variable(tuple(shapes[attribute.checkpoint_key]),
                          dtypes[attribute.checkpoint_key].name)
          for place, node in _walk(children(0)['agent'], children, lambda node: node)
          for attribute in graph.nodes[node].attributes
          if attribute.name == 'VARIABLE_VALUE'}


def _walk(root: Any, children: Callable[[Any], Dict[str, Any]],
          identity: Callable[[Any], int]) -> Iterator[Tuple[str, Any]]:
  """All that a root refers to, by the shortest paths, of which it is the first name."""
  # With the nodes, as some are made for the asking, and their ids would be used again.
  seen, queue = {identity(root): root}, collections.deque([('agent', root)])
  while queue:
    path, node = queue.popleft()
    yield path, node
    for name, child in children(node).items():
      if identity(child) not in seen:
        seen[identity(child)] = child
        queue.append((f'{path}/{name}', child))


def difference(saved: Variables, expected: Variables) -> str:
  """How `saved` is not as expected, on one line; empty if it is."""
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
