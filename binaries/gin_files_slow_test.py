"""Builds every experiment in gin/ at full depth.

Every model of gin/rate is built in every environment there, and every ablation of
gin/distillation on its settings.
"""

from absl.testing import absltest
from absl.testing import parameterized

from binaries import gin_files_test
from gtrxl_tf.analysis import models

# Each is like another file, which is tested.
_LIKE_OTHERS = (
    'atari_breakout.gin', 'atari_qbert.gin', 'atari_seaquest.gin',
    'mujoco_halfcheetah.gin', 'mujoco_walker2d.gin', 't_maze_9.gin', 't_maze_15.gin',
    't_maze_30.gin', 't_maze_90_cpu.gin',
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

  @parameterized.parameters(
      *(('dr_cpu.gin', f'DistillationNetwork.positions={positions}') for positions in (
          'global_sinusoidal', 'local_learnable', 'local_sinusoidal')),  # Figure 6
      *((name, f'SegmentTransformer.num_heads={heads}+SegmentTransformer.head_dim={dim}')
        for name, heads, dim in (  # Figure 10
            ('dr.gin', 128, 4), ('dr.gin', 32, 16), ('dr_cpu.gin', 2, 32),
            ('dr_cpu.gin', 8, 8))),
      *((name, f'SegmentTransformer.num_heads={heads}+SegmentTransformer.head_dim={dim}'
         f'+SegmentTransformer.model_dim={width}+SegmentTransformer.mlp_dim={4 * width}')
        for name, heads, dim, width in (  # Figure 8
            ('dr.gin', 32, 8, 256), ('dr.gin', 16, 8, 128), ('dr_cpu.gin', 2, 16, 32),
            ('dr_cpu.gin', 1, 16, 16))),
      *((name, f'chunk_length={chunk}+memory_length={recurrence}')
        for name, chunk, recurrence in (  # Figure 11
            *(('dr_cpu.gin', *x) for x in (
                (10, 20), (10, 30), (20, 10), (20, 20), (20, 30))),
            *(('dktdln.gin', *x) for x in (
                (25, 100), (25, 150), (50, 50), (50, 100), (50, 150))))))
  def test_ablation(self, name, settings):
    [model] = models.models([f'models/ed.gin+{settings}']).values()
    self.build(name, *model.gin_files, bindings=model.bindings)


class GinFilesTest(gin_files_test.GinTest):

  @parameterized.parameters(*gin_files_test.LARGE)
  def test_experiment_of_the_papers_size(self, name):
    self.prepare([gin_files_test.GTRXL / name], gin_files_test.BINDINGS.get(name, []))


if __name__ == '__main__':
  absltest.main()
