r"""Plays episodes with the policy of a run and prints the results.

  gtrxl evaluate --root_dir=runs/t_maze_30 --num_episodes=1000 \
      --gin_bindings='TMaze.corridor_length = 60'

The policy of an online run acts as it was exported, so that only settings of its
environment have an effect. The policy of an offline run acts with all settings given
here, such as a target return or noise in place of its memory:

  gtrxl evaluate --root_dir=runs/t_maze_90 \
      --gin_bindings='RATE.memory_noise = 1.0'

With --sweep it does so for each value of a setting, or with each gin file.

With --video, three episodes are filmed, as ROOT/videos/*.gif: what the environment's
method render() returns, or the image that it shows the agent.

  gtrxl evaluate --root_dir=runs/numpad_2x2 --video

A policy that learns while it acts plays learning processes, whose number and length are
settings (HistoryCollector.num_evaluation), not flags. With --sweep, the curves of all
values are drawn as ROOT/evaluation.png:

  gtrxl evaluate --root_dir=runs/dr_cpu_ed \
      --sweep=DistillationPolicy.position_scale=0.5,1.0,2.0
"""

import functools
import sys

from absl import flags

from gtrxl_tf.launch import program

_ROOT_DIR = flags.DEFINE_string('root_dir', None, "The run's folder.", required=True)
_NUM_EPISODES = flags.DEFINE_integer(
    'num_episodes', None, 'How many to play, 100 by default. It is rounded up to a multiple '
    'of the number of environments.', lower_bound=1)
_NUM_ENVIRONMENTS = flags.DEFINE_integer(
    'num_environments', 50,
    'The most environments to play side by side.', lower_bound=1)
_GIN_FILE = flags.DEFINE_multi_string(
    'gin_file', [], "Files of settings, which override the run's.")
_SWEEP = flags.DEFINE_string(
    'sweep', None, 'SETTING=VALUE,VALUE,... or FILE,FILE,...: evaluates with each '
    'value of a setting, or with each gin file.')
_VIDEO = flags.DEFINE_bool('video', False, 'Also film three episodes.')
_GREEDY = flags.DEFINE_bool(
    'greedy', False, 'Take the most likely actions instead of sampling them.')
_GIN_BINDINGS = flags.DEFINE_multi_string(
    'gin_bindings', [], "Single settings, which override the files'.")


def main() -> None:
  # pylint: disable=import-outside-toplevel
  from gtrxl_tf.analysis import run_evaluation
  from gtrxl_tf.launch import exit_codes
  from gtrxl_tf.settings import config
  from gtrxl_tf.training import run_folder

  folder = run_folder.RunFolder(_ROOT_DIR.value)
  program.check_run(folder)
  try:
    run_evaluation.evaluate(
        folder, _GIN_FILE.value, _GIN_BINDINGS.value, _SWEEP.value,
        _NUM_EPISODES.value, _NUM_ENVIRONMENTS.value,
        show=functools.partial(print, flush=True), video=_VIDEO.value,
        greedy=_GREEDY.value)
  except config.ConfigError as error:
    program.refuse(str(error))
  except exit_codes.RunFailed as error:
    sys.exit(f'Stopped: {error}')


if __name__ == '__main__':
  program.run(main)
