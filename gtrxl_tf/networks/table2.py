"""Table 2 of the GTrXL paper: ten networks and their numbers of parameters.

The paper gives the totals and, in Table 9, the cores' sizes. It only outlines torso,
language encoder and heads. Their sizes are the defaults of this package, the result of
a search for sizes that reproduce all ten totals. With these sizes the totals also
determine what the paper leaves open in the cores: 512 hidden units in every
position-wise MLP, even in the thin model; biases in the projections of attention; and
LSTM skip connections by concatenation, from the core's inputs to every layer and from
every layer to the core's outputs.
"""

from typing import Any, Callable, Mapping, NamedTuple

from dm_env import specs
import numpy as np

from gtrxl_tf import cores
from gtrxl_tf.networks import actor_critic
from gtrxl_tf.networks import heads
from gtrxl_tf.networks import language
from gtrxl_tf.networks import torsos


class Row(NamedTuple):
  """One row of the table."""
  model: str
  millions: str  # Number of parameters in millions, as printed.
  core: Callable[..., cores.Core]
  settings: Mapping[str, Any]

  @property
  def rounding(self) -> float:
    """Half a unit in the last printed digit, in millions."""
    return 0.5 * 10 ** -len(self.millions.partition('.')[2])


def _transformer_xl(model: str, millions: str, **settings: Any) -> Row:
  thick = dict(num_layers=12, model_dim=512, num_heads=8, head_dim=64, mlp_dim=512,
               memory_length=512, use_bias=True)
  return Row(model, millions, cores.TransformerXL, {**thick, **settings})


ROWS = (
    Row('LSTM', '9.25', cores.DeepLSTM, dict(num_layers=3, hidden_dim=256)),
    Row('Large LSTM', '51.3', cores.DeepLSTM, dict(num_layers=12, hidden_dim=512)),
    _transformer_xl('TrXL', '28.6', variant='trxl'),
    _transformer_xl('TrXL-I', '28.6', variant='trxl_i'),
    _transformer_xl('Thin GTrXL (GRU)', '22.4', gate='gru', model_dim=256, num_heads=4),
    _transformer_xl('GTrXL (GRU)', '66.4', gate='gru'),
    _transformer_xl('GTrXL (Input)', '34.9', gate='input'),
    _transformer_xl('GTrXL (Output)', '34.9', gate='output'),
    _transformer_xl('GTrXL (Highway)', '34.9', gate='highway'),
    _transformer_xl('GTrXL (SigTanh)', '41.2', gate='sigtanh'),
)

# DMLab-30: the actions of Table 5, one value function per level. The number of words in
# an instruction does not change the number of parameters.
ACTION_SPEC = specs.DiscreteArray(15, name='action')
OBSERVATION_SPEC = {
    'instruction': specs.Array([16], np.int32, name='instruction'),
    'rgb': specs.Array([72, 96, 3], np.uint8, name='rgb'),
}
NUM_LEVELS = 30


def network(row: Row) -> actor_critic.ActorCritic:
  """Returns the row's network, before its variables are created."""
  return actor_critic.ActorCritic(
      ACTION_SPEC, torsos.PixelTorso(), row.core(**row.settings),
      num_values=NUM_LEVELS, instruction_encoder=language.InstructionEncoder(),
      pixel_control_head=heads.PixelControlHead(ACTION_SPEC.num_values))


def parameter_count(row: Row) -> int:
  """Returns the number of trainable parameters of the row's network."""
  built = network(row)
  built.create_variables(OBSERVATION_SPEC)
  return sum(v.shape.num_elements() for v in built.trainable_variables)
