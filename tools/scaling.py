r"""Measures how actors, queue and learner keep up with each other on this machine.

  python -m tools.scaling --gin_file=gin/gtrxl/t_maze_30_cpu.gin --actors=1,2,4,8 \
      --gin_bindings='OnlineExperiment.environments_per_actor = 8'
  python -m tools.scaling --gin_file=gin/gtrxl/dmlab30.gin --traffic \
      --gin_bindings='OnlineExperiment.environments_per_actor = 1' \
      --gin_bindings='OnlineExperiment.num_actors = 510'

The first prints a table with a row for each number of actors. The second prints how
much data goes between the parts, and the CPU time of acting, from which you can estimate
the needs of a larger run. It does not need DeepMind Lab; a stand-in gives its specs.
"""

import statistics
import sys
import tempfile
import time
from typing import Any, List, NamedTuple, Sequence

from absl import flags
import gin
import tensorflow as tf

from binaries import settings
from gtrxl_tf.environments import dmlab_testing
from gtrxl_tf.launch import exit_codes
from gtrxl_tf.launch import prepare
from gtrxl_tf.launch import program
from gtrxl_tf.launch import supervisor as supervisor_lib
from gtrxl_tf.replay import packed_weights
from gtrxl_tf.settings import config
from gtrxl_tf.settings import seeds
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import run_folder
from gtrxl_tf.training.online import actor
from gtrxl_tf.training.online import experiment as experiment_lib
from gtrxl_tf.training.online import inference_call
import tools

flags.adopt_module_key_flags(settings)

_ACTORS = flags.DEFINE_list('actors', '1,2,4,8', 'Numbers of actors.')
_SECONDS = flags.DEFINE_float('seconds', 30, 'Seconds to measure each.', lower_bound=1)
_TRAFFIC = flags.DEFINE_bool(
    'traffic', False, 'Print the data that goes between the parts instead.')

TITLES = ('actors', 'environments', 'environment steps/s', 'learner steps/s',
          'learner idle', 'data age, learner steps', 'oldest', 'allowed',
          'refused as stale', 'queue')
CAPTION = (
    'Idle: the share of time in which the learner waits for unrolls. Data age: mean '
    "number of learner steps since an unroll's weights were the newest target network. "
    'Refused: the share of unrolls that came when they were too old. Queue: items that '
    'waited, median.')
_WARM_UP_ROWS = 3


def measure(gin_files: Sequence[str], gin_bindings: Sequence[str], num_actors: int,
            seconds: float) -> List[str]:
  """Measures a run, and returns a row of the table with `TITLES`.

  Args:
    gin_files: files of settings.
    gin_bindings: single settings.
    num_actors: how many actors the run has.
    seconds: how long to measure, from the third row of metrics on.

  Raises:
    exit_codes.RunFailed: the run diverged, or a part of it died too often.
  """
  gin.clear_config()
  experiment = prepare.prepare(gin_files, [
      *gin_bindings, f'OnlineExperiment.num_actors = {num_actors}',
      f'OnlineExperiment.environment_steps = {10**12}'])
  with tempfile.TemporaryDirectory() as root:
    folder = run_folder.RunFolder(root)
    supervisor = supervisor_lib.Supervisor(experiment, folder)
    supervisor.start()
    rows = []
    try:
      while len(rows) <= _WARM_UP_ROWS + 1 or (
          rows[-1]['seconds'] - rows[_WARM_UP_ROWS]['seconds'] < seconds):
        time.sleep(0.5)
        supervisor.restart_the_dead()
        if folder.diverged.exists():
          raise exit_codes.RunFailed(f'{folder.diverged} says why')
        rows = metrics_csv.read_metrics(folder.metrics)
    finally:
      supervisor.stop()
  first, *measured = rows[_WARM_UP_ROWS:]
  last = measured[-1]

  def gone(name: str) -> float:
    return last[name] - first[name]

  elapsed = gone('seconds')
  queue_length = statistics.median(row['queue_length'] for row in measured)
  return [
      f'{num_actors}', f'{num_actors * experiment.environments_per_actor}',
      f'{gone("environment_steps") / elapsed:,.0f}',
      f'{gone("learner_step") / elapsed:.1f}',
      f'{statistics.mean(row["learner_idle"] for row in measured):.2f}',
      f'{statistics.mean(row["data_age"] for row in measured):.1f}',
      f'{last["oldest_unroll"]:.0f}', f'{last["oldest_allowed"]:.0f}',
      f'{gone("unrolls_stale") / (gone("unrolls_stale") + gone("unrolls")):.3f}',
      f'{queue_length:.0f}']


