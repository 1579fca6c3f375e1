"""The requirements of gtrxl_tf. The exact versions tested are in requirements.lock."""

import os
import shutil

import setuptools
from setuptools.command import build_py


class _Build(build_py.build_py):
  """Leaves tests out of a wheel, and puts the gin files into the library."""

  def find_package_modules(self, package, package_dir):
    return [found for found in super().find_package_modules(package, package_dir)
            if not found[1].endswith(('_test', 'testing'))]

  def run(self):
    super().run()
    if not getattr(self, 'editable_mode', False):
      shutil.copytree('gin', os.path.join(self.build_lib, 'gtrxl_tf', 'gin'),
                      dirs_exist_ok=True)


_POPGYM = ['gymnasium>=1.0', 'popgym>=1.0.7']
# pip finds no scikit-image for Python 3.10 that fits requirements.lock.
_BSUITE = ["bsuite>=0.3.6; python_version >= '3.11'"]

setuptools.setup(
    name='gtrxl_tf',
    version='0.1.0',
    description='Transformer memory for reinforcement learning, in TensorFlow',
    license='Apache-2.0',
    cmdclass={'build_py': _Build},
    # An editable installation is then a line in a .pth file, whatever pip's version.
    package_dir={'': '.'},
    packages=setuptools.find_packages(
        include=['gtrxl_tf', 'gtrxl_tf.*', 'binaries']),
    package_data={'gtrxl_tf.environments': ['data/*.csv']},
    entry_points={'console_scripts': ['gtrxl = binaries.gtrxl:main']},
    python_requires='>=3.10',
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
    # None of these is needed for cores, networks, offline training and serving, with
    # any TensorFlow from 2.15.
    extras_require={
        # Online training. The last dm-reverb, 0.14, is built against TensorFlow 2.15, and
        # both end at Python 3.11. The upper bounds follow from these two.
        'online': [f"{package}; python_version < '3.12'" for package in (
            'dm-reverb>=0.14,<0.15',
            'keras>=2.15,<2.16',
            'numpy<2',
            'tensorflow-probability>=0.23,<0.24',
            'tf-agents>=0.19,<0.20',
        )],
        # The TensorFlow of `online`. It is an extra because its flavours overwrite each
        # other: choose one, and none on a TPU VM, which brings its own.
        'cpu': ['tensorflow-cpu>=2.15,<2.16'],
        'gpu': ['tensorflow[and-cuda]>=2.15,<2.16'],
        'envs': [
            'ale-py>=0.10',
            'dm-control>=1.0.20',
            'gymnasium>=1.0',
            'imageio>=2.34',  # For gymnasium's MuJoCo tasks.
            'memory-maze>=1.0.3',
            'minigrid>=3.0',
            'mujoco>=3.1,<4',  # dm-control fails on MuJoCo 4.
            'opencv-python-headless>=4.8,<4.12',  # Later ones need NumPy 2.
            'vizdoom>=1.2.4',
            *_POPGYM,
            *_BSUITE,
        ],
        'popgym': _POPGYM,
        'bsuite': _BSUITE,
        'offline': [
            'envlogger>=1.2,<1.3',  # 1.3 needs glibc 2.38.
            'h5py>=3.9',
            'jax>=0.4.30,<0.4.35',  # For Minari to write; later ones need NumPy 2.
            'minari>=0.5.2,<0.5.4',  # 0.5.4 needs NumPy 2.
            'tensorflow-datasets>=4.9.6',
            'tensorflow-metadata>=1.14,<1.18',  # Later ones need protobuf 5.
        ],
        # rliable's arch 7 fails with pandas 3.
        'figures': ['pandas<3', 'rliable>=1.2,<2'],
        'serve': ['aiohttp>=3.10'],
        'dev': ['aiohttp>=3.10', 'hypothesis>=6.100', 'kubernetes-validate>=1.30',
                'pytest>=7', 'pytest-random-order>=1.1', 'pytest-rerunfailures>=14',
                'pytest-xdist>=3', 'ruff>=0.9'],
    },
)
