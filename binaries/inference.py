r"""Runs an inference server, which acts for actors that only step environments.

  gtrxl inference --gin_file=gin/gtrxl/t_maze_30_cpu.gin \
      --server=localhost:8000 --port=8001

It takes weights from the Reverb server, and writes the actors' unrolls to it. There is no
authentication: by default only this machine can connect. On SIGTERM it waits briefly
until the last unrolls are in the queue. It ends when the run is over.
"""

import sys

from absl import flags

from gtrxl_tf.launch import program

from . import part

flags.adopt_module_key_flags(part)

_SERVER = flags.DEFINE_string(
    'server', None, 'HOST:PORT of the Reverb server.', required=True)
_PORT = flags.DEFINE_integer(
    'port', 8001, 'The port to listen on.', lower_bound=1, upper_bound=65535)
_HOST = flags.DEFINE_string(
    'host', 'localhost', 'Where to listen; 0.0.0.0 lets other machines connect.')
_DEVICE = flags.DEFINE_string(
    'device', None, "The device that acts, such as GPU:1; by default TensorFlow's.")
_THREADS = flags.DEFINE_integer(
    'threads', 0, 'TensorFlow threads; 0 for as many as there are cores.',
    lower_bound=0)


def main() -> None:
  # pylint: disable=import-outside-toplevel
  from gtrxl_tf.launch import parts

  sys.exit(parts.infer(part.settings(_THREADS.value), _SERVER.value, _PORT.value,
                       _HOST.value, _DEVICE.value))


if __name__ == '__main__':
  program.run(main)
