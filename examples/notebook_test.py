"""Executes notebook.ipynb, with little training."""

import json
import os
import pathlib
from unittest import mock

from absl.testing import absltest
import pytest

nbclient = pytest.importorskip('nbclient', reason='the extra dev has it from Python 3.12 on')
nbformat = pytest.importorskip('nbformat')

_NOTEBOOK = pathlib.Path(__file__).with_name('notebook.ipynb')


class NotebookTest(absltest.TestCase):

  @pytest.mark.medium
  def test_each_cell_runs(self):
    notebook = nbformat.read(_NOTEBOOK, as_version=4)
    with mock.patch.dict(os.environ, STEPS='4000'):
      nbclient.NotebookClient(
          notebook, timeout=600, resources={'metadata': {
              'path': self.create_tempdir().full_path}}).execute()
    pictures = [output for cell in notebook.cells if cell.cell_type == 'code'
                for output in cell.outputs if 'image/png' in output.get('data', {})]
    self.assertGreaterEqual(len(pictures), 2)  # Curves, and what is attended to.

  def test_it_is_kept_without_outputs(self):
    cells = json.loads(_NOTEBOOK.read_text(encoding='utf-8'))['cells']
    self.assertEqual([cell for cell in cells if cell.get('outputs')], [])


if __name__ == '__main__':
  absltest.main()
