"""The flags of what a running part tells of itself, for Prometheus to read."""

from absl import flags

HOST = flags.DEFINE_string(
    'metrics_host', 'localhost',
    'Where /metrics is listened for; 0.0.0.0 lets other machines read it.')
PORT = flags.DEFINE_integer(
    'metrics_port', None, 'Of /metrics; without it nothing listens.',
    lower_bound=1, upper_bound=65535)
