"""Compiles an XLA module for a TPU on a machine without one, and reports its cost.

  python tpu_compiler.py MODULE TPU

MODULE is a file with a serialized HLO module of one replica. The program runs in the
environment of requirements-tpu.lock and imports nothing of gtrxl_tf; in the project's
own environment it can be imported, but not run. It prints one line of JSON, with
`TITLES`: what the arguments, with the outputs that do not replace them, the temporaries
and the program take in device memory; operations as XLA's cost analysis counts them; and
CPU seconds. If the compiler refuses the module, the line has `error` instead.

The entry points are internal to jax 0.6.2: other versions may not have them.
"""

import json
import os
import sys
import time
from typing import Any

# Topologies that libtpu knows without a TPU.
TOPOLOGIES = {'v3': 'v3:2x2', 'v4': 'v4:2x2x1', 'v5e': 'v5e:2x2', 'v5p': 'v5p:2x2x1'}
TITLES = ('arguments, MiB', 'temporaries, MiB', 'program, MiB', 'GFLOP', 'compiled in, s')


def compile_module(hlo: bytes, tpu: str) -> Any:
  """Returns the executable of a module for one core of a TPU."""
  os.environ.update(TPU_SKIP_MDS_QUERY='1', JAX_PLATFORMS='cpu',
                    TPU_ACCELERATOR_TYPE='v3-8', TPU_WORKER_HOSTNAMES='localhost',
                    ALLOW_MULTIPLE_LIBTPU_LOAD='1')  # Possible because no TPU is used.
  # pylint: disable=import-outside-toplevel, import-error, protected-access
  from jax._src import compiler
  from jax._src.interpreters import mlir
  from jax._src.lib import xla_client
  from jax._src.lib.mlir import ir
  from jax.experimental import topologies
  import numpy as np

  stablehlo = xla_client._xla.mlir.xla_computation_to_mlir_module(
      xla_client.XlaComputation(hlo))
  device = topologies.get_topology_desc(
      topology_name=TOPOLOGIES[tpu], platform='tpu').devices[0]
  options = compiler.get_compile_options(
      num_replicas=1, num_partitions=1, device_assignment=np.array([[device.id]]))
  with mlir.make_ir_context():
    module = ir.Module.parse(stablehlo)
  return compiler.backend_compile(
      device.client, module, xla_client.DeviceList((device,)), options)


def main(path: str, tpu: str) -> None:
  """Compiles the module in the file `path` and prints the report."""
  with open(path, 'rb') as file:
    hlo = file.read()
  started = time.process_time()
  try:
    executable = compile_module(hlo, tpu)
  except RuntimeError as error:  # XlaRuntimeError is one.
    print(json.dumps({'error': str(error)}))
    return
  seconds = time.process_time() - started
  memory, cost = executable.get_compiled_memory_stats(), executable.cost_analysis()
  print(json.dumps(dict(zip(TITLES, (round(x) for x in (
      (memory.argument_size_in_bytes + memory.output_size_in_bytes
       - memory.alias_size_in_bytes) / 2**20,
      memory.temp_size_in_bytes / 2**20, memory.generated_code_size_in_bytes / 2**20,
      cost['flops'] / 1e9, seconds))))))


if __name__ == '__main__':
  main(*sys.argv[1:])
