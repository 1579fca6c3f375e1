"""Every environment takes 1,000 steps through an actor into Reverb, on real packages.

The policy is that of an untrained network. Only DeepMind Lab is a stand-in, because it is
in no package index.
"""

import contextlib
import functools
import gc
import threading

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import portpicker
import pytest

from gtrxl_tf import cores
from gtrxl_tf import environments
from gtrxl_tf.environments import dmlab_testing
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import language
from gtrxl_tf.networks import torsos
from gtrxl_tf.replay import connection
from gtrxl_tf.replay import server as server_lib
from gtrxl_tf.replay import staleness
from gtrxl_tf.settings import config
from gtrxl_tf.training.online import actor
from gtrxl_tf.training.online import experiment as experiment_lib

# dm_control frees OpenGL contexts when garbage is collected, whatever thread that is in.
pytestmark = pytest.mark.filterwarnings('ignore::pytest.PytestUnraisableExceptionWarning')

_STEPS, _UNROLL_LENGTH, _NUM_ENVIRONMENTS = 1000, 10, 2


def _default():
  return None  # Made from the observation's spec.


_pixels = functools.partial(torsos.PixelTorso, channels=(4, 4), units=8)
_vectors = functools.partial(torsos.VectorTorso, units=(8,))
_WORLDS = {
    'NumpadMujoco': (_vectors, dict(size=2)),
    'AppleMaze_state': (_vectors, dict(observation='state')),
    'AppleMaze': (_pixels, {}),
    'MemoryMaze': (_pixels, {}),
    'MinigridMemory': (_default, dict(size=11)),
    'Atari': (_pixels, dict(game='pong')),
    'VizdoomTwoColors': (_pixels, {}),
    'DMLab': (_pixels, dict(level='rooms_watermaze')),
    'Bsuite': (_vectors, dict(name='memory_len/5')),
    **{f'GymnasiumEnvironment_{name}': (_default, dict(name=name)) for name in (
        'popgym-RepeatPreviousEasy-v0', 'popgym-AutoencodeEasy-v0',
        'popgym-BattleshipEasy-v0', 'MiniGrid-MemoryS7-v0', 'FrozenLake-v1',
        'Blackjack-v1', 'Taxi-v4')},
}


def _network(torso, instructions, action_spec):
  return actor_critic.ActorCritic(
      action_spec, torso(), cores.TransformerXL(1, 8, 2, 4, memory_length=8),
      head_units=8,
      instruction_encoder=language.InstructionEncoder() if instructions else None)


class WorldsTest(parameterized.TestCase):

  @parameterized.parameters(*_WORLDS)
  def test_a_thousand_steps_reach_the_queue(self, world):
    torso, settings = _WORLDS[world]
    name, _, _ = world.partition('_')
    with contextlib.ExitStack() as stack:
      if name == 'DMLab':
        stack.enter_context(dmlab_testing.deepmind_lab(frames_per_episode=200))
      try:
        experiment = experiment_lib.OnlineExperiment(
            environment=functools.partial(getattr(environments, name), **settings),
            network=functools.partial(_network, torso, name == 'DMLab'),
            unroll_length=_UNROLL_LENGTH, batch_size=_NUM_ENVIRONMENTS,
            environments_per_actor=_NUM_ENVIRONMENTS)
      except config.ConfigError as error:
        self.skipTest(str(error))
      ledger = self.play(experiment)
    self.assertGreaterEqual(ledger.environment_steps, _STEPS)
    self.assertEqual((ledger.stale, ledger.duplicate), (0, 0))

  def play(self, experiment) -> staleness.Ledger:
    port = portpicker.pick_unused_port()
    network = experiment.make_agent().online
    server = server_lib.serve(port, experiment.layout)
    self.addCleanup(server.stop)
    address = f'localhost:{port}'
    replay = connection.connect(address, experiment.layout)
    replay.weights(network.variables).publish(0)
    stop = threading.Event()
    # Made in the thread that acts, because OpenGL contexts belong to threads.
    thread = threading.Thread(
        target=lambda: actor.Actor(
            experiment, connection.connect(address, experiment.layout), 0,
            stop.is_set).run())
    thread.start()
    self.addCleanup(gc.collect)  # Here, where warnings are ignored.
    self.addCleanup(thread.join)
    self.addCleanup(stop.set)

    ledger = staleness.Ledger(max_age=10)
    queue = replay.queue(1, ledger)
    queue.connect()
    while ledger.environment_steps < _STEPS:
      batch = queue.next(lambda: not thread.is_alive())
      self.assertTrue(np.isfinite(batch.reward).all())
    return ledger


if __name__ == '__main__':
  absltest.main()
