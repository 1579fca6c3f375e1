"""The recipe for TensorFlow Serving in docs/serving.md works with a stand-in for it."""

import http.server
import json
import pathlib
import re
import threading

from absl.testing import absltest
import numpy as np
import pytest
import tensorflow as tf

from gtrxl_tf.serving import export
from gtrxl_tf.serving import policy_testing

_PAGE = pathlib.Path(__file__).parents[1] / 'docs' / 'serving.md'
*_, RECIPE = re.findall(r'```python\n(.*?)```', _PAGE.read_text('utf-8'), re.DOTALL)


class _StandIn(http.server.BaseHTTPRequestHandler):
  """Answers requests in the column format of TensorFlow Serving's REST interface."""

  signatures = None

  def do_POST(self):  # pylint: disable=invalid-name
    assert self.path == '/v1/models/policy:predict'
    body = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
    signature = self.signatures[body['signature_name']]
    inputs = {x.name: x for x in signature.structured_input_signature[1].values()}
    assert set(body['inputs']) == set(inputs)
    outputs = signature(**{
        name: tf.constant(value, inputs[name].dtype)
        for name, value in body['inputs'].items()})
    answer = json.dumps(
        {'outputs': {name: x.numpy().tolist() for name, x in outputs.items()}}).encode()
    self.send_response(200)
    self.send_header('Content-Length', str(len(answer)))
    self.end_headers()
    self.wfile.write(answer)

  def log_message(self, *args):  # pylint: disable=arguments-differ
    pass


class RecipeTest(absltest.TestCase):

  @pytest.mark.long
  def test_it_acts_as_the_policy_does(self):
    folder = pathlib.Path(self.create_tempdir().full_path) / 'policy'
    export.save_policy(policy_testing.make_policy('trxl', 0.7, False), folder)
    _StandIn.signatures = tf.saved_model.load(str(folder)).signatures
    server = http.server.ThreadingHTTPServer(('localhost', 0), _StandIn)
    self.addCleanup(server.server_close)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    self.addCleanup(server.shutdown)

    names = {}
    recipe = RECIPE.replace(':8501', f':{server.server_port}')
    self.assertNotEqual(recipe, RECIPE)
    exec(compile(recipe, str(_PAGE), 'exec'), names)  # pylint: disable=exec-used
    memory, actions = names['predict']('get_initial_state', {'batch_size': 1}), []
    shown = policy_testing.draw(0, 15)
    for first, reward, observation in shown:
      action, memory = names['act'](0 if first else 1, reward, observation, memory)
      actions.append(action)
    self.assertGreater(len(set(actions)), 1)
    np.testing.assert_array_equal(
        actions, policy_testing.alone(folder, shown).argmax(axis=1))


if __name__ == '__main__':
  absltest.main()
