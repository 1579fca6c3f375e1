"""Tests of server.py: parts with other settings are refused even if shapes fit."""

# pylint: disable=protected-access

import pathlib
import threading
import time
import types
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import gin
import portpicker
import pytest

from gtrxl_tf.launch import prepare
from gtrxl_tf.replay import connection
from gtrxl_tf.replay import replay_testing
from gtrxl_tf.replay import server_lost
from gtrxl_tf.settings import config
from gtrxl_tf.training import run_folder
from gtrxl_tf.training.online import actor
from gtrxl_tf.training.online import evaluator
from gtrxl_tf.training.online import server
from gtrxl_tf.training.online import trainer

_GIN_FILE = str(
    pathlib.Path(__file__).parents[3] / 'gin' / 'gtrxl' / 'numpad_2x2_cpu.gin')
_SMALL = ['TransformerXL.num_layers = 1', 'OnlineExperiment.unroll_length = 4']
_OTHER = ['Numpad.episode_length = 7', 'VMPOAgent.discount = 0.8']
_REFUSED = (r'^the server at localhost:\d+ has other settings: '
            r'Numpad.episode_length = \d+ \(here 7\), '
            r'VMPOAgent.discount = 0.\d+ \(here 0.8\); expected the same in all parts of '
            'a run$')


@replay_testing.needs_reverb
class ServerTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.addCleanup(gin.clear_config)
    self.folder = run_folder.RunFolder(self.create_tempdir().full_path)
    self.port = portpicker.pick_unused_port()
    self.address = f'localhost:{self.port}'

  def experiment(self, *bindings):
    gin.clear_config()
    return prepare.prepare([_GIN_FILE], [*_SMALL, *bindings], check=False)

  def serve(self, experiment):
    """Serves until the test ends or `stop_server` is called."""
    self.stop = threading.Event()
    self.server = threading.Thread(target=server.serve, args=(
        experiment, self.port, self.stop.is_set))
    self.server.start()
    self.addCleanup(self.stop_server)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
      try:
        connection.connect(self.address, experiment.layout).check(experiment.settings)
        return
      except server_lost.ServerLost:
        time.sleep(0.1)  # An attempt fails at once if nothing listens yet.
    self.fail('no server')

  def stop_server(self):
    self.stop.set()
    self.server.join()

  @pytest.mark.medium
  def test_a_part_with_other_settings_is_refused(self):
    self.serve(self.experiment())
    other = self.experiment(*_OTHER)
    replay = connection.connect(self.address, other.layout)
    with mock.patch.object(actor.Actor, '_warm_up'):
      for refuse in (
          actor.Actor(other, replay, 0, should_stop=lambda: False).run,
          evaluator.OnlineEvaluator(other, self.address, self.folder, lambda: False).run,
          lambda: trainer.OnlineTrainer._connect(
              types.SimpleNamespace(_experiment=other, _replay=replay))):
        with self.assertRaisesRegex(config.ConfigError, _REFUSED):
          refuse()

  @pytest.mark.medium
  def test_parts_may_differ_in_what_concerns_one_only(self):
    served = self.experiment()
    self.serve(served)
    replay = connection.connect(self.address, served.layout)
    for bindings in (
        ["Experiment.compute_dtype = 'bfloat16'", 'Experiment.log_period = 3'],
        ['Checkpoints.period = 7', 'Checkpoints.kept = 1'],
        ['OnlineExperiment.environment_steps = 7', 'Experiment.seed = 0']):
      replay.check(self.experiment(*bindings).settings)
    replay.check(None)  # Not made from gin.
    with self.assertRaisesRegex(config.ConfigError, r'Experiment.seed = 0 \(here 1\)'):
      replay.check(self.experiment('Experiment.seed = 1').settings)


if __name__ == '__main__':
  absltest.main()
