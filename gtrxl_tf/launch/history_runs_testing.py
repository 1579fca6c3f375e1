"""Small runs on learning histories, for tests."""

import io
import pathlib
from typing import List

import gin

from gtrxl_tf import collecting
from gtrxl_tf.collecting import histories
from gtrxl_tf.launch import configurables  # noqa: F401 (for gin)
from gtrxl_tf.launch import prepare
from gtrxl_tf.settings import config
from gtrxl_tf.training import checkpoints
from gtrxl_tf.training import run_folder

_GIN = pathlib.Path(__file__).parents[2] / 'gin' / 'distillation'
_DATA = [
    'DarkRoomFamily.size = 3', 'DarkRoomFamily.episode_length = 5',
    'DarkRoomFamily.num_episodes = 6', 'DarkRoomFamily.training_share = 0.5',
    'HistoryCollector.num_histories = 30', 'HistoryCollector.num_evaluation = 10']
_TINY = [
    'context_length = 8', 'chunk_length = 4', 'memory_length = 4',
    'recurrent_steps = 4', 'OfflineExperiment.batch_size = 4',
    'Experiment.log_period = 2', 'SegmentTransformer.num_layers = 1',
    'SegmentTransformer.model_dim = 8', 'SegmentTransformer.mlp_dim = 8']


def files(model: str) -> List[str]:
  """Returns the gin files of an experiment with a model of `gin/distillation/models`."""
  return [str(_GIN / 'dr_cpu.gin'), str(_GIN / 'models' / f'{model}.gin')]


def collect(path: str) -> List[str]:
  """Collects histories of 30 steps into a folder; returns settings for small runs."""
  gin.clear_config()
  config.parse(files('adf')[:1], _DATA)
  # pylint: disable-next=no-value-for-parameter
  histories.collect(collecting.HistoryCollector(), path, io.StringIO())
  gin.clear_config()
  return [*_DATA, *_TINY, f"dataset = '{path}/training'"]


def make_run(path: str, model: str) -> run_folder.RunFolder:
  """Makes the folder of a run that has not learned anything, for other binaries."""
  folder = run_folder.RunFolder(path)
  settings = collect(str(folder.root / 'data'))
  experiment = prepare.prepare(files(model), settings)
  folder.config.write_text(gin.operative_config_str())
  folder.policy.mkdir()
  saved = checkpoints.Checkpoints(
      folder.checkpoints, 1, kind=experiment.kind, agent=experiment.make_agent())
  saved.restore()
  saved.save(1)
  gin.clear_config()
  return folder
