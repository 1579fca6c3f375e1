"""Tests that a run on four hosts solves its task as on one machine."""

import pathlib
import time

from absl.testing import absltest
import gin
import numpy as np

from gtrxl_tf.launch import hosts_testing
from gtrxl_tf.launch import parts_testing
from gtrxl_tf.launch import prepare
from gtrxl_tf.settings import seeds
from gtrxl_tf.training import evaluation
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import run_folder

_GIN_FILE = str(pathlib.Path(__file__).parents[1] / 'gin/gtrxl/t_maze_30_cpu.gin')
_BINDINGS = ['TMaze.corridor_length = 10', 'TransformerXL.memory_length = 16',
             'OnlineExperiment.unroll_length = 16',
             'OnlineExperiment.environment_steps = 1000000',
             'OnlineExperiment.num_actors = 2',
             'OnlineExperiment.environments_per_actor = 32']
_NAMES = ['server', 'learner', 'actor_0', 'actor_1']
_LIMIT_SECONDS = 900


class HostsTest(absltest.TestCase):

  def test_a_run_on_four_hosts_solves_its_task(self):
    temporary = pathlib.Path(self.create_tempdir().full_path)
    folder = run_folder.RunFolder(temporary / 'run')
    settings = [f'--gin_file={_GIN_FILE}',
                *(f'--gin_bindings={binding}' for binding in _BINDINGS)]
    deadline = time.time() + _LIMIT_SECONDS
    with hosts_testing.Hosts(_NAMES) as hosts:
      parts = parts_testing.Parts(hosts, folder, temporary, settings, num_actors=2)
      for name in reversed(_NAMES):  # Each waits for the others.
        parts.start(name)
      for name in _NAMES[1:]:
        while parts.processes[name].poll() is None:
          self.assertLess(time.time(), deadline, '\n'.join(map(parts.tail, _NAMES)))
          time.sleep(0.5)
        self.assertEqual(parts.processes[name].returncode, 0, parts.tail(name))
      self.assertEqual(parts.end('server', 15), 0, parts.tail('server'))

    self.assertTrue(folder.done.exists())
    last = metrics_csv.last_metrics(folder.metrics)
    self.assertEqual(last['unrolls_duplicate'], 0)
    self.assertLessEqual(last['oldest_unroll'], last['oldest_allowed'])
    gin.clear_config()
    self.addCleanup(gin.clear_config)
    experiment = prepare.prepare([_GIN_FILE], _BINDINGS)
    played = evaluation.evaluate(
        folder.policy,
        experiment.make_environments(
            evaluation.NUM_ENVIRONMENTS, seeds.Stream.EVALUATION),
        experiment.evaluation_episodes)
    print(f'Four hosts: {last["seconds"]:.0f} s of training, success '
          f'{np.mean(played.successes):.2f}')
    self.assertGreaterEqual(np.mean(played.successes), 0.95)


if __name__ == '__main__':
  absltest.main()
