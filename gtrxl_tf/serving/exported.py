"""An exported policy with a memory for each of many clients."""

import contextlib
import pathlib
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from absl import logging
from google.protobuf import text_format
import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import struct_pb2

from gtrxl_tf import files
from gtrxl_tf import machine
from gtrxl_tf import nests
from gtrxl_tf.serving import json_values
from gtrxl_tf.settings import config

CHECKSUMS = 'checksums.json'  # Sizes and checksums of an exported folder's files.
SPECS = 'policy_specs.pbtxt'  # The specs of what a policy takes and returns.


def write_checksums(folder: pathlib.Path) -> None:
  """Writes the record of a folder's files that `verify` reads."""
  files.write_sealed(folder / CHECKSUMS, {'files': {
      str(path.relative_to(folder)): [path.stat().st_size, files.checksum(path)]
      for path in sorted(folder.rglob('*')) if path.is_file()}})


def verify(folder: pathlib.Path) -> None:
  """Compares the files of an exported policy with their recorded checksums."""
  if not (folder / CHECKSUMS).exists():
    what = f'has no {CHECKSUMS}' if folder.exists() else 'does not exist'
    raise config.ConfigError(
        f'{folder}: {what}: expected the folder of an exported policy, as RUN/policy')
  try:
    record = files.read_sealed(folder / CHECKSUMS, 'files')['files']
  except files.DamagedFile as error:
    raise config.ConfigError(str(error)) from error
  for name, (size, checksum) in record.items():
    path = folder / name
    if not path.is_file():
      raise config.ConfigError(f'{path}: is missing')
    if path.stat().st_size != size:
      raise config.ConfigError(
          f'{path}: is damaged: has {path.stat().st_size} bytes: expected {size}')
    if (found := files.checksum(path)) != checksum:
      raise config.ConfigError(
          f'{path}: is damaged: its checksum is {found}: expected {checksum}')


@contextlib.contextmanager
def only_errors_logged() -> Iterator[None]:
  """Suppresses warnings of saving and loading, within the context.

  They are about names that have a slash, and about parts that are left out on purpose.
  """
  verbosity, level = logging.get_verbosity(), tf.get_logger().level
  logging.set_verbosity(logging.ERROR)
  tf.get_logger().setLevel('ERROR')
  try:
    yield
  finally:
    logging.set_verbosity(verbosity)
    tf.get_logger().setLevel(level)


def load(folder: Union[str, pathlib.Path], repeats: bool = True,
         specs: Optional[Tuple[Any, Any]] = None) -> Any:
  """Loads an exported policy.

  Args:
    folder: the policy's folder.
    repeats: whether a policy that samples draws the same random numbers whenever it is
      loaded; see `export.save_policy`.
    specs: nests of `dm_env` specs of what the policy will see and do; None if they are
      not known. A policy of other specs is refused.
  """
  folder = pathlib.Path(folder)
  config.check_plain(folder)
  verify(folder)
  try:
    own = read_specs(folder)
    with only_errors_logged():
      policy = tf.saved_model.load(str(folder))
  except Exception as error:  # TensorFlow's, protobuf's and Python's own.
    raise config.ConfigError(
        f'{folder}: cannot be loaded: {type(error).__name__}: '
        f'{config.one_line(error)}') from error
  if specs is not None:
    expected, found = (
        {name: _described(spec) for root, nest in zip(('observation', 'action'), pair)
         for name, spec in json_values.leaves(nest, root).items()}
        for pair in (own, specs))
    for name in expected | found:
      if expected.get(name) != found.get(name):
        raise config.ConfigError(
            f'{folder}: the policy of another environment: {name} is '
            f'{found.get(name, "missing")}: expected {expected.get(name, "none")}')
  policy.metadata['repeats'].assign(repeats)
  return policy


def _described(spec: Any) -> str:
  dtype = np.dtype(getattr(spec.dtype, 'as_numpy_dtype', spec.dtype))
  least = getattr(spec, 'minimum', None) if dtype.kind in 'iu' else None
  return f'{dtype.name} of shape {list(spec.shape)}' + (
      '' if least is None else f' from {np.min(least)}')


def inputs(policy: Any) -> Dict[str, tf.TensorSpec]:
  """Returns the inputs of a loaded policy's signature `action`, by their names."""
  _, named = policy.signatures['action'].structured_input_signature
  return {spec.name: spec for spec in named.values()}


class Turn(NamedTuple):
  """One client's input to a step of the policy."""
  row: int         # Row of the client's memory.
  is_new: bool     # True if the row's memory begins here.
  is_first: bool   # True if an episode begins here.
  reward: float
  observation: Dict[str, np.ndarray]  # By the names of `json_values.leaves`.


