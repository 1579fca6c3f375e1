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
from typing import Any, Dict, Iterator

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

_CAPTION = (
    'Idle: the share of time in which the learner waits for unrolls. Data age: mean '
    "number of learner steps since an unroll's weights were the newest target network. "
    'Refused: the share of unrolls that came when they were too old. Queue: items that '
    'waited, median.')
_WARM_UP_ROWS = 3


def _measure(num_actors: int) -> Dict[str, str]:
  """Measures a run with this number of actors, from the third row of metrics on.

  Raises:
    exit_codes.RunFailed: the run diverged, or a part of it died too often.
  """
  gin.clear_config()
  experiment = prepare.prepare(settings.GIN_FILE.value, [
      *settings.GIN_BINDINGS.value, f'OnlineExperiment.num_actors = {num_actors}',
      f'OnlineExperiment.environment_steps = {10**12}'])
  with tempfile.TemporaryDirectory() as root:
    folder = run_folder.RunFolder(root)
    supervisor = supervisor_lib.Supervisor(experiment, folder)
    supervisor.start()
    rows = []
    try:
      while len(rows) <= _WARM_UP_ROWS + 1 or (
          rows[-1]['seconds'] - rows[_WARM_UP_ROWS]['seconds'] < _SECONDS.value):
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
  return {
      'actors': f'{num_actors}',
      'environments': f'{num_actors * experiment.environments_per_actor}',
      'environment steps/s': f'{gone("environment_steps") / elapsed:,.0f}',
      'learner steps/s': f'{gone("learner_step") / elapsed:.1f}',
      'learner idle': f'{statistics.mean(row["learner_idle"] for row in measured):.2f}',
      'data age, learner steps':
          f'{statistics.mean(row["data_age"] for row in measured):.1f}',
      'oldest': f'{last["oldest_unroll"]:.0f}', 'allowed': f'{last["oldest_allowed"]:.0f}',
      'refused as stale':
          f'{gone("unrolls_stale") / (gone("unrolls_stale") + gone("unrolls")):.3f}',
      'queue': f'{queue_length:.0f}'}


def _acting_seconds(experiment: experiment_lib.OnlineExperiment) -> float:
  """Returns the median CPU seconds of an actor's step: its environments and network."""
  rollout = actor.make_rollout(
      experiment.make_policy(experiment.acting_network, with_record=True),
      experiment.make_environments(
          experiment.environments_per_actor, seeds.Stream.ACTING),
      tf.constant([0, 1]))
  seconds = []
  for _ in range(22):
    started = time.process_time()
    rollout.step()
    seconds.append(time.process_time() - started)
  return statistics.median(seconds[2:])  # The first ones compile.


def _bytes(nest: Any) -> int:
  """Counts the bytes of specs; a first axis of any length counts as 1."""
  return sum(tf.TensorShape(n or 1 for n in x.shape).num_elements() * x.dtype.size
             for x in tf.nest.flatten(nest))


def _traffic() -> Iterator[Dict[str, str]]:
  """Yields what the parts of a run exchange, before Reverb compresses it."""
  with dmlab_testing.deepmind_lab():
    experiment = prepare.prepare(settings.GIN_FILE.value, settings.GIN_BINDINGS.value)
    tools.check_online(experiment, settings.GIN_FILE.value)
    acting = _acting_seconds(experiment)
  num, kibi, mebi = experiment.environments_per_actor, 2**10, 2**20
  unroll = _bytes(experiment.unroll_signature()) // num
  weights = packed_weights.specs(
      experiment.acting_network.variables, experiment.half_transfer)
  call = inference_call.seen_spec(experiment), inference_call.action_spec(experiment)
  for what, value in (
      ('an environment step, written',
       f'{_bytes(experiment.row_spec()) / num / kibi:.1f} KiB'),
      ('an unroll, sampled with its memory', f'{unroll / mebi:.2f} MiB'),
      (f'a learner step of {experiment.batch_size} unrolls',
       f'{experiment.batch_size * unroll / mebi:,.0f} MiB'),
      ('weights, for each actor and target update', f'{_bytes(weights) / mebi:.1f} MiB'),
      ('an environment step, with an inference server',
       f'{_bytes(call) / kibi:.1f} KiB'),
      (f"CPU time of an actor's step in {num} environment(s)",
       f'{1e3 * acting:.1f} ms')):
    yield {'what': what, 'how much': value}


def main() -> None:
  actors = tools.numbers(_ACTORS)
  try:
    if _TRAFFIC.value:
      tools.print_table(_traffic())
    else:
      tools.print_table(map(_measure, actors))
      print(f'\n{_CAPTION}')
  except (config.ConfigError, exit_codes.RunFailed) as error:
    sys.exit(f'Stopped: {error}')


if __name__ == '__main__':
  program.run(main)
