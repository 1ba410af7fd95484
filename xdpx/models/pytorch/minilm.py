"""The encoder alone: what MiniLM trains, and what teaches it."""

from __future__ import annotations

import re

from torch import Tensor

from xdpx.models.pytorch import encoders
from xdpx.models.pytorch.bert import Bert

ABOVE = re.compile(r"\.(attention\.output|attn\.Wo|intermediate|(?<!attention\.)output|mlp|mlp_norm)\.")
"""In names of weights of a layer: what works on the output of its attention. Norms may stand in front of it."""


class MiniLM(Bert):
    """An encoder without anything above it. What stands above the last layer's attention learns nothing, and stays.

    Its weights are those of every BERT: fine-tune them with `pretrained_model` in another model.

    Source: Wang et al., "MiniLM", NeurIPS 2020, section 3.
    """

    class Parameters(Bert.Parameters):
        """Keys of `minilm`."""

    parameters_used: Parameters

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters, pooler=False)
        last = int(self.config.num_hidden_layers) - 1
        for name, weight in self.named_parameters():
            if encoders.layer_of(name) == last and ABOVE.search(name):
                weight.requires_grad_(False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Give the hidden states (B, T, H) of ids (B, T); the mask is true (or 1) at real tokens."""
        hidden: Tensor = self.encode(input_ids, attention_mask, token_type_ids).last_hidden_state
        return hidden
