r"""Runs a learner whose actors and server are started elsewhere, or an offline run.

  gtrxl learner --gin_file=gin/gtrxl/t_maze_30_cpu.gin \
      --root_dir=runs/t_maze --server=localhost:8000

It waits for the server, resumes from its last checkpoint, and saves one on SIGTERM.
Several replicas together take the same steps as one replica: see --strategy.
"""

import sys

from absl import flags
from absl import logging

from gtrxl_tf.launch import program

from . import part

flags.adopt_module_key_flags(part)

_ROOT_DIR = flags.DEFINE_string('root_dir', None, "The run's folder.", required=True)
_SERVER = flags.DEFINE_string(
    'server', None, 'HOST:PORT of the Reverb server, unless the run is offline.')
_STRATEGY = flags.DEFINE_enum(
    'strategy', 'default', ['default', 'mirrored', 'multiworker', 'tpu'],
    'One device; all GPUs of this machine; the workers that TF_CONFIG names; a TPU.')
_TPU = flags.DEFINE_string(
    'tpu', None, 'With --strategy=tpu: local on a TPU VM, else its address or name.')
_THREADS = flags.DEFINE_integer(
    'threads', 0, 'TensorFlow threads; 0 for as many as there are cores. Small networks '
    'take less CPU time with 1.', lower_bound=0)
_INFERENCE_PORT = flags.DEFINE_integer(
    'inference_port', None, 'The port on which this process acts for actors with '
    '--inference; by default it does not act.', lower_bound=1, upper_bound=65535)
_INFERENCE_HOST = flags.DEFINE_string(
    'inference_host', 'localhost',
    'Where it listens for them; 0.0.0.0 lets other machines connect.')
_INFERENCE_DEVICE = flags.DEFINE_string(
    'inference_device', None, 'The device that acts, such as GPU:1, and does not learn '
    "with --strategy=mirrored; by default TensorFlow's.")
_ALLOW_CHANGES = flags.DEFINE_bool(
    'allow_changes', False, 'Continue with other numbers of steps, actors, evaluations '
    'or checkpoints than before; the earlier settings are kept as config.1.gin.')


def main() -> None:
  for flag, needed in ((_INFERENCE_HOST, _INFERENCE_PORT),
                       (_INFERENCE_DEVICE, _INFERENCE_PORT), (_INFERENCE_PORT, _SERVER)):
    if flag.present and not needed.value:
      program.refuse(f'--{flag.name} without --{needed.name}: expected both')

  # pylint: disable=import-outside-toplevel
  from gtrxl_tf.launch import train
  from gtrxl_tf.training import trainer

  logging.set_verbosity(logging.INFO)
  inference = None
  if _INFERENCE_PORT.value:
    inference = trainer.InferenceAddress(
        _INFERENCE_PORT.value, _INFERENCE_HOST.value, _INFERENCE_DEVICE.value)
  sys.exit(train.train_as_learner(
      part.settings(_THREADS.value), _ROOT_DIR.value, _SERVER.value, _STRATEGY.value,
      _TPU.value, _ALLOW_CHANGES.value, inference))


if __name__ == '__main__':
  program.run(main)
