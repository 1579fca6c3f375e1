"""The requirements of gtrxl_tf. The exact versions tested are in requirements.lock."""

import os
import shutil

import setuptools
from setuptools.command import build_py


class _Build(build_py.build_py):
  """Leaves tests out of a wheel, and puts programs and gin files into the library."""

  def find_package_modules(self, package, package_dir):
    return [found for found in super().find_package_modules(package, package_dir)
            if not found[1].endswith(('_test', 'testing'))]

  def run(self):
    super().run()
    if not getattr(self, 'editable_mode', False):
      for name in 'binaries', 'gin':
        shutil.copytree(
            name, os.path.join(self.build_lib, 'gtrxl_tf', name), dirs_exist_ok=True,
            ignore=shutil.ignore_patterns('__pycache__', '*_test.py', '*testing.py'))


def _before(version, *packages):
  """Requires packages only where Python is older than a version."""
  return [f"{package}; python_version < '{version}'" for package in packages]


_POPGYM = ['gymnasium>=1.0', 'popgym>=1.0.7']
# pip finds no scikit-image for Python 3.10 that fits requirements.lock.
_BSUITE = ["bsuite>=0.3.6; python_version >= '3.11'"]

setuptools.setup(
    name='gtrxl_tf',
    version='0.1.0',
    description='Transformer memory for reinforcement learning, in TensorFlow',
    license='Apache-2.0',
    # These are the papers: the library has no public address yet.
    project_urls={'GTrXL': 'https://arxiv.org/abs/1910.06764',
                  'V-MPO': 'https://arxiv.org/abs/1909.12238',
                  'RATE': 'https://arxiv.org/abs/2306.09459'},
    cmdclass={'build_py': _Build},
    # An editable installation is then a line in a .pth file, whatever pip's version.
    package_dir={'': '.'},
    packages=setuptools.find_packages(include=['gtrxl_tf', 'gtrxl_tf.*']),
    package_data={'gtrxl_tf': ['py.typed'], 'gtrxl_tf.environments': [
        'data/*.csv', 'data/*.wad']},
    entry_points={'console_scripts': ['gtrxl = gtrxl_tf.__main__:main']},
    python_requires='>=3.10,<3.14',  # TensorFlow has no wheel for 3.14.
    install_requires=[
        'absl-py>=1.4',
        'dm-env>=1.6',
        'dm-tree>=0.1.8',
        'gin-config>=0.5,<0.6',  # gin_files.py uses its parser.
        'matplotlib>=3.7',
        'numpy>=1.23',
        'pillow>=9.4',
        'portpicker>=1.5',
        'prometheus-client>=0.20',
        'tensorboard>=2.15',
    ],
    # None of these is needed to train on one machine, online or offline, and to serve,
    # with any TensorFlow from 2.15. Upper bounds for Python before 3.12 follow from
    # `online`, as Reverb needs NumPy 1 and an old protobuf.
    extras_require={
        # Online training on many machines, and TF-Agents. The last dm-reverb, 0.14, is
        # built against TensorFlow 2.15, and both end at Python 3.11.
        'online': _before(
            '3.12',
            'dm-reverb>=0.14,<0.15',
            'keras>=2.15,<2.16',
            'numpy<2',
            'tensorflow-probability>=0.23,<0.24',
            'tf-agents>=0.19,<0.20',
        ),
        # The TensorFlow of `online`. It is an extra because its flavours overwrite each
        # other: choose one, and none on a TPU VM, which brings its own.
        'cpu': ['tensorflow-cpu>=2.15,<2.16'],
        'gpu': ['tensorflow[and-cuda]>=2.15,<2.16'],
        'envs': [
            'ale-py>=0.10',
            # labmaze, which dm-control needs, has no wheel for Python 3.13.
            *_before('3.13', 'dm-control>=1.0.20', 'memory-maze>=1.0.3'),
            'gymnasium>=1.0',
            'imageio>=2.34',  # For gymnasium's MuJoCo tasks.
            'minigrid>=3.0',
            'mujoco>=3.1,<4',  # dm-control fails on MuJoCo 4.
            'opencv-python-headless>=4.8',
            *_before('3.12', 'opencv-python-headless<4.12'),
            'vizdoom>=1.2.4',
            *_POPGYM,
            *_BSUITE,
        ],
        'popgym': _POPGYM,
        'bsuite': _BSUITE,
        'offline': [
            'h5py>=3.9',
            'jax>=0.4.30',  # For Minari to write.
            'minari>=0.5.2',
            'tensorflow-datasets>=4.9.6',
            *_before('3.12', 'jax<0.4.35', 'minari<0.5.4', 'tensorflow-metadata<1.18'),
            # The next release, the first for Python 3.12, needs glibc 2.38.
            *_before('3.12', 'envlogger>=1.2,<1.3'),
        ],
        'serve': ['aiohttp>=3.10'],
        'wandb': ['wandb>=0.18'],
        'dev': ['aiohttp>=3.10', 'gymnasium>=1.0', 'hypothesis>=6.100',
                'kubernetes-validate>=1.30', 'mypy>=1.10', 'pytest>=7',
                'pytest-random-order>=1.1', 'pytest-rerunfailures>=14', 'pytest-xdist>=3',
                'ruff>=0.9',
                # TensorFlow 2.15 needs an older typing_extensions than IPython.
                "ipykernel>=6; python_version >= '3.12'",
                "nbclient>=0.10; python_version >= '3.12'"],
    },
)
