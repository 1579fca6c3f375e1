"""The flags that hold an experiment's settings, alike in all parts of a run."""

from absl import flags

GIN_FILE = flags.DEFINE_multi_string(
    'gin_file', None, 'Files of settings; later ones override.', required=True)
GIN_BINDINGS = flags.DEFINE_multi_string(
    'gin_bindings', [], 'Single settings, which override the files.')
METRICS_HOST = flags.DEFINE_string(
    'metrics_host', 'localhost',
    'Where /metrics is listened for; 0.0.0.0 lets other machines read it.')
METRICS_PORT = flags.DEFINE_integer(
    'metrics_port', None, 'Of /metrics; without it nothing listens.',
    lower_bound=1, upper_bound=65535)
