"""Runs the programs of `binaries`, as commands of `gtrxl` or of `python -m gtrxl_tf`:

  gtrxl train --gin_file=numpad_2x2_cpu.gin --root_dir=runs/numpad_2x2
"""

import ast
import difflib
import importlib.util
import pathlib
import runpy
import sys
from typing import Dict

# A wheel has the programs within the library, and a clone beside it.
_PROGRAMS = (importlib.util.find_spec('gtrxl_tf.binaries')
             or importlib.util.find_spec('binaries'))


def commands() -> Dict[str, str]:
  """Returns the first line of every command's description, by the command's name."""
  found = {}
  for path in sorted(pathlib.Path(_PROGRAMS.origin).parent.glob('*.py')):
    text = path.read_text(encoding='utf-8')
    is_program = text.endswith('\n  program.run(main)\n')
    if is_program and not path.stem.endswith('_testing'):  # A wheel has none of these.
      found[path.stem] = ast.get_docstring(ast.parse(text)).partition('\n')[0]
  return found


def main() -> None:
  """Runs the command that the first argument names, or lists all."""
  known = commands()
  name = sys.argv[1] if len(sys.argv) > 1 else '--help'
  if name in ('-h', '--help', 'help'):
    print('Memory for reinforcement learning agents.\n\n'
          '  gtrxl COMMAND --help    shows what a command does, and its flags\n'
          '  gtrxl --version         shows the version\n\nCommands:\n\n'
          + '\n'.join(f'  {command:<18}{line}' for command, line in known.items()))
  elif name == '--version':
    import gtrxl_tf  # pylint: disable=import-outside-toplevel
    print(gtrxl_tf.__version__)
  elif name in known:
    # As `python -m` would, so that the processes it starts find the module.
    sys.argv = [name, *('--help' if x == '-h' else x for x in sys.argv[2:])]
    runpy.run_module(f'{_PROGRAMS.name}.{name}', run_name='__main__', alter_sys=True)
  else:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f'Did you mean {close[0]}? ' if close else ''
    print(f'gtrxl: no command {name!r}. {hint}`gtrxl --help` lists the commands.',
          file=sys.stderr)
    sys.exit(2)


if __name__ == '__main__':
  main()
