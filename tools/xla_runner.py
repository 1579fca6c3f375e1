"""Runs an XLA module on a device through PJRT, without TensorFlow.

  python xla_runner.py MODULE PLATFORM REPEAT

MODULE is a file with a serialized HLO module of one replica. MODULE.npz beside it has
its parameters, `before_0` and so on, its results, `result_0` and so on, and the
parameters `after` it, some of which the module replaces. The program runs the module once
and compares. It then runs the module REPEAT times, each time on the results of the run
before, and prints one line of JSON, with `TITLES`: the device's kind; the median time;
the most bytes that the device allocated, or, where it does not count them, the compiler's
sum; operations as XLA's cost analysis counts them; and the larger of two numbers: by how
much results differ, at most, divided by their size if that is more than 1; and the norm
by which parameters differ, divided by that of their change. If the module cannot be run,
the line has `error`.

It imports nothing of gtrxl_tf: its environment needs jax 0.4.34, 0.6.2 or 0.11.2, and
jax's CUDA plugin if PLATFORM is `cuda`.
"""

import json
import re
import statistics
import sys
import time
from typing import Any, List, Sequence

import numpy as np

TITLES = ('device', 'step, ms', 'memory, MiB', 'GFLOP/s', 'differs by')

_ALIASES = re.compile(r'\{(\d+)\}: \((\d+),')
_COPY = re.compile(r'\bmhlo\.copy (%\S+) : (tensor<[^>]*>)')


class Module:
  """A module that is compiled for a device.

  Attributes:
    executable: JAX's.
    replaced: the number of the parameter that an output replaces, by the output's number.
  """

  def __init__(self, hlo: bytes, device: Any):
    """Compiles a serialized HLO module."""
    # pylint: disable=import-outside-toplevel, import-error, protected-access
    from jax._src import compiler
    from jax._src.lib import xla_client

    module = xla_client._xla.mlir.xla_computation_to_mlir_module(
        xla_client.XlaComputation(hlo))
    # A plugin, such as CUDA's, takes StableHLO alone, which has no copies.
    module = _COPY.sub(r'stablehlo.reshape \1 : (\2) -> \2', module)
    options = compiler.get_compile_options(num_replicas=1, num_partitions=1)
    if hasattr(device.client, 'compile_and_load'):  # jax 0.6.2.
      self.executable = device.client.compile_and_load(
          module, xla_client.DeviceList((device,)), options)
    else:
      self.executable = device.client.compile(module, options)
    header = self.executable.hlo_modules()[0].to_string().split('\n', 1)[0]
    aliases = re.search(r'input_output_alias=\{(.*?)\}, \w+=', header)
    self.replaced = {int(output): int(parameter) for output, parameter in
                     _ALIASES.findall(aliases[1] if aliases else '')}

  def run(self, parameters: Sequence[Any]) -> List[Any]:
    """Starts the module; returns its outputs, which are ready later."""
    return [x[0] for x in self.executable.execute_sharded(
        parameters).disassemble_into_single_device_arrays()]


def _operations(hlo: bytes) -> float:
  """Counts a module's operations as XLA's cost analysis does.

  A module that is compiled for a GPU calls libraries, whose operations do not count.
  """
  # pylint: disable=import-outside-toplevel, import-error, protected-access
  import jax
  from jax._src.lib import xla_client

  return xla_client._xla.hlo_module_cost_analysis(
      jax.devices('cpu')[0].client,
      xla_client.XlaComputation(hlo).as_hlo_module())['flops']


def _difference(found: Sequence[Any], replaced: Any, played: Any) -> float:
  """Returns by how much outputs differ from those of `played`."""
  relative, error, change = 0.0, 0.0, 0.0
  for i, x in enumerate(found):
    x, parameter = np.asarray(x, np.float64), replaced.get(i)
    y = played[f'result_{i}' if parameter is None else f'after_{parameter}']
    if parameter is None:  # TensorFlow returns them first.
      relative = max(relative, np.max(np.abs(x - y) / np.maximum(1, np.abs(y)), initial=0))
    else:
      error += np.sum((x - y)**2)
      change += np.sum((y.astype(np.float64) - played[f'before_{parameter}'])**2)
  return float(max(relative, np.sqrt(error / change)))


def main(path: str, platform: str, repeat: str) -> None:
  """Runs the module and prints the report."""
  # pylint: disable=import-outside-toplevel, import-error
  import jax

  jax.config.update('jax_enable_x64', True)  # Or int64 becomes int32.
  try:
    device = jax.devices(platform)[0]
    with open(path, 'rb') as file:
      hlo = file.read()
    module, arrays = Module(hlo, device), np.load(f'{path}.npz', allow_pickle=False)
    parameters = [jax.device_put(arrays[f'before_{i}'], device) for i in range(
        sum(name.startswith('before') for name in arrays.files))]
    seconds = []
    for i in range(1 + int(repeat)):
      jax.block_until_ready(parameters)
      began = time.perf_counter()
      found = module.run(parameters)
      jax.block_until_ready(found)
      seconds.append(time.perf_counter() - began)
      if i == 0:
        difference = _difference(found, module.replaced, arrays)
      for output, parameter in module.replaced.items():
        parameters[parameter] = found[output]
  except (RuntimeError, ValueError) as error:  # XlaRuntimeError is a RuntimeError.
    print(json.dumps({'error': str(error)}))
    return
  needs = module.executable.get_compiled_memory_stats()
  step = statistics.median(seconds[1:])
  most = (device.memory_stats() or {}).get('peak_bytes_in_use') or (
      needs.argument_size_in_bytes + needs.temp_size_in_bytes
      + needs.output_size_in_bytes - needs.alias_size_in_bytes)
  print(json.dumps(dict(zip(TITLES, (
      device.device_kind, round(1e3 * step, 2), round(most / 2**20),
      round(_operations(hlo) / step / 1e9), float(f'{difference:.1e}'))))))


if __name__ == '__main__':
  main(*sys.argv[1:])
