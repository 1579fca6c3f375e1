"""Tests that exported modules act and learn without TensorFlow; they need jax."""

import csv
import subprocess
import sys

from absl.testing import absltest

from binaries import commands_testing

_GIN = ('gin/gtrxl/numpad_2x2_cpu.gin', 'TransformerXL.memory_length = 40',
        'OnlineExperiment.batch_size = 4', 'OnlineExperiment.environments_per_actor = 4',
        'OnlineExperiment.max_head_start = 50', 'Adam.learning_rate = 1e-20')


def _python(*arguments):
  return subprocess.run([sys.executable, *arguments], cwd=commands_testing.ROOT, check=True,
                        stdout=subprocess.PIPE, text=True).stdout


class DeviceTrainingTest(absltest.TestCase):

  def test_the_policy_that_learns_is_the_one_that_acted(self):
    folder, (gin_file, *bindings) = self.create_tempdir().full_path, _GIN
    _python('-m', 'tools.export_training', f'--gin_file={gin_file}', '--batches=2',
            f'--output_dir={folder}', *(f'--gin_bindings={x}' for x in bindings))
    rows = csv.DictReader(_python(
        '-c', 'import sys; from tools import device_training as d; '
        f'd.main("{folder}", "cpu", "1200", "0"); '
        'assert "tensorflow" not in sys.modules').splitlines())
    last = {name: float(x) for name, x in list(rows)[-1].items()}
    self.assertEqual(last['environment_steps'], 7 * 8 * 24)  # More than 100 in each.
    self.assertEqual(last['learner_steps'], 7 * 2)
    # The rate is almost zero, so memory, actions and weights are those of acting.
    self.assertLess(abs(last['kl_categorical']), 1e-6)
    self.assertGreater(last['entropy'], 1)


if __name__ == '__main__':
  absltest.main()
