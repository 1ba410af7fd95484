"""Helpers for text generation: the generation config, and padding of generated ids."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from transformers import GenerationConfig

LENGTH_OF_TRANSFORMERS = 20
"""Default maximum number of generated tokens."""

FROM_LABELS = ("decoder_input_ids", "decoder_attention_mask")
"""Inputs that a collator derives from labels; generation must not use them."""


def load_generation_config(source: str | Path | GenerationConfig) -> GenerationConfig:
    """Return a generation config, given as an object, a file, a folder or the name of a model.

    Raises:
        ValueError: it is inconsistent, so that it could not be saved with the model.
    """
    if isinstance(source, GenerationConfig):
        config = copy.deepcopy(source)
    elif Path(source).is_file():
        config = GenerationConfig.from_pretrained(Path(source).parent, Path(source).name)
    else:
        config = GenerationConfig.from_pretrained(source)
    try:
        config.validate(strict=True)
    except ValueError as error:
        raise ValueError(f"generation_config: {error}\nCorrect it: it is saved with the model.") from error
    return config


def without_labels(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs without those derived from labels, so that the model generates freely."""
    made = inputs.get("decoder_input_ids")
    derived = made is not None and "labels" in inputs and made.shape == inputs["labels"].shape
    return {name: value for name, value in inputs.items() if not (derived and name in FROM_LABELS)}


def filled_up(ids: Tensor, config: Any, pad_id: Callable[[], int]) -> Tensor:
    """Pad rows (B, T) to the maximum length of a generation config; only if they are shorter, `pad_id` is asked."""
    have = ids.shape[-1]
    lengths = (config.max_length or LENGTH_OF_TRANSFORMERS, (config.max_new_tokens or 0) + 1)
    wanted = next((length for length in lengths if have < length), have)
    return nn.functional.pad(ids, (0, wanted - have), value=pad_id()) if wanted > have else ids


def pad_id_of(processing_class: object, model: nn.Module) -> int:
    """Return the id of padding: of the tokenizer (else its end token), or of the model.

    Raises:
        ValueError: none of them has one.
    """
    places = (
        (processing_class, "pad_token_id"),
        (processing_class, "eos_token_id"),
        (getattr(model, "config", None), "pad_token_id"),
    )
    found = next((getattr(owner, name) for owner, name in places if getattr(owner, name, None) is not None), None)
    if found is None:
        raise ValueError(
            "predict_with_generate: no padding token is known for the generated texts. Set "
            "model.config.pad_token_id, or give the tokenizer as processing_class."
        )
    return int(found)
