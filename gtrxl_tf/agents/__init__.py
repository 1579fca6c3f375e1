"""Agents and their policies.

To add an agent, add a file here and its classes to the table below. A class is imported
when it is first used.
"""

import importlib
from typing import Any, List

# Each class's module.
_MODULES = {
    'ActorCriticPolicy': 'policy',
    'CQLAgent': 'cql',
    'CQLPolicy': 'cql',
    'CQLSACActor': 'cql_sac',
    'CQLSACAgent': 'cql_sac',
    'DecisionAgent': 'decision',
    'DecisionPolicy': 'decision',
    'DistillationAgent': 'distillation',
    'DistillationPolicy': 'distillation',
    'EpsilonGreedy': 'r2d2',
    'EpsilonGreedyPolicy': 'r2d2',
    'HistoryBatch': 'distillation',
    'NetworkPolicy': 'policy',
    'PPOAgent': 'ppo',
    'R2D2Agent': 'r2d2',
    'Segments': 'decision',
    'TAPAgent': 'tap',
    'TAPPolicy': 'tap',
    'VMPOAgent': 'vmpo',
}

__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
  """Imports a class (PEP 562)."""
  if name in _MODULES:
    return getattr(importlib.import_module(f'{__name__}.{_MODULES[name]}'), name)
  raise AttributeError(f'module {__name__!r} has no attribute {name!r}')


def __dir__() -> List[str]:
  return sorted({*globals(), *__all__})
