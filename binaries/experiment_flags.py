"""The flags of an experiment: gin files, or an environment with a core and an agent."""

from typing import List, Tuple

from absl import flags

from gtrxl_tf.launch import program

GIN_FILE = flags.DEFINE_multi_string(
    'gin_file', [], 'Files of settings; later ones override.')
GIN_BINDINGS = flags.DEFINE_multi_string(
    'gin_bindings', [], 'Single settings, which override the files.')
ENV = flags.DEFINE_list(
    'env', [], 'In place of a gin file: the id of a gymnasium task, as CartPole-v1 or '
    'my_module:MyTask-v0, or the name of a class in gtrxl_tf.environments.')
CORE = flags.DEFINE_list('core', [], 'With --env: a name from gin/cores; gtrxl if not given.')
AGENT = flags.DEFINE_enum(
    'agent', None, ['ppo', 'r2d2', 'vmpo'], 'With --env: the agent; ppo if not given.')
STEPS = flags.DEFINE_integer(
    'steps', None, 'With --env: environment steps; a million if not given.', lower_bound=1)


def gin(env: str, core: str, *, needs_file: bool = True) -> Tuple[List[str], List[str]]:
  """Returns the gin files and the bindings that the flags stand for.

  Args:
    env: one of `ENV`, or '' if there is none.
    core: one of `CORE`, or '' if there is none.
    needs_file: whether `GIN_FILE` is needed without `ENV`.
  """
  # pylint: disable-next=import-outside-toplevel
  from gtrxl_tf.settings import config
  from gtrxl_tf.settings import shortcuts

  if not env:
    for flag in CORE, AGENT, STEPS:
      if flag.present:
        program.refuse(f'--{flag.name} without --env: expected --gin_file and '
                       '--gin_bindings alone, or --env')
    if needs_file and not GIN_FILE.value:
      program.refuse('--gin_file is missing: expected it, or --env, as --env=CartPole-v1')
    return GIN_FILE.value, GIN_BINDINGS.value
  try:
    files, lines = shortcuts.gin(env, core or None, AGENT.value, STEPS.value)
  except config.ConfigError as error:
    program.refuse(str(error))
  return [*files, *GIN_FILE.value], [*lines, *GIN_BINDINGS.value]
