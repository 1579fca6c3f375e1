"""Times a learner step of an experiment at its own size, and tells its memory.

  python -m binaries.learner_step --gin_file=gin/dmlab30.gin --batch_size=2

The batch is blank, which costs as much as a full one: shapes are static. DeepMind Lab
need not be installed; a stand-in tells its specs.
"""

import resource
import statistics
import time

from absl import app
from absl import flags
import tensorflow as tf

from gtrxl_tf.environments import dmlab_testing
from gtrxl_tf.training import learner as learner_lib
from gtrxl_tf.training import train

_GIN_FILE = flags.DEFINE_multi_string(
    'gin_file', None, "The experiment's settings; later files override.", required=True)
_GIN_BINDINGS = flags.DEFINE_multi_string(
    'gin_bindings', [], 'Single settings, which override the files.')
_BATCH_SIZE = flags.DEFINE_integer('batch_size', 2, 'Unrolls.', lower_bound=1)
_REPEAT = flags.DEFINE_integer('repeat', 3, 'Steps to time.', lower_bound=1)


def _peak_gib() -> float:
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def _num_parameters(variables) -> int:
  return sum(v.shape.num_elements() for v in variables)


def main(argv):
  del argv
  with dmlab_testing.deepmind_lab():
    experiment = train.prepare(_GIN_FILE.value, _GIN_BINDINGS.value)
  agent = experiment.make_agent()
  learner = learner_lib.Learner(
      agent, experiment.make_optimizer(), tf.distribute.get_strategy())
  batch = tf.nest.map_structure(
      lambda x: tf.repeat(x, _BATCH_SIZE.value, axis=0), experiment.blank_batch())
  built = _peak_gib()
  started = time.time()
  metrics = learner.step(batch)
  first = time.time() - started

  wall, cpu = [], []
  for _ in range(_REPEAT.value):
    started, cpu_started = time.time(), time.process_time()
    metrics = learner.step(batch)
    wall.append(time.time() - started)
    cpu.append(time.process_time() - cpu_started)
  print(f'parameters of a network      {_num_parameters(agent.online.variables):,}\n'
        f'unrolls x steps + memory     {_BATCH_SIZE.value} x '
        f'{experiment.unroll_length} + {experiment.memory_length}\n'
        f'first step, with tracing     {first:.1f} s\n'
        f'a step, median of {_REPEAT.value}          {statistics.median(wall):.2f} s, '
        f'{statistics.median(cpu):.2f} s of CPU\n'
        f'peak memory                  {_peak_gib():.2f} GiB, '
        f'{built:.2f} GiB of it before the first step\n'
        f'loss                         {float(metrics["loss"]):.4f}')


if __name__ == '__main__':
  app.run(main)
