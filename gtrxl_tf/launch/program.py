"""What the programs of `binaries` share: how they start, and what they refuse."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import types
from typing import Any, Callable, List, Sequence

from absl import app
from absl import flags

# TensorFlow's C++ code reads these variables once. 0 shows all its messages.
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
# A program that starts others, as `gtrxl compare` does, leaves them the memory of a GPU.
os.environ.setdefault('TF_FORCE_GPU_ALLOW_GROWTH', 'true')
# What TensorFlow 2.16 and later print during their import at every level: lines of level
# INFO, and a note that nothing has chosen a level.
_NOISE = r'/^I[0-9]\{4\} \|^WARNING: All log messages before absl::InitializeLog/d'


class _QuietTensorFlow:
  """A finder of modules that leaves `_NOISE` out while TensorFlow is imported.

  Another process leaves it out, so that all else is shown even if this one crashes.
  """

  def find_spec(self, name: str, *_: Any) -> Any:
    if name != 'tensorflow':
      return None
    sys.meta_path.remove(self)
    spec = importlib.util.find_spec(name)
    if spec and shutil.which('sed') and os.environ['TF_CPP_MIN_LOG_LEVEL'] != '0':
      execute = spec.loader.exec_module

      def quietly(module: types.ModuleType) -> None:
        stderr = os.dup(2)
        with subprocess.Popen(['sed', '-u', _NOISE], stdin=subprocess.PIPE,
                              stdout=stderr) as sed:
          os.dup2(sed.stdin.fileno(), 2)
          try:
            execute(module)
          finally:
            os.dup2(stderr, 2)
            os.close(stderr)

      spec.loader.exec_module = quietly
    return spec


sys.meta_path.insert(0, _QuietTensorFlow())


def run(main: Callable[..., None]) -> None:
  """Parses the flags and runs `main`, as `absl.app.run` does.

  If a flag is missing or wrong, or an argument follows no flag, one line says so and the
  exit code is 2. `--help` exits with 0, and an interruption with 130.

  Args:
    main: the program. Its module's docstring shows how it is called. If `main` has a
      parameter, it gets the arguments that follow no flag; at least one is needed.
  """
  takes = main.__code__.co_varnames[:main.__code__.co_argcount]
  description = main.__globals__['__doc__']
  if takes:
    flags.FLAGS.set_gnu_getopt()  # Flags may follow such arguments.

  def parse(argv: Sequence[str]) -> List[str]:
    try:
      name, *others = flags.FLAGS(argv)
    except flags.Error as error:
      missing = re.search(r'Flag (--\w+) must have a value other than None', str(error))
      refuse(_missing(missing[1], description) if missing else str(error))
    except SystemExit:  # absl exits with 1 after the help.
      sys.exit(0)
    for flag in map(flags.FLAGS.__getitem__, flags.FLAGS):
      if flag.present:
        _check(flag)
    if takes and not others:
      refuse(_missing(takes[0].upper(), description))
    if others and not takes:  # absl would ignore them.
      refuse(f'{others[0]!r} follows no flag: expected --FLAG=VALUE, quoted if it has '
             'spaces')
    return [name, *others]

  try:
    app.run(lambda arguments: main(*[arguments[1:]] * len(takes)), flags_parser=parse)
  except KeyboardInterrupt:
    print('Interrupted.', file=sys.stderr)
    sys.exit(130)


def _check(flag: flags.Flag) -> None:
  """Expands a ~ in the value of a flag that is given, and refuses values without use."""
  flag.value = _expanded(flag.value)
  if flag.present > 1 and not isinstance(flag, (flags.MultiFlag, flags.BooleanFlag)):
    # absl would use the last.
    refuse(f'--{flag.name} is given {flag.present} times: expected it once')
  if flag.name.endswith('_dir') and not flag.value:  # It would be the working folder.
    refuse(f'--{flag.name} is empty: expected a folder')
  if flag.name.endswith('_dir') and '://' in flag.value:
    refuse(f'--{flag.name}={flag.value}: expected a folder on a disk: a bucket has no '
           'locks, renames and appends')
  if flag.name.endswith('host') and not flag.value:  # It would be all interfaces.
    refuse(f'--{flag.name} is empty: expected a host, or 0.0.0.0 for all interfaces')


def _expanded(value: Any) -> Any:
  """Expands a ~, which shells do not after a "="."""
  if isinstance(value, list):
    return [*map(_expanded, value)]
  return os.path.expanduser(value) if isinstance(value, str) else value


def _missing(what: str, description: str) -> str:
  example = re.search(
      r'^  ((?:gtrxl|python -m) (?:.*\\\n)*.*)', description, re.MULTILINE)
  return f'{what} is missing: expected ' + (
      re.sub(r'\s*\\\n\s*', ' ', example[1]) if example else 'a value')


def check_run(folder: Any) -> None:
  """Refuses a `RunFolder` in which no run was started."""
  if not folder.config.exists():
    refuse(f'{folder.config} does not exist: --root_dir is not the folder of a run')


def refuse(reason: str) -> None:
  """Says why the program does not start, and exits with 2."""
  print(f'Not started: {reason}', file=sys.stderr)
  sys.exit(2)
