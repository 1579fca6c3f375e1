"""Devices: the `tf.distribute` strategy of a learner, and the shares of a batch."""

import functools
import json
import os
import socket
from typing import Any, Callable, ContextManager, List, Optional, Sequence
from urllib import error as urllib_error

import numpy as np
import tensorflow as tf

from gtrxl_tf.cores import saving
from gtrxl_tf.settings import config

STRATEGIES = ('default', 'mirrored', 'multiworker', 'tpu')

_CONNECT_SECONDS = 10
_TF_CONFIG_EXAMPLE = (
    '{"cluster": {"worker": ["HOST:PORT", "HOST:PORT"]}, '
    '"task": {"type": "worker", "index": 0}}')


# Weights times rows below which a learner step is faster on one thread, see
# `threads_of_step`.
_SMALL_STEP = 5e8


def threads_of_step(num_weights: int, num_rows: int) -> int:
  """Returns how many threads a learner needs when other parts run: 1, or 0 for all.

  The operations of a small step are too short to be shared: on two cores two threads
  cost 20 % more CPU time than one at 2.8e8 weights times rows (environment steps in a
  batch), and saved a fifth of the wall time; at 1.0e9 they cost 2 % and saved half.
  """
  return 1 if num_weights * num_rows < _SMALL_STEP else 0


def set_threads(threads: Optional[int]) -> None:
  """Sets TensorFlow's threads; must be called before TensorFlow is used.

  Args:
    threads: how many an operation uses, and how many operations run at once; 0 for
      one per core; None leaves what was set.
  """
  if threads is not None:
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)


def executor_for(function: Any) -> str:
  """Returns the executor that runs a function with the least CPU time.

  With one thread, a small learner step takes 6 % less on the executor for a single
  thread. An operation that runs a function, such as a loop, would wait forever there.

  Args:
    function: a concrete function, for one replica.

  Returns:
    A type for `tf.experimental.function_executor_type`; '' for the usual one.
  """
  if (tf.config.threading.get_inter_op_parallelism_threads() != 1
      or tf.config.list_physical_devices('GPU')):
    return ''
  kinds = {op.type: op.op_def for op in function.graph.get_operations()}
  if any(attribute.type in ('func', 'list(func)')
         for kind in kinds.values() for attribute in kind.attr):
    return ''
  return 'SINGLE_THREADED_EXECUTOR'


def check(device: str) -> None:
  """Raises a `ConfigError` unless TensorFlow has a device, such as `GPU:1`."""
  names = [x.name.rpartition('device:')[2] for x in tf.config.list_logical_devices()]
  if device.upper() not in names:
    raise config.ConfigError(
        f'the device {device} does not exist: expected one of {", ".join(names)}')


def make_strategy(name: str, tpu: Optional[str] = None, acts: Optional[str] = None
                  ) -> tf.distribute.Strategy:
  """Makes the strategy of a learner; must be called before TensorFlow is used.

  Args:
    name: `default`, one device; `mirrored`, all GPUs of this machine, or all logical
      CPUs if there is no GPU; `multiworker`, the workers that the environment variable
      `TF_CONFIG` names, once all have started; `tpu`.
    tpu: with `tpu`: `local` on a TPU VM, or `HOST:PORT`, `grpc://HOST:PORT`, or the
      TPU's name in Google Cloud.
    acts: a device that acts, such as `GPU:1`, and does not learn with `mirrored`.
  """
  if name not in STRATEGIES:
    raise config.ConfigError(
        f'--strategy={name}: expected one of {", ".join(STRATEGIES)}')
  if name == 'tpu' and not tpu:
    raise config.ConfigError(
        '--strategy=tpu without --tpu: expected --tpu=local on a TPU VM, or an address')
  if name != 'tpu' and tpu:
    raise config.ConfigError(
        f'--tpu={tpu} with --strategy={name}: expected --strategy=tpu')
  if name == 'tpu' and acts:
    raise config.ConfigError(
        f'--inference_device={acts} with --strategy=tpu: expected none. All cores of a '
        'TPU learn, and its host acts')
  if name == 'tpu':
    return _tpu_strategy(tpu)
  if name == 'multiworker':
    _check_tf_config(os.environ.get('TF_CONFIG'))
    return tf.distribute.MultiWorkerMirroredStrategy()
  if name == 'mirrored':
    devices = (tf.config.list_logical_devices('GPU')
               or tf.config.list_logical_devices('CPU'))
    names = [device.name for device in devices]
    learn = [x for x in names if not acts or not x.upper().endswith(f':{acts.upper()}')]
    if acts and len(learn) in (0, len(names)):
      raise config.ConfigError(
          f'--inference_device={acts}: expected one of {", ".join(names)}, and another '
          'one that learns')
    return tf.distribute.MirroredStrategy(learn)
  return tf.distribute.get_strategy()


