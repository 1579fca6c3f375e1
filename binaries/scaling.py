r"""Measures how actors, queue and learner keep up with each other on this machine.

  gtrxl scaling --gin_file=gin/gtrxl/t_maze_30_cpu.gin --actors=1,2,4,8 \
      --gin_bindings='OnlineExperiment.environments_per_actor = 8'
  gtrxl scaling --gin_file=gin/gtrxl/dmlab30.gin --traffic \
      --gin_bindings='OnlineExperiment.environments_per_actor = 1' \
      --gin_bindings='OnlineExperiment.num_actors = 510'

The first prints a table with a row for each number of actors. The second prints how
much data goes through Reverb, and the CPU time of moving it and of acting, from which
you can estimate the needs of a larger run. It does not need DeepMind Lab; a stand-in
gives its specs.
"""

import sys

from absl import flags

import binaries
from binaries import settings

flags.adopt_module_key_flags(settings)

_ACTORS = flags.DEFINE_list('actors', '1,2,4,8', 'Numbers of actors.')
_SECONDS = flags.DEFINE_float('seconds', 30, 'Seconds to measure each.', lower_bound=1)
_TRAFFIC = flags.DEFINE_bool(
    'traffic', False, 'Print the data that goes through Reverb instead.')
_UNROLLS = flags.DEFINE_integer(
    'unrolls', 8, 'With --traffic, how many to write and to sample.', lower_bound=1)


def _print_traffic() -> None:
  # pylint: disable=import-outside-toplevel
  from gtrxl_tf.analysis.benchmarks import scaling
  from gtrxl_tf.environments import dmlab_stand_in
  from gtrxl_tf.launch import prepare

  with dmlab_stand_in.deepmind_lab():
    experiment = prepare.prepare(settings.GIN_FILE.value, settings.GIN_BINDINGS.value)
    binaries.check_online(experiment, 'gin_file', settings.GIN_FILE.value)
    acting = scaling.measure_acting(experiment, num_steps=20)
  sizes = scaling.traffic(experiment)
  rate = scaling.measure_reverb(experiment, _UNROLLS.value)
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
      ('CPU time to write an unroll: writer, server',
       f'{1e3 * rate.write / num:.1f} ms, {1e3 * rate.server_write / num:.1f} ms'),
      ('CPU time to sample an unroll: reader, server',
       f'{1e3 * rate.read / num:.1f} ms, {1e3 * rate.server_read / num:.1f} ms'),
      (f"CPU time of an actor's step in {num} environment(s)",
       f'{1e3 * acting:.1f} ms')):
    binaries.print_row([what, value])


def _print_scaling() -> None:
  from gtrxl_tf.analysis.benchmarks import scaling  # pylint: disable=import-outside-toplevel

  binaries.print_row(scaling.TITLES)
  binaries.print_row(['--:'] * len(scaling.TITLES))
  for num_actors in map(int, _ACTORS.value):
    binaries.print_row(scaling.measure(
        settings.GIN_FILE.value, settings.GIN_BINDINGS.value, num_actors,
        _SECONDS.value))
  print(f'\n{scaling.CAPTION}')


def main() -> None:
  binaries.check_numbers('actors', _ACTORS.value)
  # pylint: disable=import-outside-toplevel
  from gtrxl_tf.launch import exit_codes
  from gtrxl_tf.settings import config

  try:
    if _TRAFFIC.value:
      _print_traffic()
    else:
      _print_scaling()
  except (config.ConfigError, exit_codes.RunFailed) as error:
    sys.exit(f'Stopped: {error}')


if __name__ == '__main__':
  binaries.run(main)
