"""A policy that takes and returns an environment's own observations and actions."""

import collections.abc
import json
import os
import pathlib
from typing import Any, Optional, Union
import urllib.error
import urllib.request

import dm_env
from dm_env import specs
import numpy as np
import tensorflow as tf
import tree

from gtrxl_tf.environments import instructions
from gtrxl_tf.environments import specs as specs_lib
from gtrxl_tf.networks import tensor_specs
from gtrxl_tf.serving import exported
from gtrxl_tf.serving import json_values
from gtrxl_tf.settings import config

_SECONDS = 60  # For a server to answer.


class Policy:
  """A trained policy with a memory, for one environment or for a batch of B.

    policy = gtrxl_tf.load_policy('runs/recall')
    observation, info = environment.reset()
    policy.reset()
    while not ended:
      observation, reward, terminated, truncated, info = environment.step(
          policy.act(observation, reward))

  Attributes:
    observation_spec: nest of tensor specs of one environment.
    action_spec: nest of tensor specs of one environment.
  """

  observation_spec: Any
  action_spec: Any

  def __init__(self):
    self._begins: Union[bool, np.ndarray] = True  # [B] where an episode begins next.
    self._batch: Optional[int] = None  # B of the memory; None for one environment.

  def reset(self) -> None:
    """Begins an episode, or one in each environment of a batch, with the next `act`."""
    self._begins = True

  def act(self, observation: Any, reward: Any = 0.0, first: Any = None,
          mask: Any = None) -> Any:
    """Returns the action for an observation, and remembers both.

    Args:
      observation: what the environment's `reset` or `step` returned: an array, a number,
        a text, or a dictionary or a tuple of them; or a batch, `[B, ...]` in each array.
      reward: the last action's reward, a number or `[B]`. Policies see it; those of
        RATE subtract it from the return that they were asked for.
      first: where an episode begins, bool or `[B]`, whose memory is then empty; by
        default after `reset` alone.
      mask: the allowed actions, where the environment has them in its `info`.

    Returns:
      The action, or a batch of B, with the structure of the environment's actions.

    Raises:
      ValueError: the observation is not one of the environment that it was trained in.
    """
    spec = self.observation_spec
    if mask is not None:
      observation = _with_mask(observation, mask, spec)
    arrays, batches = {}, set()
    for name, leaf, value in json_values.matched(
        spec, observation, 'observation', extras=True):
      arrays[name] = array = _array(leaf, value, name)
      batches.add(array.shape[0] if array.ndim > leaf.shape.rank else None)
    if len(batches) > 1:
      raise ValueError(f'observation: its parts are batches of {batches}: expected one '
                       'number of environments')
    batch, = batches
    begins = self._begins if first is None else first
    if batch != self._batch and not np.all(begins):
      raise ValueError(
          f'observation: of {batch or "one"} environment(s): expected '
          f'{self._batch or "one"}, as before; reset() begins with another number')
    if batch is None:
      arrays = {name: x[np.newaxis] for name, x in arrays.items()}
    num = batch or 1
    begins = np.broadcast_to(np.asarray(begins, bool), [num])
    reward = np.broadcast_to(np.asarray(reward, np.float32), [num])
    actions = self._act(arrays, np.where(begins, np.float32(0), reward), begins,
                        batch != self._batch)
    self._batch, self._begins = batch, False
    if batch is None:
      actions = [x[0].item() if x.ndim == 1 else x[0] for x in actions]
    return tree.unflatten_as(self.action_spec, actions)

  def _act(self, arrays, reward, begins, new):
    """Returns the actions `[B, ...]` for arrays `[B, ...]`, in the order of leaves."""
    raise NotImplementedError


class _Loaded(Policy):
  """An exported policy, in this process."""

  def __init__(self, folder: pathlib.Path):
    super().__init__()
    self._policy = exported.load(folder, repeats=False)
    self.observation_spec, self.action_spec = exported.read_specs(folder)
    self._memory: Any = None

  def _act(self, arrays, reward, begins, new):
    num = len(reward)
    if new or self._memory is None:
      self._memory = self._policy.get_initial_state(tf.constant(num))
    leaves = [tf.constant(x) for x in arrays.values()]
    step_type = np.where(begins, dm_env.StepType.FIRST, dm_env.StepType.MID)
    step = self._policy.action(dm_env.TimeStep(
        tf.constant(step_type, tf.int32), tf.constant(reward), tf.ones([num]),
        tf.nest.pack_sequence_as(self.observation_spec, leaves)), self._memory)
    self._memory = step.state
    return [x.numpy() for x in tf.nest.flatten(step.action)]


