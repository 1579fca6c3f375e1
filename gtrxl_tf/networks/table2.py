"""Table 2 of the GTrXL paper: its ten networks and how many parameters they have.

The paper gives the totals, and in Table 9 the cores' sizes. Torso, language encoder and
heads it only outlines: theirs are the defaults of this package, found in a search for
sizes that give all ten totals. With these the totals also decide what the paper leaves
open in the cores: 512 hidden units in every position-wise MLP, the thin one's too;
biases in the projections of attention; and LSTM skip connections by concatenation, with
the core's inputs into every layer and every layer's outputs out.
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
  millions: str  # Of parameters, as printed.
  core: Callable[..., cores.Core]
  settings: Mapping[str, Any]

  @property
  def rounding(self) -> float:
    """Half a unit of the last printed digit, in millions."""
    return 0.5 * 10 ** -len(self.millions.partition('.')[2])


def _transformer_xl(model, millions, **settings):
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

# DMLab-30: Table 5's actions, a value function a level. How many words an instruction
# may have changes no parameter.
ACTION_SPEC = specs.DiscreteArray(15, name='action')
OBSERVATION_SPEC = {
    'instruction': specs.Array([16], np.int32, name='instruction'),
    'rgb': specs.Array([72, 96, 3], np.uint8, name='rgb'),
}
NUM_LEVELS = 30


def network(row: Row) -> actor_critic.ActorCritic:
  """The row's network, without variables yet."""
  return actor_critic.ActorCritic(
      ACTION_SPEC, torsos.PixelTorso(), row.core(**row.settings),
      num_values=NUM_LEVELS, instruction_encoder=language.InstructionEncoder(),
      pixel_control_head=heads.PixelControlHead(ACTION_SPEC.num_values))


def parameter_count(row: Row) -> int:
  """Number of trainable parameters of the row's network."""
  built = network(row)
  built.create_variables(OBSERVATION_SPEC)
  return sum(v.shape.num_elements() for v in built.trainable_variables)
