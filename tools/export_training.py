r"""Writes the acting and learning of an online experiment as XLA modules.

  python -m tools.export_training --gin_file=gin/gtrxl/numpad_2x2_cpu.gin \
      --output_dir=DIR --batches=2

`device_training.py` trains with them, without TensorFlow. Beside the modules,
`program.json` names what they read and write, and gives each variable's least and
greatest first value, between which weights are drawn. The target network, too, computes
in `Experiment.compute_dtype`.
"""

import json
import lzma
import math
import pathlib
import sys
from typing import Any, Callable, Dict, List, Tuple

from absl import flags
import dm_env
import gin
import numpy as np
import tensorflow as tf
import tree

from binaries import settings
from gtrxl_tf.agents import policy as policy_lib
from gtrxl_tf.cores import core as core_lib
from gtrxl_tf.launch import prepare
from gtrxl_tf.launch import program
from gtrxl_tf.replay import unroll as unroll_lib
from gtrxl_tf.settings import config
from gtrxl_tf.training import devices
from gtrxl_tf.training import learner as learner_lib
import tools
from tools import learner_hlo

flags.adopt_module_key_flags(settings)

_OUTPUT_DIR = flags.DEFINE_string('output_dir', None, 'Where to write.', required=True)
_BATCHES = flags.DEFINE_integer(
    'batches', 1, 'The batches that an unroll of all environments makes.', lower_bound=1)


def _named(nest: Any) -> List[Tuple[str, Any]]:
  """Returns the leaves of a nest with their paths."""
  return [('/'.join(map(str, path)), x) for path, x in tree.flatten_with_path(nest)]


class _Modules:
  """Functions of nests, each as a module."""

  def __init__(self, folder: pathlib.Path):
    self._folder = folder
    self.captured: Dict[int, Any] = {}  # A name and a tensor or handle, by its id.
    self.described: Dict[str, Dict[str, List[str]]] = {}

  def add(self, name: str, function: Callable[..., Dict[str, Any]], **inputs) -> None:
    """Writes the module of a function whose arguments have these specs.

    It returns a nest of results, each of which replaces the input of the same path.
    """
    outputs, leaves = [], tf.nest.flatten(inputs)

    def flat(*leaves):
      results = _named(function(**tf.nest.pack_sequence_as(inputs, leaves)))
      results = [(path, x) for path, x in results if all(x is not y for y in leaves)]
      outputs[:] = [path for path, _ in results]
      return [x for _, x in results]

    compiled = tf.function(flat, autograph=False, jit_compile=True)
    read = [path for path, _ in _named(inputs)]
    for x in compiled.get_concrete_function(*leaves).captured_inputs:
      self.captured.setdefault(id(x), (f'captured/{len(self.captured)}', x))
      read.append(self.captured[id(x)][0])
    self.described[name] = {'inputs': read, 'outputs': outputs}
    hlo = compiled.experimental_get_compiler_ir(*leaves)(stage='hlo_serialized')
    (self._folder / f'{name}.hlo.xz').write_bytes(lzma.compress(hlo, preset=3))