class Answer(NamedTuple):
  """The policy's output for one client."""
  action: Dict[str, np.ndarray]  # By the names of `json_values.leaves`.
  info: Dict[str, np.ndarray]    # For example `policy/logits`.


class ExportedPolicy:
  """Steps an exported policy for any of `num_rows` clients at once.

  The memories are variables with a row for each client. A step gathers the rows of the
  clients that it serves, runs the policy's signature `action` and writes the rows back;
  it is traced once, for any number of clients.

  Attributes:
    observation_spec: nest of tensor specs.
    action_spec: nest of tensor specs.
    num_rows: as given.
    row_bytes: size of a client's memory.
  """

  @only_errors_logged()
  def __init__(self, folder: pathlib.Path, num_rows: int):
    """Loads the policy, reserves the memories and takes a first step."""
    self.num_rows = num_rows
    self._policy = load(folder, repeats=False)
    action = self._policy.signatures['action']
    expects = inputs(self._policy)
    self.observation_spec, self.action_spec = read_specs(pathlib.Path(folder))
    self._specs = json_values.leaves(self.observation_spec, 'observation')
    initial = self._policy.signatures['get_initial_state'](batch_size=tf.constant(1))
    self.row_bytes = sum(
        x.shape.num_elements() * x.dtype.size for x in initial.values())
    needed, free = num_rows * self.row_bytes, machine.free_bytes()
    if needed > free:
      raise config.ConfigError(
          f'the memories of {num_rows} clients take {needed:,} bytes, '
          f'{self.row_bytes:,} each: this machine has {free:,.0f} left: expected fewer '
          'sessions')
    memory = {
        name: tf.Variable(tf.zeros([num_rows, *x.shape[1:]], x.dtype))
        for name, x in initial.items()}

    @tf.function(autograph=False, input_signature=[
        tf.TensorSpec([None], tf.int32), tf.TensorSpec([None], tf.bool),
        tf.TensorSpec([None], tf.int32), tf.TensorSpec([None], tf.float32),
        {name: tf.TensorSpec(expects[f'0/{name}'].shape, expects[f'0/{name}'].dtype)
         for name in self._specs}])
    def step(rows, is_new, step_type, reward, observation):
      def read(name):
        old = memory[name].sparse_read(rows)
        begins = tf.reshape(is_new, [-1] + [1] * (old.shape.rank - 1))
        return tf.where(begins, initial[name], old)

      done = action(**{
          '0/step_type': step_type, '0/reward': reward,
          '0/discount': tf.ones_like(reward),
          **{f'0/{name}': x for name, x in observation.items()},
          **{f'1/{name}': read(name) for name in memory}})
      for name, variable in memory.items():
        variable.scatter_update(tf.IndexedSlices(done[f'state/{name}'], rows))
      return {name: x for name, x in done.items() if not name.startswith('state/')}

    self._step = step
    example = {name: _zeros(spec) for name, spec in self._specs.items()}
    self.step([Turn(0, True, True, 0.0, example)])  # A first step optimizes the graph.

  def step(self, turns: Sequence[Turn]) -> List[Answer]:
    """Takes one step for each turn; their rows differ."""
    arguments = (
        tf.constant([turn.row for turn in turns], tf.int32),
        tf.constant([turn.is_new for turn in turns]),
        tf.constant([0 if turn.is_first else 1 for turn in turns], tf.int32),
        tf.constant([turn.reward for turn in turns], tf.float32),
        {name: tf.constant(
            np.stack([turn.observation[name] for turn in turns]), spec.dtype)
         for name, spec in self._specs.items()})
    outputs = self._step(*arguments)
    done = {name: x.numpy() for name, x in outputs.items()}
    nests.free_attributes(tf.nest.flatten((arguments, outputs)))
    info = {name.removeprefix('info/'): x
            for name, x in done.items() if name.startswith('info/')}
    action = {name: x for name, x in done.items() if not name.startswith('info/')}
    return [Answer({name: x[i] for name, x in action.items()},
                   {name: x[i] for name, x in info.items()})
            for i in range(len(turns))]


def read_specs(folder: pathlib.Path) -> Tuple[Any, Any]:
  """Returns the specs of observations and actions of an exported policy."""
  proto = text_format.Parse(
      (folder / SPECS).read_text(encoding='utf-8'), struct_pb2.StructuredValue())
  specs = tf.__internal__.saved_model.decode_proto(proto)['collect_data_spec']
  return specs.observation, specs.action


def _zeros(spec: tf.TensorSpec) -> np.ndarray:
  """Returns zeros, or what is closest to them within the bounds of a tensor spec."""
  zeros = np.zeros(spec.shape, spec.dtype.as_numpy_dtype)
  return np.clip(
      zeros, getattr(spec, 'minimum', zeros), getattr(spec, 'maximum', zeros))
