"""Every agent that a learner trains, at its smallest size, with batches; for tests."""

import functools
from typing import Any, Callable, Dict, NamedTuple

from dm_env import specs
import numpy as np
import tensorflow as tf

from gtrxl_tf import cores
from gtrxl_tf import networks
from gtrxl_tf import testing
from gtrxl_tf.agents import agent as agent_lib
from gtrxl_tf.agents import cql
from gtrxl_tf.agents import decision
from gtrxl_tf.agents import distillation
from gtrxl_tf.agents import ppo
from gtrxl_tf.agents import r2d2
from gtrxl_tf.agents import tap
from gtrxl_tf.networks import cql as cql_network
from gtrxl_tf.networks import decision as decision_network
from gtrxl_tf.networks import distillation as distillation_network
from gtrxl_tf.networks import tap as tap_network
from gtrxl_tf.networks import torsos
from gtrxl_tf.replay import unroll
from gtrxl_tf.training import devices
from gtrxl_tf.training import learner as learner_lib

_B, _T, _D = 4, 4, 4
_OBSERVATION_SPEC = specs.Array((4,), np.float32)
_BYTES = specs.DiscreteArray(3, np.uint8)  # Actions as histories have them.


class Tiny(NamedTuple):
  """An agent and its batches."""
  make: Callable[[], agent_lib.Agent]
  batch: Callable[[int], Any]  # Called with a seed: [4, ...], rows of several lengths.


def _with_variables(network, agent):
  """Makes an agent of a network whose variables are random."""
  network.create_variables(_OBSERVATION_SPEC)
  random = np.random.RandomState(0)
  for variable in network.trainable_variables:
    variable.assign(0.5 * random.randn(*variable.shape))
  return agent(network)


def _vmpo():
  return testing.tiny_agent(
      lambda: testing.tiny_network(num_values=2, popart=networks.PopArt))


def _ppo():
  online, target = (testing.tiny_network(num_values=2, popart=networks.PopArt)
                    for _ in range(2))
  return ppo.PPOAgent(online, target)


def _r2d2():
  return r2d2.R2D2Agent(*(testing.tiny_network(num_values=2) for _ in range(2)),
                        burn_in=2, target_update_period=1)


def _unrolls(seed):
  # No loss reads the ids.
  return testing.random_unrolls(seed, _B, num_tasks=2)._replace(
      target_step=(), unroll_id=())


def _sample(seed):
  weight = np.random.RandomState(seed).rand(_B).astype(np.float32)
  return unroll.Sample(_unrolls(seed), tf.constant(weight))


def _decision(core):
  return _with_variables(
      decision_network.DecisionNetwork(
          testing.DISCRETE, torsos.VectorTorso((_D,)), core()),
      decision.DecisionAgent)


def _cql():
  return _with_variables(
      cql_network.CQLNetwork(
          testing.DISCRETE, torsos.VectorTorso((_D,)), cores.Memoryless(1, _D)),
      cql.CQLAgent)


def _tap():
  tf.keras.utils.set_random_seed(0)  # For the codebook.
  return _with_variables(
      tap_network.TAPNetwork(
          testing.CONTINUOUS, num_steps=_T, steps_per_code=2, num_codes=3, code_dim=_D,
          num_layers=1, model_dim=_D, num_heads=2, dropout=0.0),
      tap.TAPAgent)


def _valid():
  valid = np.arange(_T) < np.array([[_T], [_T - 1], [1], [_T]])
  is_first = np.zeros([_B, _T], bool)
  is_first[:, 0] = True
  return {'valid': tf.constant(valid), 'is_first': tf.constant(is_first)}


def _segments(seed, state=(), action_spec=testing.DISCRETE):
  unrolls = testing.random_unrolls(seed, _B, _T - 1, action_spec)
  return decision_network.Segments(
      return_to_go=unrolls.reward, observation=unrolls.observation,
      action=unrolls.action, reward=unrolls.reward, discount=tf.ones([_B, _T]),
      state=state, **_valid())


def _distillation(**settings):
  core = cores.SegmentTransformer(**{**dict(
      num_layers=1, model_dim=_D, num_heads=2, head_dim=2, mlp_dim=_D, dropout=0.0,
      attention_dropout=0.0), **settings})
  return _with_variables(
      distillation_network.DistillationNetwork(_BYTES, core, num_positions=_T),
      distillation.DistillationAgent)


def _histories(seed):
  unrolls = testing.random_unrolls(seed, _B, _T)
  flags = _valid()
  done = np.random.RandomState(seed).rand(_B, _T + 1) < 0.3
  return distillation.HistoryBatch(
      distillation_network.Histories(
          unrolls.observation, tf.cast(unrolls.action, tf.uint8), unrolls.reward,
          tf.constant(done), flags['is_first'],
          tf.tile(tf.range(_T)[tf.newaxis], [_B, 1])), flags['valid'])


def _rate():
  return cores.RATE(
    1, _D, 2, 2, num_memory_tokens=1, segment_length=6)
def _ed():
  return _distillation(
    segment_length=_T, recurrence='same_layer', memory_length=2)


def _with_state(batch, make):
  """Makes batches with states at the start, so that steps return `carried`."""
  def state():
    return make().network.initial_state(_B)
  return lambda seed: batch(seed)._replace(state=state())


AGENTS: Dict[str, Tiny] = {
    'vmpo': Tiny(_vmpo, _unrolls),
    'ppo': Tiny(_ppo, _unrolls),
    'r2d2': Tiny(_r2d2, _sample),
    'rate': Tiny(lambda: _decision(_rate),
                 _with_state(_segments, lambda: _decision(_rate))),
    'dt': Tiny(lambda: _decision(lambda: cores.RATE(
        1, _D, 2, 2, segment_length=3 * _T, num_memory_tokens=0)), _segments),
    'mambadm': Tiny(lambda: _decision(lambda: cores.MambaDM(1, _D)), _segments),
    'cql': Tiny(_cql, _segments),
    'tap': Tiny(_tap, functools.partial(_segments, action_spec=testing.CONTINUOUS)),
    'adf': Tiny(lambda: _distillation(segment_length=_T), _histories),
    'ed': Tiny(_ed, _with_state(_histories, _ed)),
}


# With 1e-8, a gradient that is 0 up to rounding would make a full step.
ADAM = functools.partial(tf.keras.optimizers.legacy.Adam, 1e-2, epsilon=1e-4)


def train(name: str, strategy: tf.distribute.Strategy,
          make_optimizer: Callable[[], learner_lib.Optimizer] = ADAM
          ) -> Dict[str, np.ndarray]:
  """Takes two steps; returns their metrics, and all variables after them."""
  make, batch = AGENTS[name]
  with strategy.scope():
    agent = make()
    optimizer = make_optimizer()
  learner = learner_lib.Learner(agent, optimizer, strategy, clip_norm=0.1)
  found = {}
  for seed in range(2):
    metrics = dict(learner.step(devices.share_out(batch(seed), strategy)))
    carried = tf.nest.flatten(metrics.pop('carried', ()))
    metrics.update((f'carried_{i}', x) for i, x in enumerate(carried))
    found.update((f'{seed}_{name}', x.numpy()) for name, x in metrics.items())
  variables = (*agent.variables, *optimizer.variables())
  found.update((f'variable_{i}', x.numpy()) for i, x in enumerate(variables))
  return found
