r"""Collects learning histories of a source, for algorithm distillation.

  gtrxl collect_histories --output_dir=datasets/dr \
      --gin_file=gin/distillation/histories/dark_room.gin \
      --gin_bindings='DarkRoomFamily.setting = "dr"'

It writes the datasets training/ and evaluation/ into the folder, and the source's
learning curve in the evaluation tasks as source.csv and source.png. If it is started
again on the same folder, it resumes.
"""

from absl import flags

from gtrxl_tf.launch import program

from . import collecting

_GIN_FILE = flags.DEFINE_multi_string(
    'gin_file', [], 'Files of settings; later ones override.')
_GIN_BINDINGS = flags.DEFINE_multi_string(
    'gin_bindings', [], 'Single settings, which override the files.')
_OUTPUT_DIR = flags.DEFINE_string(
    'output_dir', None, 'The folder of the datasets and the curve.', required=True)


def main() -> None:
  # pylint: disable=import-outside-toplevel
  from gtrxl_tf import datasets
  from gtrxl_tf.analysis import source_curve
  from gtrxl_tf.collecting import histories

  def collect(collector: histories.HistoryCollector) -> datasets.Dataset:
    evaluation = histories.collect_split(collector, 'evaluation', _OUTPUT_DIR.value)
    source_curve.draw(collector, evaluation, _OUTPUT_DIR.value)
    return histories.collect_split(collector, 'training', _OUTPUT_DIR.value)

  collecting.run(_GIN_FILE.value, _GIN_BINDINGS.value, _OUTPUT_DIR.value,
                 histories.HistoryCollector, collect)


if __name__ == '__main__':
  program.run(main)
