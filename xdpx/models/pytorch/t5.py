"""T5: an encoder of one text, and a decoder of another. B rows, T and U positions, V tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from torch import Tensor
from transformers import T5Config, T5ForConditionalGeneration

from xdpx.config import parameters as declare
from xdpx.models.pytorch.library_model import LibraryModel, config_beside, refuse_vocabulary
from xdpx.models.pytorch.parameters import ModelParameters

GROUP = "t5_config"
SIZES = {
    "hidden_size": "d_model", "intermediate_size": "d_ff", "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads", "head_size": "d_kv", "hidden_dropout_prob": "dropout_rate",
    "feed_forward_proj": "feed_forward_proj",
}  # fmt: skip


class T5(LibraryModel):
    """T5 of Hugging Face.

    The architecture is that of config.json beside `pretrained_model`, else of the t5_config keys.

    Source: Raffel et al., "T5", JMLR 2020, section 2.1.
    """

    class Parameters(ModelParameters):
        """Keys of `t5`."""

        gradient_checkpointing: bool = declare.param(
            False, doc="Recompute activations in the backward pass: less memory, about a third more time."
        )
        vocab_size: int | None = declare.param(None, gt=0, doc="Number of tokens, from meta.hjson.")
        pad_index: int | None = declare.param(None, ge=0, doc="Token id of the padding, from meta.hjson.")
        eos_index: int | None = declare.param(None, ge=0, doc="Id of the token that ends a text, from meta.hjson.")
        hidden_size: int = declare.param(512, gt=0, doc="Width of the layers.", group=GROUP)
        intermediate_size: int = declare.param(2048, gt=0, doc="Width inside the feed-forward layers.", group=GROUP)
        num_hidden_layers: int = declare.param(6, gt=0, doc="Layers of the encoder, and of the decoder.", group=GROUP)
        num_attention_heads: int = declare.param(8, gt=0, doc="Attention heads of each layer.", group=GROUP)
        head_size: int = declare.param(64, gt=0, doc="Width of an attention head.", group=GROUP)
        hidden_dropout_prob: float = declare.param(
            0.1, ge=0, lt=1, doc="Share of the features set to 0 in training.", group=GROUP
        )
        feed_forward_proj: Literal["relu", "gated-gelu"] = declare.param(
            "relu", doc="Kind of the feed-forward layers: relu, or gated-gelu as in T5 1.1.", group=GROUP
        )

    parameters_used: Parameters

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self.config = architecture(parameters)
        self.t5: Any = T5ForConditionalGeneration(self.config)
        if parameters.gradient_checkpointing:
            self.t5.gradient_checkpointing_enable()

    def forward(self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor) -> Tensor:
        """Return logits (B, U, V) of the tokens after decoder_input_ids (B, U); the mask is that of ids (B, T)."""
        logits: Tensor = self.t5(
            input_ids=input_ids, attention_mask=attention_mask, decoder_input_ids=decoder_input_ids, use_cache=False
        ).logits
        return logits

    def adapt(self, found: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Add the prefix of weights here to names of Hugging Face."""
        return {name if name.startswith("t5.") else f"t5.{name}": value for name, value in found.items()}


def architecture(known: T5.Parameters) -> T5Config:
    """Return the Hugging Face config, after checking it against the data.

    Raises:
        ConfigError: config.json is of another kind of model, or the data has more tokens than the pretrained model.
    """
    config = config_beside(known.pretrained_model, T5Config)
    if config is None:
        config = T5Config(**{name: getattr(known, key) for key, name in SIZES.items()})
        config.vocab_size = known.vocab_size or config.vocab_size
    config.architectures = ["T5ForConditionalGeneration"]
    if known.pad_index is not None:
        config.pad_token_id = config.decoder_start_token_id = known.pad_index
    if known.eos_index is not None:
        config.eos_token_id = known.eos_index
    if known.vocab_size is not None and known.vocab_size > config.vocab_size:
        refuse_vocabulary(known.vocab_size, config.vocab_size, strict_size=known.strict_size)
        config.vocab_size = known.vocab_size
    return config
