"""Classification by the first token as several layers see it."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from xdpx.config import parameters as declare
from xdpx.config.faults import THIS_RUN, ConfigError, Fault
from xdpx.models.pytorch.bert import new_linear
from xdpx.models.pytorch.bert_classification import BertClassification


class BertClassificationConcat(BertClassification):
    """The first token of some layers side by side, one layer with tanh, dropout, and one linear layer.

    Source: Devlin et al., "BERT", NAACL 2019, section 5.3 (layers side by side as features).
    """

    class Parameters(BertClassification.Parameters):
        """Keys of `bert_classification_concat`."""

        highway_layers: list[int] = declare.param(
            [-1, -4, -7, -10], doc="Layers whose first token is looked at; negative from the last, which is -1."
        )

    parameters_used: Parameters
    reads_pooled: ClassVar[bool] = False

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self.chosen = layers_of(parameters.highway_layers, int(self.config.num_hidden_layers))
        width = self.config.hidden_size
        self.joined = new_linear(len(self.chosen) * width, width, self.config)

    def features(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None) -> Tensor:
        """Give (B, H) of ids (B, T)."""
        inputs = self._inputs(input_ids, attention_mask, token_type_ids)
        hidden = self.bert(**inputs, output_hidden_states=True).hidden_states
        return torch.tanh(self.joined(torch.cat([hidden[layer + 1][:, 0] for layer in self.chosen], dim=-1)))


def layers_of(wanted: list[int], num_layers: int) -> list[int]:
    """Give layers from 0 on, of numbers that may count from the last.

    Raises:
        ConfigError: there is none, one twice, or one that the encoder has not.
    """
    found = [layer if layer >= 0 else num_layers + layer for layer in wanted]
    if found and len(set(found)) == len(found) and all(0 <= layer < num_layers for layer in found):
        return found
    problem = f"is {wanted}, but the encoder has {num_layers} layers."
    remedy = f"Use different numbers from {-num_layers} to {num_layers - 1}, e.g. [-1]."
    raise ConfigError(THIS_RUN, [Fault("highway_layers", problem, remedy)])