class _Served(Policy):
  """A policy at a server, with a session for each environment."""

  def __init__(self, url: str):
    super().__init__()
    self._url = url.rstrip('/')
    found = self._request('GET', 'spec')
    self.observation_spec, self.action_spec = (
        _specs(found[name]) for name in ('observation', 'action'))
    self._sessions = []

  def _request(self, method: str, path: str, body: Any = None) -> Any:
    request = urllib.request.Request(
        f'{self._url}/v1/{path}', method=method,
        data=None if body is None else json.dumps(body).encode())
    try:
      with urllib.request.urlopen(request, timeout=_SECONDS) as response:
        return json.loads(response.read() or b'null')
    except urllib.error.HTTPError as error:
      raise ValueError(json.loads(error.read())['error']) from error
    except (urllib.error.URLError, ValueError) as error:
      raise config.ConfigError(
          f'{self._url}: {error}: expected the address of `gtrxl serve`') from error

  def _act(self, arrays, reward, begins, new):
    if new or not self._sessions:
      self.close()
      self._sessions = [self._request('POST', 'sessions', {})['session'] for _ in reward]
    rows = []
    for i, session in enumerate(self._sessions):
      found = self._request('POST', f'sessions/{session}/act', {
          'observation': json_values.write(
              self.observation_spec, {name: x[i] for name, x in arrays.items()},
              'observation'),
          'reward': float(reward[i]), 'first': bool(begins[i])})
      rows.append(json_values.read(self.action_spec, found['action'], 'action'))
    return [np.stack([row[name] for row in rows]) for name in rows[0]]

  def close(self) -> None:
    """Ends the sessions, and with them the memory."""
    for session in self._sessions:
      self._request('DELETE', f'sessions/{session}')
    self._sessions = []


def load_policy(where: Union[str, os.PathLike]) -> Policy:
  """Loads the policy of a run, which needs neither its environment nor its settings.

  Args:
    where: the folder of a run, of which the best policy is taken if it was kept; the
      folder of an exported policy; or the address of `gtrxl serve`, as
      `'http://localhost:8080'`.
  """
  if str(where).startswith(('http://', 'https://')):
    return _Served(str(where))
  folder = pathlib.Path(where)
  for name in 'best', 'policy':
    if (folder / name / exported.CHECKSUMS).exists():
      return _Loaded(folder / name)
  return _Loaded(folder)


def _specs(described: Any) -> Any:
  """Returns the nest of tensor specs that `json_values.describe` has described."""
  if isinstance(described, list):
    return tuple(map(_specs, described))
  if not isinstance(described.get('shape'), list):
    return {key: _specs(part) for key, part in described.items()}
  shape, dtype = described['shape'], np.dtype(described['dtype'])
  bounds = [described.get(x) for x in ('minimum', 'maximum')]
  return tensor_specs.tensor_specs(
      specs.Array(shape, dtype) if None in bounds or dtype.kind == 'f'
      else specs.BoundedArray(shape, dtype, *bounds))


def _with_mask(observation: Any, mask: Any, spec: Any) -> Any:
  """Puts a mask beside an observation, as `FromGymnasium` does."""
  if not (isinstance(spec, collections.abc.Mapping) and specs_lib.MASK in spec):
    raise ValueError('mask: expected none, as the policy was trained without')
  if isinstance(mask, tuple):  # One for each discrete action.
    mask = np.concatenate([np.ravel(x) for x in mask])
  if spec.keys() == {'observation', specs_lib.MASK}:
    observation = {'observation': observation}
  return {**observation, specs_lib.MASK: mask}


def _array(spec: tf.TensorSpec, value: Any, name: str) -> np.ndarray:
  """Returns the value of a leaf as an array of its spec, or of a batch of it."""
  dtype, shape = np.dtype(spec.dtype.as_numpy_dtype), tuple(spec.shape)
  expected = f'{name}: expected {dtype.name} of shape {list(shape)}, or a batch of them'
  if isinstance(value, str) and len(shape) == 1 and dtype.kind == 'i':
    return instructions.hash_instruction(value, shape[0])
  try:
    array = np.asarray(value)
  except ValueError as error:
    raise ValueError(f'{expected}, got parts of different shapes') from error
  if array.dtype.kind in 'US' and len(shape) == 1 and dtype.kind == 'i':
    return np.stack([instructions.hash_instruction(x, shape[0]) for x in array])
  if array.shape[-len(shape) or array.ndim:] != shape or array.ndim > len(shape) + 1 or (
      not np.can_cast(array.dtype, dtype, 'same_kind')
      and not (array.dtype.kind in 'iub' and dtype.kind in 'iuf')):
    raise ValueError(f'{expected}, got {array.dtype} of shape {list(array.shape)}')
  return json_values.cast(spec, array, name)
