"""Suggestions for names in gin files that do not exist: what might be meant."""

import difflib
import inspect
import pathlib
from typing import Callable, Collection, List, Mapping, Sequence


def parameters(target: Callable) -> List[str]:
  """Returns the names of a configurable's own parameters."""
  return [x.name for x in inspect.signature(target).parameters.values()
          if x.kind is not x.VAR_KEYWORD]


def for_file(stem: str, files: Sequence[str]) -> str:
  """Suggests gin files for one that does not exist.

  Args:
    stem: the name that was given, without `.gin`.
    files: the files that exist, as a user would type them.
  """
  stems = {name: pathlib.Path(name).stem for name in files}
  close = difflib.get_close_matches(stem, sorted(set(stems.values())), n=2)
  close = [name for similar in close for name in stems if stems[name] == similar]
  return f'. Did you mean {" or ".join(close)}?' if close else ''


def for_configurable(name: str, names: Collection[str]) -> str:
  """Suggests configurables of similar names, or an import."""
  hint = 'a name in a module of your own needs `import MODULE` in the gin file'
  close = difflib.get_close_matches(name, sorted(names))
  return (f'. Did you mean {" or ".join(close)}? Otherwise, {hint}.' if close
          else f': {hint}, and MODULE.py beside that file.')


def for_macro(name: str, names: Collection[str]) -> str:
  """Suggests macros of similar names, or a setting."""
  close = difflib.get_close_matches(name, sorted(names))
  return (f'. Did you mean {" or ".join(close)}?' if close
          else ': expected Class.argument = value, as in Experiment.seed = 1')


def for_parameter(owner: Callable, parameter: str, names: Mapping[Callable, str]) -> str:
  """Suggests parameters for one that a configurable does not have.

  It suggests parameters of the same name that a base class or a subclass of the owner
  has; or else the owner's parameters that end with that word; or else any others of the
  same or a similar name.

  Args:
    owner: the configurable.
    parameter: the name that it does not have.
    names: the library's configurables, and their names in gin files.
  """
  known = {f'{other}.{x}': target for target, other in names.items()
           for x in parameters(target)}
  same = [x for x in known if x.endswith(f'.{parameter}')]
  related = [x for x in same if inspect.isclass(owner) and inspect.isclass(known[x])
             and (issubclass(owner, known[x]) or issubclass(known[x], owner))]
  # `Checkpoints.period` might be meant by `checkpoint_period`.
  by_words = {x.replace('.', '_').lower(): x for x in known}
  similar = difflib.get_close_matches(parameter, by_words, n=1, cutoff=0.9)
  own = parameters(owner)
  longer = [x for x in own if x.endswith(f'_{parameter}')]
  close = ((related or longer or same)[:3] or [by_words[x] for x in similar]
           or difflib.get_close_matches(parameter, own))
  return (f'Did you mean {" or ".join(close)}?' if close
          else f'Known: {", ".join(own)}.')