def _tpu_strategy(tpu: str) -> tf.distribute.Strategy:
  if tpu != 'local' and ':' in tpu:
    # TensorFlow would wait forever if nothing answers at the address.
    address = tpu.removeprefix('grpc://')
    host, _, port = address.rpartition(':')
    try:
      socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
    except (OSError, ValueError, OverflowError) as error:
      raise config.ConfigError(
          f'--tpu={tpu}: nothing answers there ({error}): expected local, or the '
          'HOST:PORT of a TPU that runs') from error
    tpu = f'grpc://{address}'
  try:
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu)
    if tpu != 'local':
      tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
  except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError) as error:
    if 'ConfigureDistributedTPU' not in str(error):
      raise config.ConfigError(f'--tpu={tpu}: {config.one_line(error)}') from error
    raise config.ConfigError(
        f'--tpu={tpu}: TensorFlow {tf.__version__} from the package index has no TPU '
        'kernels: expected the TensorFlow of a TPU VM image, such as '
        'tpu-vm-tf-2.15.1-pjrt (see docs/deployment.md)') from error
  except (urllib_error.URLError, ValueError, RuntimeError,
          tf.errors.OpError) as error:
    raise config.ConfigError(
        f'--tpu={tpu}: no such TPU can be used ({config.one_line(error)}): expected '
        'local, HOST:PORT, or a name that Google Cloud knows') from error
  return tf.distribute.TPUStrategy(resolver)


def _check_tf_config(text: Optional[str]) -> None:
  """Raises a `ConfigError` unless `TF_CONFIG` names a cluster and this worker in it."""
  if not text:
    raise config.ConfigError('--strategy=multiworker without TF_CONFIG in the '
                             f'environment: expected {_TF_CONFIG_EXAMPLE}')
  try:
    settings = json.loads(text)
    cluster, task = settings['cluster'], settings['task']
    addresses, index = cluster[task['type']], task['index']
    fits = (set(cluster) <= {'chief', 'worker'} and len(cluster.get('chief', [])) <= 1
            and all(isinstance(a, str) and ':' in a for a in addresses)
            and isinstance(index, int) and 0 <= index < len(addresses))
  except (ValueError, KeyError, TypeError, AttributeError):
    fits = False
  if not fits:
    raise config.ConfigError(f'TF_CONFIG = {" ".join(text.split())!r}: expected a '
                             f'cluster and a task of it, as {_TF_CONFIG_EXAMPLE}')


def of_files(strategy: tf.distribute.Strategy) -> Optional[str]:
  """Returns the device of a run's files; None if it is that of the variables."""
  # The variables of a TPU slice are on several hosts, whose disks are not this process's.
  return '/job:localhost' if isinstance(strategy, tf.distribute.TPUStrategy) else None


def is_chief(strategy: tf.distribute.Strategy) -> bool:
  """Returns whether this process is the one that writes, if several train together."""
  return worker_number(strategy) == 0


def num_workers(strategy: tf.distribute.Strategy) -> int:
  """Returns how many processes train together."""
  if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
    return 1
  return sum(map(len, strategy.cluster_resolver.cluster_spec().as_dict().values()))


def sum_over_workers(number: int, strategy: tf.distribute.Strategy) -> int:
  """Returns the sum of `number` over all workers, which wait for each other here."""
  values = _worker_values(float(number), strategy)
  return round(sum(map(float, values)) * num_workers(strategy) / len(values))


def worker_number(strategy: tf.distribute.Strategy) -> int:
  """Returns this process's number among those that train together; the chief's is 0."""
  if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
    return 0
  resolver = strategy.cluster_resolver
  if 'chief' in resolver.cluster_spec().jobs and resolver.task_type != 'chief':
    return resolver.task_id + 1
  return resolver.task_id


