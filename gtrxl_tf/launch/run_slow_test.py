"""Whole runs, one in which each of its parts is killed, and one that diverges."""

import contextlib
import io
import pathlib
import time

from absl.testing import absltest
from absl.testing import parameterized
import gin
import numpy as np

from gtrxl_tf.launch import prepare
from gtrxl_tf.launch import supervisor as supervisor_lib
from gtrxl_tf.launch import train
from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import run_folder

_GIN = pathlib.Path(__file__).parents[2] / 'gin' / 'gtrxl'
_BINDINGS = ['TMaze.corridor_length = 10', 'TransformerXL.memory_length = 16',
             'OnlineExperiment.unroll_length = 16',
             'OnlineExperiment.environment_steps = 1000000']
_LIMIT_SECONDS = 600


class RunTest(parameterized.TestCase):

  @parameterized.named_parameters(
      ('actors_act', [], []),
      ('a_server_passes_on', ["OnlineExperiment.transport = 'reverb'"],
       [('server', 450_000)]),
      ('an_inference_server_acts', [
          'OnlineExperiment.inference = @Inference()', 'OnlineExperiment.num_actors = 2'],
       [('inference_0', 550_000)]),
      ('the_learner_acts', [
          'OnlineExperiment.inference = @Inference()', 'OnlineExperiment.num_actors = 2',
          'Inference.num_servers = 0', 'Inference.actors_per_process = 1'], []))
  def test_a_run_survives_the_death_of_each_of_its_parts(self, bindings, others):
    gin.clear_config()
    folder = run_folder.RunFolder(self.create_tempdir().full_path)
    experiment = prepare.prepare(
        [str(_GIN / 't_maze_30_cpu.gin')], [*_BINDINGS, *bindings])
    supervisor = supervisor_lib.Supervisor(experiment, folder)
    # Which part is killed, and after how many environment steps.
    victims = [('learner', 150_000), ('actor_0', 300_000), *others]
    deadline = time.time() + _LIMIT_SECONDS
    supervisor.start()
    try:
      while not supervisor.ended():
        self.assertLess(time.time(), deadline, 'the run does not end')
        time.sleep(0.2)
        supervisor.restart_the_dead()
        row = metrics_csv.last_metrics(folder.metrics)
        if victims and row and row['environment_steps'] > victims[0][1]:
          name, _ = victims.pop(0)
          supervisor.processes[name].kill()
    finally:
      supervisor.stop()

    self.assertEmpty(victims, 'not every part was killed')
    self.assertTrue(folder.done.exists())
    rows = metrics_csv.read_metrics(folder.metrics)
    steps = [row['learner_step'] for row in rows]
    self.assertEqual(steps, sorted(set(steps)), 'steps twice in metrics.csv')
    for row in rows:
      self.assertEqual(row['unrolls_duplicate'], 0)
      self.assertLessEqual(row['oldest_unroll'], row['oldest_allowed'])
    played = experiment.evaluate(folder, lambda: False)
    self.assertGreaterEqual(np.mean(played.successes), 0.95)

  def test_a_run_that_diverges_reports_it(self):
    folder = run_folder.RunFolder(self.create_tempdir().full_path)
    gin.clear_config()
    stderr = io.StringIO()
    with contextlib.redirect_stderr(stderr):
      code = train.train([str(_GIN / 'action_recall_cpu.gin')],
                         ['Adam.learning_rate = 1e30'], str(folder.root))
    self.assertEqual(code, 1)
    self.assertIn(
        'Stopped: loss or gradient is not finite at learner step', stderr.getvalue())
    self.assertIn('is not finite at learner step', folder.diverged.read_text())
    self.assertFalse(folder.done.exists())
    self.assertEmpty(list(folder.checkpoints.glob('*.index')))


if __name__ == '__main__':
  absltest.main()
