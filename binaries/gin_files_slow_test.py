"""Builds every experiment in gin/ at full depth.

Every model of gin/rate is built in every environment there, and every ablation of
gin/distillation on its settings.
"""

from absl.testing import absltest
from absl.testing import parameterized

from binaries import gin_files_test

# Each is like another file, which is tested.
_LIKE_OTHERS = (
    'atari_breakout.gin', 'atari_qbert.gin', 'atari_seaquest.gin',
    'mujoco_halfcheetah.gin', 'mujoco_walker2d.gin', 't_maze_90_cpu.gin',
    't_maze_valves.gin', 't_maze_valves_cpu.gin',
    'training_memory_270.gin', 'training_memory_90.gin')


class ModelsTest(gin_files_test.OfflineGinTest):

  @parameterized.parameters(*sorted(set(gin_files_test.OFFLINE) - set(_LIKE_OTHERS)))
  def test_models(self, name):
    self.try_models(name)


class DistillationTest(gin_files_test.DistillationGinTest):

  @parameterized.product(
      name=('dktdln.gin', 'training_memory_four_tokens.gin'),
      model=gin_files_test.DISTILLED)
  def test_model(self, name, model):
    self.build(name, f'models/{model}')

  @parameterized.parameters(*gin_files_test.ADDED)
  def test_ablation(self, name):
    large = ('128_of_4.gin', '32_of_16.gin', 'heads_16.gin', 'heads_32.gin')
    setting = ('dktdln.gin' if name.startswith(('chunk_25', 'chunk_50')) else
               'dr.gin' if name.endswith(large) else 'dr_cpu.gin')
    self.build(setting, 'models/ed.gin', f'ablations/{name}')


class GinFilesTest(gin_files_test.GinTest):

  @parameterized.parameters(*gin_files_test.LARGE)
  def test_experiment_of_the_papers_size(self, name):
    self.prepare([gin_files_test.GTRXL / name], gin_files_test.BINDINGS.get(name, []))


if __name__ == '__main__':
  absltest.main()
