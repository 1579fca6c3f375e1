"""Suggestions for names in gin files that do not exist: what might be meant."""

import difflib
import inspect
import pathlib
from typing import Callable, Collection, List, Mapping, Sequence


def parameters(target: Callable) -> List[str]:
  """Returns the names of a configurable's own parameters."""
  return [x.name for x in inspect.signature(target).parameters.values()
          if x.kind is not x.VAR_KEYWORD]


def for_file(name: str, files: Sequence[str]) -> str:
  """Suggests gin files of similar names, whichever folders they are in."""
  stems = {file: pathlib.Path(file).stem for file in files}
  close = difflib.get_close_matches(pathlib.Path(name).stem, set(stems.values()), n=2)
  return _did_you_mean([file for file in files if stems[file] in close])


def for_configurable(name: str, names: Collection[str]) -> str:
  """Suggests configurables of similar names, or an import."""
  return _did_you_mean(difflib.get_close_matches(name, sorted(names))) + (
      ' A class of your own needs `import MODULE` in the gin file, and MODULE.py beside it.')


def for_macro(name: str, names: Collection[str]) -> str:
  """Suggests macros of similar names, or a setting."""
  return _did_you_mean(difflib.get_close_matches(name, sorted(names))) or (
      ': expected Class.argument = value, as in Experiment.seed = 1')


def _did_you_mean(close: Sequence[str]) -> str:
  return f'. Did you mean {" or ".join(close)}?' if close else ''


def for_parameter(owner: Callable, parameter: str, names: Mapping[Callable, str]) -> str:
  """Suggests parameters for one that a configurable does not have.

  It suggests parameters of the same name, first those of a base class or a subclass of the
  owner; or else the owner's parameters of a similar name, or all of them.

  Args:
    owner: the configurable.
    parameter: the name that it does not have.
    names: the library's configurables, and their names in gin files.
  """
  def is_far(target):
    return not (inspect.isclass(owner) and inspect.isclass(target)
                and (issubclass(owner, target) or issubclass(target, owner)))

  own = parameters(owner)
  longer = [x for x in own if x.endswith(f'_{parameter}')]
  same = sorted((is_far(target), f'{name}.{parameter}') for target, name in names.items()
                if parameter in parameters(target))
  near = [name for far, name in same if not far]
  close = near or longer or [name for _, name in same] or difflib.get_close_matches(
      parameter, own)
  return (f'Did you mean {" or ".join(close[:3])}?' if close
          else f'Known: {", ".join(own)}.')
