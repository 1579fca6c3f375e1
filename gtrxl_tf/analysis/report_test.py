"""Tests of report.py and the modules that it is made of."""

import base64
import html.parser
import io
import math
import os
import pathlib
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import gin
import numpy as np
from PIL import Image
import pytest

from gtrxl_tf.analysis import films
from gtrxl_tf.analysis import report
from gtrxl_tf.launch import prepare
from gtrxl_tf.settings import config
from gtrxl_tf.training import checkpoints
from gtrxl_tf.training import curves
from gtrxl_tf.training import run_folder

_ROOT = pathlib.Path(__file__).parents[2]
_NUMPAD = '''
Experiment.environment = @Numpad
Experiment.seed = 3
Numpad.size = 2
Numpad.episode_length = 10
ActorCritic.core = @TransformerXL()
TransformerXL.num_layers = 1
Adam.learning_rate = 0.001
'''
_METRICS = '''learner_step,environment_steps,seconds,return,success,entropy,queue_length
10,1000,60,nan,nan,2.1,1
20,2000,120,3.5,0.25,1.9,1
30,3000,3725,7.25,0.75,1.5,1
'''
_EVALUATION = '''episode,return,success,task
0,6,1.0,0
1,10,1.0,0
2,8,0.0,1
3,8,0.0,1
'''


class _Page(html.parser.HTMLParser):
  """The content of a page.

  Attributes:
    rows: the cells of each table row.
    heads: the texts of headings.
    addresses: what elements refer to.
    tags: how often each element begins.
    text: all of the text but for the style sheet.
  """

  def __init__(self, path):
    super().__init__()
    self.rows, self.heads, self.addresses = [], [], []
    self.tags, self.text, self._open = {}, '', []
    self.html = pathlib.Path(path).read_text(encoding='utf-8')
    self.feed(self.html)
    self.close()

  def handle_starttag(self, tag, attrs):
    self.tags[tag] = self.tags.get(tag, 0) + 1
    self.addresses += [value for name, value in attrs
                       if name in ('src', 'href', 'xlink:href', 'srcset')]
    if tag == 'tr':
      self.rows.append([])
    if tag in ('td', 'th'):
      self.rows[-1].append('')
    if tag in ('h1', 'h2', 'h3'):
      self.heads.append('')
    if tag not in ('meta', 'img'):
      self._open.append(tag)

  def handle_startendtag(self, tag, attrs):
    self.handle_starttag(tag, attrs)
    self.handle_endtag(tag)

  def handle_endtag(self, tag):
    if tag not in ('meta', 'img'):
      assert self._open.pop() == tag, tag

  def handle_data(self, data):
    if self._open and self._open[-1] in ('td', 'th'):
      self.rows[-1][-1] += data
    if self._open and self._open[-1] in ('h1', 'h2', 'h3'):
      self.heads[-1] += data
    if 'style' not in self._open:
      self.text += data

  def row(self, name):
    """The cells after the one that names a row."""
    found, = [row[1:] for row in self.rows if row[0] == name]
    return found


