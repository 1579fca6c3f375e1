"""Serves an exported policy over HTTP, with a memory for each client.

  gtrxl serve --policy_dir=runs/numpad_2x2/policy --port=8080

docs/serving.md describes the requests. There is no authentication: by default only this
machine can connect.
"""

import pathlib

from absl import flags

from gtrxl_tf.launch import program

_POLICY_DIR = flags.DEFINE_string(
    'policy_dir', None, 'The folder of an exported policy.', required=True)
_HOST = flags.DEFINE_string(
    'host', 'localhost', 'Where to listen; 0.0.0.0 lets other machines connect.')
_PORT = flags.DEFINE_integer(
    'port', 8080, 'The port to listen on.', lower_bound=1, upper_bound=65535)
_MAX_SESSIONS = flags.DEFINE_integer(
    'max_sessions', 256, 'The most sessions at a time; memory for all is reserved at '
    'the start.', lower_bound=1)
_IDLE_SECONDS = flags.DEFINE_float(
    'idle_seconds', 600, 'Seconds without a request after which a session is dropped.',
    lower_bound=0.1, upper_bound=1e9)
_MAX_BATCH = flags.DEFINE_integer(
    'max_batch', 64, 'The most sessions that one step of the policy serves.',
    lower_bound=1)


def main() -> None:
  # pylint: disable=import-outside-toplevel
  from gtrxl_tf.environments import optional
  from gtrxl_tf.settings import config

  try:
    optional.load('aiohttp', needed_by='gtrxl serve', extra='serve')
    from gtrxl_tf.serving import server
    server.serve(pathlib.Path(_POLICY_DIR.value), _HOST.value, _PORT.value,
                 _MAX_SESSIONS.value, _IDLE_SECONDS.value, _MAX_BATCH.value)
  except config.ConfigError as error:
    program.refuse(str(error))


if __name__ == '__main__':
  program.run(main)