def texts_of_workers(text: str, strategy: tf.distribute.Strategy) -> List[str]:
  """Returns the texts of all workers, in their order; all must call it with their own."""
  if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
    return [text]
  data = text.encode()
  lengths = [round(x) for x in _worker_values(float(len(data)), strategy)]
  # Collectives do not take bytes, and need the same shape from all workers. Powers of
  # two are few shapes, each of which is traced.
  padded = np.zeros(1 << max(lengths).bit_length(), np.float32)
  padded[:len(data)] = np.frombuffer(data, np.uint8)
  own = strategy.experimental_distribute_values_from_function(
      lambda _: tf.constant(padded[np.newaxis]))
  gathered = strategy.experimental_local_results(_gather(strategy)(own))[0].numpy()
  # Every replica of a worker has its text.
  step = len(lengths) // num_workers(strategy)
  return [row[:length].astype(np.uint8).tobytes().decode()
          for row, length in zip(gathered[::step], lengths[::step])]


def rows_per_replica(batch_size: int, strategy: tf.distribute.Strategy,
                     what: str = 'batch_size') -> int:
  """Returns how many rows of a global batch each replica gets; `what` names the batch."""
  num_replicas = strategy.num_replicas_in_sync
  if batch_size % num_replicas:
    raise config.ConfigError(
        f'{what} = {batch_size}: expected a multiple of the {num_replicas} '
        'replicas that share it')
  return batch_size // num_replicas


def share_out(batch: Any, strategy: tf.distribute.Strategy, own: bool = False,
              axis: int = 0) -> Any:
  """Gives each replica its rows of a batch, in order.

  Args:
    batch: nest of `[B, ...]`.
    strategy: has the replicas.
    own: whether each of several workers has its own part of the batch; otherwise every
      worker has the complete batch.
    axis: the axis of the rows: 0, or 1 for K batches `[K, B, ...]`, which are also
      copied to the replicas' devices.

  Returns:
    The argument of `Learner.step`, or of `Learner.several_steps`.
  """
  leaves = tf.nest.flatten(batch)
  if strategy.num_replicas_in_sync == 1 or not leaves:
    return batch
  num_parts = num_workers(strategy) if own else 1
  size = num_parts * leaves[0].shape[axis]
  rows = rows_per_replica(size, strategy)
  places = strategy.extended.worker_devices

  def part(context):
    replica = context.replica_id_in_sync_group
    start = rows * replica % (size // num_parts)
    if not axis:
      return tf.nest.map_structure(lambda x: x[start:start + rows], batch)
    parts = tf.nest.map_structure(lambda x: x[:, start:start + rows], batch)
    with tf.device(places[replica % len(places)]):
      return tf.nest.map_structure(tf.identity, parts)

  return strategy.experimental_distribute_values_from_function(part)


def any_worker(value: bool, strategy: tf.distribute.Strategy) -> bool:
  """Returns whether `value` is true in any worker; workers wait for each other here."""
  return max(_worker_values(float(value), strategy)) > 0


def check_equal(value: int, strategy: tf.distribute.Strategy, what: str) -> None:
  """Raises a `ConfigError` unless all workers have the same value of `what`."""
  values = [int(x) for x in _worker_values(float(value), strategy)]
  if len(set(values)) > 1:
    raise config.ConfigError(
        f'the workers have different {what}: {values}; expected all to see the same '
        'folder')


def _worker_values(value: float, strategy: tf.distribute.Strategy) -> Sequence[float]:
  """Returns every replica's `value` in all workers; `[value]` of a single worker."""
  if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
    return [value]
  own = strategy.experimental_distribute_values_from_function(
      lambda _: tf.constant([value]))
  return strategy.experimental_local_results(_gather(strategy)(own))[0].numpy()


@functools.lru_cache(maxsize=None)
def _gather(strategy: tf.distribute.Strategy) -> Callable[[Any], Any]:
  """Makes a function that gathers `[N, ...]` of every replica, traced once per shape."""
  def replica_value(own):
    # The collective needs a tensor with a device, which an argument does not have.
    return tf.distribute.get_replica_context().all_gather(tf.identity(own), axis=0)
  return tf.function(lambda own: strategy.run(replica_value, (own,)), autograph=False)


def compute_dtype(name: str) -> ContextManager[None]:
  """Makes layers that are created in this context compute in `float32` or `bfloat16`.

  Their variables, the outputs of networks, and all losses are float32 in either case.
  On a CPU with instructions for bfloat16 (avx512_bf16, amx_bf16), a learner step of the
  GTrXL paper's size takes 0.6 of its time in float32, and a small step the same time.
  """
  return saving.global_policy(
      {'float32': 'float32', 'bfloat16': 'mixed_bfloat16'}[name])
