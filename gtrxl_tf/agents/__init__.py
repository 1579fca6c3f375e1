"""Agents and their policies.

`AGENTS` lists the agents by name. To add an agent, add a file here and its classes to the
tables below. A class is imported when it is first used.
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
    'NetworkPolicy': 'policy',
    'PPOAgent': 'ppo',
    'R2D2Agent': 'r2d2',
    'Segments': 'decision',
    'TAPAgent': 'tap',
    'TAPPolicy': 'tap',
    'VMPOAgent': 'vmpo',
}

_AGENTS = {
    'cql': 'CQLAgent',
    'cql_sac': 'CQLSACAgent',
    'decision': 'DecisionAgent',
    'distillation': 'DistillationAgent',
    'ppo': 'PPOAgent',
    'r2d2': 'R2D2Agent',
    'tap': 'TAPAgent',
    'vmpo': 'VMPOAgent',
}

__all__ = ['AGENTS', *_MODULES]  # pylint: disable=undefined-all-variable


def __getattr__(name: str) -> Any:
  """Imports a class, or all agents for `AGENTS` (PEP 562)."""
  if name == 'AGENTS':
    return {key: __getattr__(agent) for key, agent in _AGENTS.items()}
  if name in _MODULES:
    return getattr(importlib.import_module(f'{__name__}.{_MODULES[name]}'), name)
  raise AttributeError(f'module {__name__!r} has no attribute {name!r}')


def __dir__() -> List[str]:
  return sorted({*globals(), *__all__})