class Traffic(NamedTuple):
  """Bytes, before Reverb compresses them."""
  row: int      # Written by an actor for each step of each environment.
  unroll: int   # Read by the learner for each unroll of a batch, with its memory.
  weights: int  # Read by an actor at each update of the target network.
  call: int     # Between an inference server and an actor, for each step of each
                # environment: its time step and its action.


def traffic(experiment: experiment_lib.OnlineExperiment) -> Traffic:
  """Returns how many bytes the parts of an online experiment exchange."""

  def size(nest: Any) -> int:
    return sum(
        spec.shape.num_elements() * spec.dtype.size for spec in tf.nest.flatten(nest))

  row = experiment.row_spec()
  signature = experiment.unroll_signature()
  num = experiment.environments_per_actor
  call = tf.nest.map_structure(
      lambda spec: tf.TensorSpec(spec.shape[1:], spec.dtype),
      (inference_call.seen_spec(experiment), inference_call.action_spec(experiment)))
  return Traffic(size(row) // num, size(signature) // num,
                 size(packed_weights.specs(experiment.acting_network.variables,
                                    experiment.half_transfer)), size(call))


def measure_acting(experiment: experiment_lib.OnlineExperiment, num_steps: int
                   ) -> float:
  """Returns the median CPU seconds of an actor's step: its environments and network."""
  rollout = actor.make_rollout(
      experiment.make_policy(experiment.acting_network, with_record=True),
      experiment.make_environments(
          experiment.environments_per_actor, seeds.Stream.ACTING),
      tf.constant([0, 1]))
  seconds = []
  for _ in range(2 + num_steps):
    started = time.process_time()
    rollout.step()
    seconds.append(time.process_time() - started)
  return statistics.median(seconds[2:])  # The first ones compile.


def _print_traffic() -> None:
  with dmlab_testing.deepmind_lab():
    experiment = prepare.prepare(settings.GIN_FILE.value, settings.GIN_BINDINGS.value)
    tools.check_online(experiment, 'gin_file', settings.GIN_FILE.value)
    acting = measure_acting(experiment, num_steps=20)
  sizes = traffic(experiment)
  num = experiment.environments_per_actor
  mebi = 2**20
  batch = experiment.batch_size * sizes.unroll
  for what, value in (
      ('an environment step, written', f'{sizes.row / 1024:.1f} KiB'),
      ('an unroll, sampled with its memory', f'{sizes.unroll / mebi:.2f} MiB'),
      (f'a learner step of {experiment.batch_size} unrolls',
       f'{batch / mebi:,.0f} MiB'),
      ('weights, for each actor and target update', f'{sizes.weights / mebi:.1f} MiB'),
      ('an environment step, with an inference server', f'{sizes.call / 1024:.1f} KiB'),
      (f"CPU time of an actor's step in {num} environment(s)",
       f'{1e3 * acting:.1f} ms')):
    tools.print_row([what, value])


def _print_scaling() -> None:
  tools.print_row(TITLES)
  tools.print_row(['--:'] * len(TITLES))
  for num_actors in map(int, _ACTORS.value):
    tools.print_row(measure(
        settings.GIN_FILE.value, settings.GIN_BINDINGS.value, num_actors,
        _SECONDS.value))
  print(f'\n{CAPTION}')


def main() -> None:
  tools.check_numbers('actors', _ACTORS.value)
  try:
    if _TRAFFIC.value:
      _print_traffic()
    else:
      _print_scaling()
  except (config.ConfigError, exit_codes.RunFailed) as error:
    sys.exit(f'Stopped: {error}')


if __name__ == '__main__':
  program.run(main)
