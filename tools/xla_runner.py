"""Runs an XLA module on a device through PJRT, without TensorFlow.

  python xla_runner.py MODULE ARGUMENTS OUTPUTS PLATFORM REPEAT

MODULE is a file with a serialized HLO module of one replica. ARGUMENTS is an `.npz`
file with its parameters, named by their numbers. The program runs the module once and
writes OUTPUTS, another `.npz` file: outputs by their numbers, and `parameters`, the
number of the parameter that each output replaces, or -1. It then runs the module REPEAT
times, each time on the results of the run before, and prints one line of JSON: the
device's kind, the median of the seconds, and the most bytes that the device allocated;
where it does not count them, the compiler's sum. If the module cannot be run, the line
has `error`.

It imports nothing of gtrxl_tf: its environment needs jax 0.4.34, 0.6.2 or 0.11.2, and
jax's CUDA plugin if PLATFORM is `cuda`.
"""

import json
import re
import statistics
import sys
import time
from typing import Any, List

_ALIASES = re.compile(r'\{(\d+)\}: \((\d+),')
_COPY = re.compile(r'\bmhlo\.copy (%\S+) : (tensor<[^>]*>)')


def compile_module(hlo: bytes, device: Any) -> Any:
  """Returns the executable of a serialized HLO module for a device."""
  # pylint: disable=import-outside-toplevel, import-error, protected-access
  from jax._src import compiler
  from jax._src.lib import xla_client

  module = xla_client._xla.mlir.xla_computation_to_mlir_module(
      xla_client.XlaComputation(hlo))
  # A plugin, such as CUDA's, takes StableHLO alone, which has no copies.
  module = _COPY.sub(r'stablehlo.reshape \1 : (\2) -> \2', module)
  options = compiler.get_compile_options(num_replicas=1, num_partitions=1)
  if hasattr(device.client, 'compile_and_load'):  # jax 0.6.2.
    return device.client.compile_and_load(
        module, xla_client.DeviceList((device,)), options)
  return device.client.compile(module, options)


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


def replaced_parameters(executable: Any, num_outputs: int) -> List[int]:
  """Returns the number of the parameter that each output replaces, or -1."""
  header = executable.hlo_modules()[0].to_string().split('\n', 1)[0]
  aliases = re.search(r'input_output_alias=\{(.*?)\}, \w+=', header)
  found = dict(_ALIASES.findall(aliases[1])) if aliases else {}
  return [int(found.get(str(i), -1)) for i in range(num_outputs)]


def main(module: str, arguments: str, outputs: str, platform: str, repeat: str) -> None:
  """Runs the module, writes its outputs and prints the report."""
  # pylint: disable=import-outside-toplevel, import-error
  import jax
  import numpy as np

  jax.config.update('jax_enable_x64', True)  # Or int64 becomes int32.
  try:
    device = jax.devices(platform)[0]
    with open(module, 'rb') as file:
      hlo = file.read()
    executable = compile_module(hlo, device)
    given = np.load(arguments, allow_pickle=False)
    parameters = [jax.device_put(given[str(i)], device) for i in range(len(given.files))]
    seconds = []
    for i in range(1 + int(repeat)):
      jax.block_until_ready(parameters)
      began = time.perf_counter()
      found = [x[0] for x in executable.execute_sharded(
          parameters).disassemble_into_single_device_arrays()]
      jax.block_until_ready(found)
      seconds.append(time.perf_counter() - began)
      if i == 0:
        replaced = replaced_parameters(executable, len(found))
        np.savez(outputs, parameters=replaced,
                 **{str(j): np.asarray(x) for j, x in enumerate(found)})
      for x, parameter in zip(found, replaced):
        if parameter >= 0:
          parameters[parameter] = x
  except (RuntimeError, ValueError) as error:  # XlaRuntimeError is a RuntimeError.
    print(json.dumps({'error': str(error)}))
    return
  needs = executable.get_compiled_memory_stats()
  print(json.dumps({
      'device': device.device_kind, 'seconds': statistics.median(seconds[1:] or seconds),
      'bytes': (device.memory_stats() or {}).get('peak_bytes_in_use') or (
          needs.argument_size_in_bytes + needs.temp_size_in_bytes
          + needs.output_size_in_bytes - needs.alias_size_in_bytes),
      'operations': _operations(hlo)}))


if __name__ == '__main__':
  main(*sys.argv[1:])
