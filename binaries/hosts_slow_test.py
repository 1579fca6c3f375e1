"""Tests that a run on several hosts solves its task as on one machine."""

import pathlib
import time

from absl.testing import absltest
from absl.testing import parameterized
import gin
import numpy as np

from gtrxl_tf.launch import hosts_testing
from gtrxl_tf.launch import parts_testing
from gtrxl_tf.launch import prepare
from gtrxl_tf.serving import exported
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import run_folder

_GIN_FILE = str(pathlib.Path(__file__).parents[1] / 'gin/gtrxl/t_maze_30_cpu.gin')
_BINDINGS = ['TMaze.corridor_length = 10', 'TransformerXL.memory_length = 16',
             'OnlineExperiment.unroll_length = 16',
             'OnlineExperiment.environment_steps = 1000000',
             'OnlineExperiment.num_actors = 2',
             'OnlineExperiment.environments_per_actor = 32']
_NAMES = ['server', 'learner', 'actor_0', 'actor_1']
# A server acts for the actors, each in a process of its own.
_INFERENCE = ['OnlineExperiment.inference = @Inference()',
              'Inference.actors_per_process = 1']
_LIMIT_SECONDS = 900


class HostsTest(parameterized.TestCase):

  @parameterized.parameters((_NAMES, []), (['inference', *_NAMES], _INFERENCE))
  def test_a_run_on_several_hosts_solves_its_task(self, names, more):
    bindings = _BINDINGS + more
    temporary = pathlib.Path(self.create_tempdir().full_path)
    folder = run_folder.RunFolder(temporary / 'run')
    settings = [f'--gin_file={_GIN_FILE}',
                *(f'--gin_bindings={binding}' for binding in bindings)]
    deadline = time.time() + _LIMIT_SECONDS
    with hosts_testing.Hosts(names) as hosts:
      parts = parts_testing.Parts(hosts, folder, temporary, settings, num_actors=2)
      for name in reversed(names):  # Each waits for the others.
        parts.start(name)
      for name in set(names) - {'server'}:
        while parts.processes[name].poll() is None:
          self.assertLess(time.time(), deadline, '\n'.join(map(parts.tail, names)))
          time.sleep(0.5)
        self.assertEqual(parts.processes[name].returncode, 0, parts.tail(name))
      self.assertEqual(parts.end('server', 15), 0, parts.tail('server'))

    self.assertTrue(folder.done.exists())
    last = metrics_csv.last_metrics(folder.metrics)
    self.assertEqual(last['unrolls_duplicate'], 0)
    self.assertLessEqual(last['oldest_unroll'], last['oldest_allowed'])
    gin.clear_config()
    self.addCleanup(gin.clear_config)
    experiment = prepare.prepare([_GIN_FILE], bindings)
    played = experiment.make_evaluator(
        exported.load(folder.policy)).evaluate()
    print(f'{len(names)} hosts: {last["seconds"]:.0f} s of training, success '
          f'{np.mean(played.successes):.2f}')
    self.assertGreaterEqual(np.mean(played.successes), 0.95)


if __name__ == '__main__':
  absltest.main()
