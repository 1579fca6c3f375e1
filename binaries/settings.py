"""The flags of an experiment's settings, the same for all parts of a run."""

from absl import flags

GIN_FILE = flags.DEFINE_multi_string(
    'gin_file', None, 'Files of settings; later ones override.', required=True)
GIN_BINDINGS = flags.DEFINE_multi_string(
    'gin_bindings', [], 'Single settings, which override the files.')
