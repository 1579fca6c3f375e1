"""Tests of machine.py."""

import math
import pathlib
from unittest import mock

from absl.testing import absltest

from gtrxl_tf import machine


class FreeBytesTest(absltest.TestCase):

  def test_this_machine_has_memory(self):
    self.assertBetween(machine.free_bytes(), 2**20, 2**50)

  def test_a_container_has_no_more_than_its_limit(self):
    folder = self.create_tempdir()
    files = [folder.create_file(name, text).full_path for name, text in (
        ('limit', '3000000\n'), ('used', '2000000\n'), ('stat', 'anon 1\nfile 500000\n'))]
    with mock.patch.object(machine, '_CGROUPS', [(*files, 'file')]):
      self.assertEqual(machine.free_bytes(), 1_500_000)
      folder.create_file('limit', 'max\n')
      self.assertGreater(machine.free_bytes(), 1_500_000)
    with mock.patch.multiple(machine, _CGROUPS=[], _MEMINFO=pathlib.Path('/none')):
      self.assertEqual(machine.free_bytes(), math.inf)


if __name__ == '__main__':
  absltest.main()
