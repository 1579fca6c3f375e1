"""Tests of a run whose parts are binaries: they wait, stop, resume and end together."""

import os
import pathlib
import signal
import subprocess
import sys
import time
import urllib.request

from absl.testing import absltest
import portpicker

from gtrxl_tf.training import metrics_csv
from gtrxl_tf.training import run_folder

_ROOT = pathlib.Path(__file__).parents[1]
_TINY = ['ActionRecall.delay = 2', 'TransformerXL.memory_length = 4',
         'OnlineExperiment.unroll_length = 8', 'OnlineExperiment.batch_size = 16',
         'OnlineExperiment.environments_per_actor = 16', 'Experiment.log_period = 10',
         'Experiment.evaluation_episodes = 10',
         'OnlineExperiment.environment_steps = 25000',
         'Checkpoints.period = 1000000']
_SECONDS = 120


class PartsTest(absltest.TestCase):

  def start(self, binary, *flags):
    """Starts a binary with its output in a file, which a failure shows."""
    log = pathlib.Path(self.create_tempfile(f'{binary}_{time.time()}').full_path)
    with open(log, 'w') as file:
      process = subprocess.Popen(
          [sys.executable, '-m', f'binaries.{binary}',
           f'--gin_file={_ROOT / "gin/gtrxl/action_recall_cpu.gin"}',
           *(f'--gin_bindings={x}' for x in _TINY),
           *flags],
          cwd=_ROOT, stdout=file, stderr=subprocess.STDOUT,
          env={**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '2'})
    process.log = log
    self.addCleanup(process.kill)
    return process

  def ended(self, process):
    """Waits for a process to end; returns its output."""
    try:
      found = process.wait(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
      found = 'none: it does not end'
    text = process.log.read_text()
    self.assertEqual(found, 0, f'exit code of {process.args[2]}:\n{text}')
    return text

  def wait_for(self, what, condition):
    deadline = time.time() + _SECONDS
    while not condition():
      self.assertLess(time.time(), deadline, what)
      time.sleep(0.1)

  def test_a_run_is_interrupted_and_resumed(self):
    folder = run_folder.RunFolder(self.create_tempdir().full_path)
    port, metrics_port = (portpicker.pick_unused_port() for _ in range(2))
    server_flag, root = f'--server=localhost:{port}', f'--root_dir={folder.root}'
    def step():
      return (metrics_csv.last_metrics(folder.metrics) or {}).get(
            'learner_step', 0)

    actor = self.start('actor', server_flag, '--index=0')
    learner = self.start('learner', server_flag, root)
    evaluator = self.start('evaluator', server_flag, root)
    self.wait_for('the actor does not log that it waits', lambda: (
        f'actor: the Reverb server at localhost:{port} does not answer'
        in actor.log.read_text()))
    server = self.start('reverb_server', f'--port={port}',
                        f'--metrics_port={metrics_port}')
    self.wait_for('the learner takes no steps', lambda: step() >= 20)
    with urllib.request.urlopen(f'http://localhost:{metrics_port}/metrics') as page:
      self.assertIn(b'gtrxl_server_weights_items 1.0', page.read())

    learner.send_signal(signal.SIGTERM)
    self.assertIn('Run the same command to continue', self.ended(learner))
    saved, = folder.checkpoints.glob('ckpt-*.index')
    saved_step = int(saved.stem.split('-')[1])
    self.assertGreaterEqual(saved_step, 20)

    learner = self.start('learner', server_flag, root)
    self.assertIn(f'resuming from {folder.checkpoints}/ckpt-{saved_step}',
                  self.ended(learner))
    self.ended(actor)
    self.ended(evaluator)
    self.assertTrue(folder.done.exists())
    server.send_signal(signal.SIGTERM)
    self.ended(server)

    rows = metrics_csv.read_metrics(folder.metrics)
    steps = [row['learner_step'] for row in rows]
    self.assertEqual(steps, sorted(set(steps)))
    self.assertEqual(rows[-1]['unrolls_duplicate'], 0)
    self.assertLessEqual(rows[-1]['oldest_unroll'], rows[-1]['oldest_allowed'])
    evaluations = metrics_csv.read_metrics(folder.evaluations)
    self.assertEqual(evaluations[0]['learner_step'], 0)
    self.assertGreater(evaluations[-1]['learner_step'], saved_step)

  def test_an_inference_server_acts_and_is_killed(self):
    folder = run_folder.RunFolder(self.create_tempdir().full_path)
    port, rpc_port, metrics_port = (portpicker.pick_unused_port() for _ in range(3))
    server_flag, root = f'--server=localhost:{port}', f'--root_dir={folder.root}'
    settings = ['--gin_bindings=OnlineExperiment.num_actors = 2',
                '--gin_bindings=OnlineExperiment.environments_per_actor = 8']
    def step():
      return (metrics_csv.last_metrics(folder.metrics) or {}).get('learner_step', 0)
    def start_inference():
      return self.start('inference', server_flag, f'--port={rpc_port}', *settings,
                        f'--metrics_port={metrics_port}')

    host = self.start('actor', f'--inference=localhost:{rpc_port}', '--index=0', *settings)
    learner = self.start('learner', server_flag, root, *settings)
    inference = start_inference()
    server = self.start('reverb_server', f'--port={port}', *settings)
    self.wait_for('the learner takes no steps', lambda: step() >= 20)
    with urllib.request.urlopen(f'http://localhost:{metrics_port}/metrics') as page:
      text = page.read().decode()
    for gauge in 'batch_size', 'wait_seconds', 'occupancy', 'queue', 'actors 2.0':
      self.assertIn(f'\ngtrxl_inference_{gauge}', text)
    inference.kill()
    inference.wait()
    killed_at = step()
    inference = start_inference()
    self.wait_for('the learner takes no more steps', lambda: step() >= killed_at + 20)
    # Another process with the same number takes its place.
    host.kill()
    host.wait()
    host = self.start('actor', f'--inference=localhost:{rpc_port}', '--index=0', *settings)
    for process in learner, inference, host:
      self.ended(process)
    server.send_signal(signal.SIGTERM)
    self.ended(server)
    last = metrics_csv.last_metrics(folder.metrics)
    self.assertEqual(last['unrolls_duplicate'], 0)
    self.assertLessEqual(last['oldest_unroll'], last['oldest_allowed'])


if __name__ == '__main__':
  absltest.main()