class _Test(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.addCleanup(gin.clear_config)
    self.folder = pathlib.Path(self.create_tempdir().full_path)

  def make(self, name, settings=_NUMPAD, **contents):
    """The folder of a run, with files by their names without suffix."""
    root = self.folder / name
    root.mkdir(parents=True)
    files = {'config.gin': settings, 'metrics.csv': _METRICS,
             'evaluation.csv': _EVALUATION, 'done': 'The run took all its steps.\n',
             **contents}
    for file, text in files.items():
      if text is not None:
        (root / file).write_text(text)
    return str(root)

  def page(self, *roots, **settings):
    """A report; `self.panels` are the titles or axes of its pictures' panels."""
    self.panels, save = [], curves.save

    def keep(figure, *args):
      self.panels += [panel.get_title(loc='left') or panel.get_xlabel()
                      for panel in figure.axes]
      save(figure, *args)

    with mock.patch.object(curves, 'save', keep):
      return _Page(report.write(roots, **{'film': False, **settings}))


class PageTest(_Test):

  @pytest.mark.medium
  def test_a_finished_run(self):
    root = self.make('numpad <2>')
    page = self.page(root)
    self.assertEqual(page.heads, [
        'numpad <2>', 'Results', 'Curves', 'Other metrics', 'Settings'])
    self.assertTrue(os.path.exists(f'{root}/report.html'))
    for name, value in {
        'environment': 'Numpad', 'core': 'TransformerXL', 'seed': '3',
        'ended': 'done: The run took all its steps.', 'environment steps': '3,000',
        'learner steps': '30', 'wall time': '1:02:05', 'folder': root}.items():
      self.assertEqual(page.row(name), [value])
    self.assertIn(
        ['run', 'episodes', 'return', 'success', 'informed', 'random'], page.rows)
    episodes, returned, success, informed, random = page.row('numpad <2>')
    self.assertEqual((episodes, returned, success), ('4', '8.00 ± 0.82', '0.50'))
    self.assertGreater(float(informed), float(random))
    self.assertEqual(page.row('numpad <2>, task 1'),
                     ['2', '8.00 ± 0.00', '0.00', '', ''])
    self.assertEqual(
        self.panels, ['million environment steps', 'minutes', 'success', 'entropy'])
    self.assertEqual(page.row('Adam.learning_rate'), ['0.001'])
    self.assertEqual(page.tags['details'], 1)
    self.assertIn(_NUMPAD, page.text)
    # It needs no other file.
    self.assertLen(page.addresses, 2)
    for address in page.addresses:
      self.assertStartsWith(address, 'data:image/svg+xml;base64,')
    self.assertNotIn('script', page.tags)
    self.assertNotIn('link', page.tags)

  @parameterized.parameters(
      ({'done': None}, 'stopped, or still running'),
      ({'done': None, 'diverged': 'loss is nan\n'}, 'diverged: loss is nan'),
      ({'done': ''}, 'done'))
  def test_how_a_run_ended(self, contents, expected):
    page = self.page(self.make('run', **{'metrics.csv': None, **contents}))
    self.assertEqual(page.row('ended'), [expected])

  def test_a_run_without_metrics(self):
    page = self.page(self.make('numpad', **{
        'metrics.csv': None, 'evaluation.csv': None, 'done': None}))
    self.assertIn('There are no metrics yet.', page.text)
    self.assertEmpty(page.addresses)
    self.assertEqual(page.row('numpad')[0], 'none; last of training')

  @pytest.mark.medium
  def test_several_runs_stand_side_by_side(self):
    other = _NUMPAD.replace('0.001', '0.01') + '\nDeepLSTM.num_layers = 4\n'
    roots = [self.make('gtrxl/seed_0'), self.make('lstm/seed_0', other, done=None)]
    page = self.page(*roots, output=str(self.folder / 'both.html'))
    self.assertEqual(page.heads[0], 'gtrxl/seed_0, lstm/seed_0')
    self.assertEqual(page.row('ended'), [
        'done: The run took all its steps.', 'stopped, or still running'])
    self.assertLen(self.panels, 4)
    settings = page.rows[page.rows.index(['setting', 'gtrxl/seed_0', 'lstm/seed_0']):]
    self.assertEqual(settings[1:], [
        ['Adam.learning_rate', '0.001', '0.01'], ['DeepLSTM.num_layers', '', '4']])
    self.assertEqual(page.tags['details'], 2)

  @pytest.mark.medium
  def test_runs_of_several_kinds_have_learner_steps_in_common(self):
    offline = _METRICS.replace('environment_steps', 'accuracy')
    process = ('name,transitions,return,interval95\npolicy,10,0.5,0.1\nsource,10,0.9,0.1\n')
    self.page(self.make('a'), self.make(
        'b', **{'metrics.csv': offline, 'learning_process.csv': process}),
              output=str(self.folder / 'both.html'))
    self.assertEqual(self.panels, ['thousand learner steps', 'minutes', 'transitions',
                                   'success', 'entropy', 'accuracy'])

  @pytest.mark.medium
  def test_a_policy_that_learns_while_it_acts_has_no_random_actions_beside_it(self):
    experiment = mock.Mock(environment_name='dr', task_names=[''], kind='History',
                           learns_while_acting=True)
    experiment.informed_return.return_value = 1.0
    with mock.patch.object(report.prepare, 'prepare', return_value=experiment):
      self.page(self.make('run'))
    experiment.make_evaluation_environments.assert_not_called()

  def test_an_experiment_that_cannot_be_made_has_no_films(self):
    page = self.page(self.make(
        'run', 'Experiment.environment = @Numpad\nNumpad.size = 0\n',
        **{'metrics.csv': None}), film=True)
    self.assertIn('No episodes were played: Numpad.size = 0', page.text)
    self.assertIn('8.00 ± 0.82', page.text)

  def test_a_run_without_checkpoints_has_no_films(self):
    page = self.page(self.make('run', **{'metrics.csv': None}), film=True)
    self.assertIn('No episodes were played: ', page.text)

  def test_what_is_no_run_is_refused_before_anything_is_read(self):
    with self.assertRaisesRegex(
        config.ConfigError, f'^{self.folder} is not the folder of a run: expected'):
      report.write([self.make('run'), str(self.folder)])
    with self.assertRaisesRegex(config.ConfigError, '^--output=.*nowhere/a.html'):
      report.write([str(self.folder / 'run')], f'{self.folder}/nowhere/a.html')
    for content, message in ((b'x = [', 'not gin: '), (b'x = 1  # \xff', "'utf-8' codec")):
      (self.folder / 'run' / 'config.gin').write_bytes(content)
      with self.assertRaisesRegex(config.ConfigError, f'run/config.gin: {message}'):
        report.write([str(self.folder / 'run')])


def _episode(num_steps, frame=(40, 60, 3)):
  return films.Episode(
      0, [np.full(frame, i, np.uint8) for i in range(num_steps)],
      np.arange(num_steps) % 3, np.eye(1, num_steps, 1)[0], 1.0, math.nan)


def _opened(uri):
  kind, data = uri.split(';base64,')
  film = Image.open(io.BytesIO(base64.b64decode(data)))
  assert kind == f'data:image/{film.format.lower()}'
  return film


class PicturesTest(_Test):

  @parameterized.parameters(
      ((40, 60, 3), 320), ((600, 300, 3), 320), ((3, 100, 3), 12))
  def test_a_film_alone(self, frame, height):
    film = _opened(report.animation(_episode(4, frame), None))
    self.assertEqual((film.n_frames, film.size), (4, (480, 20 + height + 4)))

  def test_attention_is_below_the_frames(self):
    num_steps, num_layers, num_memory = 5, 2, 3
    weights = np.zeros([num_steps, num_layers, num_memory + num_steps])
    weights[3, 0, num_memory + 1] = 1  # Step 3 attends to step 1 in layer 1,
    weights[3, 1, 0] = 1               # and to memory in layer 2.
    film = _opened(report.animation(_episode(num_steps), weights))
    film.seek(3)
    pixels = np.asarray(film.convert('RGB')).astype(int)
    strip = pixels[20 + 320 + 4:][:3 * 14]
    columns = num_memory + 1 + num_steps  # A gap separates memory from steps.
    width = (480 - 24 - 4) // columns
    cells = strip[7::14, 24 + width // 2:][:, ::width][:, :columns]
    yellow = (cells.min(axis=-1) < 90) & (cells[..., :2].min(axis=-1) > 180)
    self.assertEqual(list(zip(*np.nonzero(yellow))), [(1, 5), (2, 0)])
    # The reward of step 1 is marked, and step 4 is not seen yet.
    self.assertGreater(cells[0, 5, 1], 150)
    np.testing.assert_allclose(cells[1, 8], [52, 55, 64], atol=12)


class FilmTest(_Test):
  """Films of runs that have checkpoints."""

  def saved(self, gin_file, *settings, name='run'):
    """The folder of a run that has a checkpoint of new networks."""
    folder = run_folder.RunFolder(self.folder / name)
    folder.root.mkdir()
    gin.clear_config()
    experiment = prepare.prepare([str(_ROOT / gin_file)], [
        'ActorCritic.head_units = 8', 'TransformerXL.num_layers = 2', *settings])
    folder.config.write_text(config.operative_text())
    saved = checkpoints.Checkpoints(
        folder.checkpoints, 1, kind=experiment.kind, agent=experiment.make_agent())
    saved.restore()
    saved.save(1)
    return str(folder.root)

  @pytest.mark.medium
  def test_frames_stand_above_attention(self):
    root = self.saved('gin/gtrxl/numpad_2x2_cpu.gin', 'Numpad.episode_length = 6')
    page = self.page(root, film=True, num_episodes=2)
    self.assertIn('The strip shows how much the step attends', page.text)
    self.assertRegex(page.text, r'Episode 1: return \d+\.00, (no )?success')
    self.assertRegex(page.row('version')[0], '^gtrxl_tf .*, TensorFlow 2')
    uris = [x for x in page.addresses if x.startswith('data:image')]
    self.assertLen(uris, 2)
    for uri in uris:
      film = _opened(uri)
      self.assertEqual((film.n_frames, film.size), (7, (480, 20 + 320 + 4 + 3 * 14 + 4)))

  @pytest.mark.medium
  def test_what_cannot_be_drawn_has_a_film_of_its_attention_alone(self):
    page = self.page(self.saved('gin/gtrxl/action_recall_cpu.gin'), film=True)
    self.assertIn('ActionRecall cannot draw itself: ', page.text)
    film = _opened(page.addresses[-1])
    self.assertEqual(film.size, (480, 20 + 3 * 14 + 4))

  @pytest.mark.medium
  def test_each_run_is_played_with_its_own_settings(self):
    gin_file, short = 'gin/gtrxl/numpad_2x2_cpu.gin', 'Numpad.episode_length = 6'
    roots = [self.saved(gin_file, short, core, name=name) for name, core in {
        'memoryless': 'ActorCritic.core = @Memoryless()',
        'gtrxl': 'TransformerXL.num_layers = 1'}.items()]
    page = self.page(
        *roots, output=str(self.folder / 'both.html'), film=True, num_episodes=1)
    self.assertIn('attention of a Memoryless: expected', page.text)
    self.assertIn('The strip shows', page.text)
    films_alone_and_with_a_strip = [
        _opened(x).height for x in page.addresses if x.startswith('data:image')]
    self.assertEqual(films_alone_and_with_a_strip, [344, 344 + 2 * 14 + 4])


if __name__ == '__main__':
  absltest.main()
