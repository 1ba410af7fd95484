"""What generated ids need around the model: how to generate, and rows of equal length."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from transformers import GenerationConfig

LENGTH_OF_TRANSFORMERS = 20
"""Tokens that are generated at most where nobody says how many."""

FROM_LABELS = ("decoder_input_ids", "decoder_attention_mask")
"""Inputs that a collator makes of the labels: generation must not see them."""


def load_generation_config(source: str | Path | GenerationConfig) -> GenerationConfig:
    """Return how to generate, from an object, a file, a folder or the name of a model.

    Raises:
        ValueError: it contradicts itself, so that it could not be saved with the model.
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
    """Leave out what was made of the labels, so that the model generates freely."""
    made = inputs.get("decoder_input_ids")
    derived = made is not None and "labels" in inputs and made.shape == inputs["labels"].shape
    return {name: value for name, value in inputs.items() if not (derived and name in FROM_LABELS)}


def filled_up(ids: Tensor, config: Any, pad_id: int) -> Tensor:
    """Fill rows (B, T) up to what a generation config lets a model generate at most, if they are shorter."""
    have = ids.shape[-1]
    lengths = (config.max_length or LENGTH_OF_TRANSFORMERS, (config.max_new_tokens or 0) + 1)
    wanted = next((length for length in lengths if have < length), have)
    return nn.functional.pad(ids, (0, wanted - have), value=pad_id) if wanted > have else ids


def pad_id_of(processing_class: object, model: nn.Module) -> int:
    """Return the id of padding: of the tokenizer (its end, where it has none), or of the model.

    Raises:
        ValueError: nobody knows it.
    """
    places = (processing_class, "pad_token_id"), (processing_class, "eos_token_id"), (model.config, "pad_token_id")
    found = next((getattr(owner, name) for owner, name in places if getattr(owner, name, None) is not None), None)
    if found is None:
        raise ValueError(
            "predict_with_generate: no padding token is known to fill up what was generated. Set "
            "model.config.pad_token_id, or give the tokenizer as processing_class."
        )
    return int(found)
