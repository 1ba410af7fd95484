"""A causal decoder like Llama. B rows, T positions, V tokens."""

from __future__ import annotations

from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from xdpx.config.faults import refusal
from xdpx.models.pytorch.library_model import LibraryModel, config_beside, refuse_vocabulary
from xdpx.models.pytorch.parameters import CausalLMParameters

SIZES = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "max_position_embeddings", "rms_norm_eps", "initializer_range", "attention_dropout", "tie_word_embeddings",
)  # fmt: skip


class CausalLanguageModel(LibraryModel):
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
        """Return logits (B, T, V) of ids (B, T); padding is at the end of a row, where the mask is false.

        Raises:
            ConfigError: the texts are longer than the model has positions.
        """
        most = int(self.config.max_position_embeddings)
        if input_ids.shape[1] > most:
            problem = f"is {input_ids.shape[1]}, but the model has positions for {most} tokens."
            remedy = f"Preprocess with max_len: {most} or less, or use a larger max_position_embeddings."
            raise refusal("max_len", problem, remedy)
        # With causal attention, padding at the end needs no mask.
        logits: Tensor = self.lm_head(self.model(input_ids=input_ids, use_cache=False).last_hidden_state)
        return logits


def architecture(known: CausalLanguageModel.Parameters) -> LlamaConfig:
    """Return the Hugging Face config, after checking it against the data.

    Raises:
        ConfigError: config.json is of another kind of model, or the data has another vocabulary or longer texts.
    """
    config = config_beside(known.pretrained_model, LlamaConfig) or LlamaConfig(
        **{key: getattr(known, key) for key in SIZES},
        rope_parameters={"rope_type": "default", "rope_theta": known.rope_theta},
        vocab_size=known.vocab_size or 32_000,
    )
    config.pad_token_id, config.architectures = known.pad_index, ["LlamaForCausalLM"]
    if known.max_len is not None and known.max_len > config.max_position_embeddings:
        problem = f"is {known.max_len}, but the model has positions for {config.max_position_embeddings} tokens."
        raise refusal("max_len", problem, "Use a larger max_position_embeddings.")
    if known.vocab_size is not None and known.vocab_size != config.vocab_size:
        refuse_vocabulary(known.vocab_size, config.vocab_size, strict_size=known.strict_size)
        config.vocab_size = known.vocab_size
    return config
