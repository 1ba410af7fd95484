"""A decoder like Llama, which guesses each token from those before it. B batch, T positions, V tokens."""

from __future__ import annotations

import json
from typing import Any

from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from xdpx.config.faults import THIS_RUN, ConfigError, Fault
from xdpx.models.pytorch.base import Model
from xdpx.models.pytorch.parameters import CausalLMParameters
from xdpx.utils import io

CONFIG_FILE = "config.json"
SIZES = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "max_position_embeddings", "rms_norm_eps", "initializer_range", "attention_dropout", "tie_word_embeddings",
)  # fmt: skip


class CausalLanguageModel(Model):
    """Rotary positions, RMS norms, gated feed-forward layers. Weight names are those of LlamaForCausalLM.

    The architecture is that of config.json beside `pretrained_model`, else of the llama_config keys.

    Source: Touvron et al., "LLaMA: Open and Efficient Foundation Language Models", arXiv 2302.13971, section 2.2.
    """

    class Parameters(CausalLMParameters):
        """Keys of `causal_lm`."""

    parameters_used: Parameters

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self.config = architecture(parameters)
        whole = LlamaForCausalLM(self.config)
        self.model, self.lm_head = whole.model, whole.lm_head
        if parameters.gradient_checkpointing:
            self.model.gradient_checkpointing_enable()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Give logits (B, T, V) of ids (B, T); padding stands at the end of a row, and its mask is false.

        Raises:
            ConfigError: the texts are longer than the model has positions.
        """
        most = int(self.config.max_position_embeddings)
        if input_ids.shape[1] > most:
            problem = f"is {input_ids.shape[1]}, but the model has positions for {most} tokens."
            remedy = f"Preprocess with max_len: {most} or less, or use a larger max_position_embeddings."
            raise ConfigError(THIS_RUN, [Fault("max_len", problem, remedy)])
        # Nobody looks ahead, so padding at the end needs no mask.
        logits: Tensor = self.lm_head(self.model(input_ids=input_ids, use_cache=False).last_hidden_state)
        return logits

    def parameter_groups(self, learning_rate: float) -> list[dict[str, Any]]:
        """Split by decay: nothing decays in a norm."""
        groups: dict[str, list[nn.Parameter]] = {"all": [], "all, no decay": []}
        for name, weight in self.named_parameters():
            if weight.requires_grad:
                groups["all, no decay" if weight.ndim == 1 or "norm" in name else "all"].append(weight)
        decayed = {"params": groups["all"], "lr": learning_rate, "name": "all"}
        return [decayed, {**decayed, "params": groups["all, no decay"], "name": "all, no decay", "weight_decay": 0.0}]

    def resource_files(self) -> dict[str, str]:
        """Give config.json in Hugging Face format."""
        return {CONFIG_FILE: self.config.to_json_string(use_diff=False)}


def architecture(known: CausalLanguageModel.Parameters) -> LlamaConfig:
    """Decide the Hugging Face config, and check it against the data.

    Raises:
        ConfigError: config.json is of another kind of model, or the data has other tokens or longer texts.
    """
    config = _given_config(known) or LlamaConfig(
        **{key: getattr(known, key) for key in SIZES},
        rope_parameters={"rope_type": "default", "rope_theta": known.rope_theta},
        vocab_size=known.vocab_size or 32_000,
    )
    config.pad_token_id, config.architectures = known.pad_index, ["LlamaForCausalLM"]
    if known.max_len is not None and known.max_len > config.max_position_embeddings:
        problem = f"is {known.max_len}, but the model has positions for {config.max_position_embeddings} tokens."
        raise ConfigError(THIS_RUN, [Fault("max_len", problem, "Use a larger max_position_embeddings.")])
    if known.vocab_size is not None and known.vocab_size != config.vocab_size:
        problem = f"is {known.vocab_size} in the data, but the pretrained model knows {config.vocab_size} tokens."
        if known.strict_size:
            remedy = "Preprocess with the tokens of that model, or set strict_size: false for new embeddings."
            raise ConfigError(THIS_RUN, [Fault("vocab_size", problem, remedy)])
        config.vocab_size = known.vocab_size
    return config


def _given_config(known: CausalLanguageModel.Parameters) -> LlamaConfig | None:
    """Give the config that lies beside the pretrained weights, if any."""
    source = known.pretrained_model
    path = io.join(source if io.isdir(source) else io.parent(source), CONFIG_FILE) if source else ""
    if not path or not io.exists(path):
        return None
    with io.open(path) as file:
        values = json.load(file)
    kind = values.pop("model_type", "llama")
    if kind != "llama":
        problem = f"is '{source}', whose config.json describes a {kind}."
        raise ConfigError(THIS_RUN, [Fault("pretrained_model", problem, "Use a model of the type llama.")])
    return LlamaConfig(**values)