def _write(folder: pathlib.Path, experiment: Any, num: int) -> None:
  """Writes the modules of an experiment that acts in `num` environments."""
  with devices.compute_dtype(experiment.compute_dtype):
    agent = experiment.make_agent()
  steps, core = experiment.unroll_length, agent.acting_network.core
  policy = experiment.make_policy(agent.acting_network, with_record=True)
  learner = learner_lib.Learner(
      agent, experiment.make_optimizer(), tf.distribute.get_strategy(),
      experiment.optimizer.clip_norm)
  # A time step of all environments is one vector.
  example = dm_env.TimeStep(0, 0, 0, experiment.observation_spec)
  leaves = tree.flatten(experiment.observation_spec)
  dtypes = [tf.int32, tf.float32, tf.float32, *(x.dtype for x in leaves)]
  shapes = [(num,)] * 3 + [(num, *x.shape) for x in leaves]
  sizes = [math.prod(shape) for shape in shapes]

  def specs(nest, *axes):
    return tf.nest.map_structure(
        lambda x: tf.TensorSpec([num, *axes, *x.shape], x.dtype), nest)

  def batch_first(rows):  # A list of [E, ...] to [E, time, ...].
    return tf.nest.map_structure(lambda *x: tf.stack(x, axis=1), *rows)

  def unpack(vectors):  # [time, size] to time steps [time, E, ...].
    return tf.nest.pack_sequence_as(example, [
        tf.cast(tf.reshape(x, [-1, *shape]), dtype) for x, shape, dtype in zip(
            tf.split(vectors, sizes, axis=1), shapes, dtypes)])

  def act(time_step, noise, state):
    seen = tf.nest.map_structure(lambda x: x[0], unpack(time_step[tf.newaxis]))
    policy_step = policy.unmoved_action(seen, state, seed=noise)
    return dict(action=policy_step.action, must_move=policy.must_move(policy_step.state),
                state=policy_step.state, **policy_step.info._asdict())

  def collect(before, after):
    time_steps = unpack(tf.stack([x['time_step'] for x in before]))
    after = batch_first(after)
    return dict(own_records=after.record, unroll=dict(
        tf.nest.map_structure(core_lib.swap_time_and_batch, time_steps)._asdict(),
        action=batch_first([x['state']['previous_action'] for x in before]),
        policy=after.policy))

  def learn(unroll, memory, rows):
    batch = unroll_lib.Unroll(**{
        **dict.fromkeys(unroll_lib.Unroll._fields, ()), **unroll,
        'step_type': tf.concat([memory['step_type'], unroll['step_type']], axis=1),
        'record': memory['record'], 'task': tf.zeros([num, 1], tf.int32)})
    metrics = learner.device_step(batch, rows)
    names[:] = [name for name, x in metrics.items() if tf.is_tensor(x) and not x.shape.rank]
    scalars = tf.stack([metrics.pop(name) for name in names])
    agent.after_step(metrics)
    return dict(metrics=scalars)

  def remember(memory, own_records, unroll):
    own = dict(record=own_records, step_type=unroll['step_type'][:, :-1])
    memory = tf.nest.map_structure(
        lambda *x: tf.concat(x, axis=1)[:, -core.memory_length:], memory, own)
    is_first = tf.equal(memory['step_type'], int(dm_env.StepType.FIRST))
    blank = policy_lib.PolicyState((), ())
    state = policy.refreshed(blank, memory['record'], is_first)
    return dict(memory=memory, state=dict(core=state.core))

  modules, names = _Modules(folder), []
  state, info = specs(policy.policy_state_spec), specs(policy.info_spec)
  memory = specs(dict(record=policy.info_spec.record,
                      step_type=tf.TensorSpec([], tf.int32)), core.memory_length)
  time_step = tf.TensorSpec([sum(sizes)], tf.float32)
  first = dict(state=dict(previous_action=state.previous_action))
  kept = dict(before=[dict(first, time_step=time_step)] * (steps + 1), after=[info] * steps)
  collected = tf.nest.map_structure(
      tf.type_spec_from_value, tf.function(collect, autograph=False)
      .get_concrete_function(**kept).structured_outputs)
  modules.add('act', act, time_step=time_step, noise=tf.TensorSpec([2], tf.int32),
              state=state)
  modules.add('move', lambda state: dict(state=policy.move(state)), state=state)
  modules.add('collect', collect, **kept)
  modules.add('learn', learn, unroll=collected['unroll'], memory=memory,
              rows=tf.TensorSpec([experiment.batch_size], tf.int32))
  past = dict(memory=memory, own_records=collected['own_records'],
              unroll=dict(step_type=collected['unroll']['step_type']))
  modules.add('remember', remember, **past)
  modules.add('publish', lambda: agent.refresh_acting_network() or {})

  values = {name: learner_hlo.value(x).numpy() for name, x in modules.captured.values()}
  for name, x in _named(dict(first, **past)):  # Blank rows, which are FIRST.
    values[name] = np.broadcast_to(np.zeros([], x.dtype.as_numpy_dtype), x.shape)
  ranges = {name: dict(shape=x.shape, dtype=x.dtype.name, low=x.min().item(),
                       high=x.max().item()) for name, x in values.items()}
  name = experiment.environment_name
  (folder / 'program.json').write_text(json.dumps(dict(
      modules=modules.described, values=ranges, metrics=names, environment=name,
      settings=gin.get_bindings(name), environments=num, unroll_length=steps,
      batch_size=experiment.batch_size, num_epochs=experiment.num_epochs,
      publish_period=agent.publish_period,
      max_head_start=experiment.max_head_start), indent=1), encoding='utf-8')


def main() -> None:
  folder = pathlib.Path(_OUTPUT_DIR.value)
  try:
    experiment = prepare.prepare(
        settings.GIN_FILE.value, settings.GIN_BINDINGS.value, check=False)
    tools.check_online(experiment, settings.GIN_FILE.value)
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder, experiment, _BATCHES.value * experiment.batch_size)
  except config.ConfigError as error:
    sys.exit(f'Stopped: {error}')


if __name__ == '__main__':
  program.run(main)
