"""An encoder that reads a text, and a decoder that writes another. B rows, T and U positions, V tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from transformers import T5Config, T5ForConditionalGeneration

from xdpx.config.faults import THIS_RUN, ConfigError, Fault
from xdpx.models.pytorch.base import Model
from xdpx.models.pytorch.parameters import T5Parameters
from xdpx.utils import io

CONFIG_FILE = "config.json"
SIZES = {
    "hidden_size": "d_model", "intermediate_size": "d_ff", "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads", "head_size": "d_kv", "hidden_dropout_prob": "dropout_rate",
    "feed_forward_proj": "feed_forward_proj",
}  # fmt: skip


class T5(Model):
    """T5 of Hugging Face.

    The architecture is that of config.json beside `pretrained_model`, else of the t5_config keys.

    Source: Raffel et al., "T5", JMLR 2020, section 2.1.
    """

    class Parameters(T5Parameters):
        """Keys of `t5`."""

    parameters_used: Parameters

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self.config = architecture(parameters)
        self.t5: Any = T5ForConditionalGeneration(self.config)
        if parameters.gradient_checkpointing:
            self.t5.gradient_checkpointing_enable()  # type: ignore[no-untyped-call]

    def forward(self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor) -> Tensor:
        """Give logits (B, U, V) of what follows each of decoder_input_ids (B, U); the mask is that of ids (B, T)."""
        logits: Tensor = self.t5(
            input_ids=input_ids, attention_mask=attention_mask, decoder_input_ids=decoder_input_ids, use_cache=False
        ).logits
        return logits

    def adapt(self, found: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Take names as Hugging Face writes them."""
        return {name if name.startswith("t5.") else f"t5.{name}": value for name, value in found.items()}

    def parameter_groups(self, learning_rate: float) -> list[dict[str, Any]]:
        """Split by decay: nothing decays in a norm."""
        groups: dict[str, list[nn.Parameter]] = {"all": [], "all, no decay": []}
        for weight in self.parameters():
            if weight.requires_grad:
                groups["all, no decay" if weight.ndim == 1 else "all"].append(weight)
        decayed = {"params": groups["all"], "lr": learning_rate, "name": "all"}
        return [decayed, {**decayed, "params": groups["all, no decay"], "name": "all, no decay", "weight_decay": 0.0}]

    def resource_files(self) -> dict[str, str]:
        """Give config.json in Hugging Face format."""
        return {CONFIG_FILE: self.config.to_json_string(use_diff=False)}


def architecture(known: T5.Parameters) -> T5Config:
    """Decide the Hugging Face config, and check it against the data.

    Raises:
        ConfigError: config.json is of another kind of model, or the data has other tokens.
    """
    config = _given_config(known)
    if config is None:
        config = T5Config(**{name: getattr(known, key) for key, name in SIZES.items()})
        config.vocab_size = known.vocab_size or config.vocab_size
    config.architectures = ["T5ForConditionalGeneration"]
    if known.pad_index is not None:
        config.pad_token_id = config.decoder_start_token_id = known.pad_index
    if known.eos_index is not None:
        config.eos_token_id = known.eos_index
    if known.vocab_size is not None and known.vocab_size > config.vocab_size:
        problem = f"is {known.vocab_size} in the data, but the pretrained model knows {config.vocab_size} tokens."
        if known.strict_size:
            remedy = "Preprocess with the tokens of that model, or set strict_size: false for new embeddings."
            raise ConfigError(THIS_RUN, [Fault("vocab_size", problem, remedy)])
        config.vocab_size = known.vocab_size
    return config


def _given_config(known: T5.Parameters) -> T5Config | None:
    """Give the config that lies beside the pretrained weights, if any."""
    source = known.pretrained_model
    path = io.join(source if io.isdir(source) else io.parent(source), CONFIG_FILE) if source else ""
    if not path or not io.exists(path):
        return None
    with io.open(path) as file:
        values = json.load(file)
    kind = values.pop("model_type", "t5")
    if kind != "t5":
        problem = f"is '{source}', whose config.json describes a {kind}."
        raise ConfigError(THIS_RUN, [Fault("pretrained_model", problem, "Use a model of the type t5.")])
    return T5Config(**values)
