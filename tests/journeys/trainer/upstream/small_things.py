"""What the scripts of this folder share: a tokenizer and sizes small enough for a test, and how an outcome is told."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

SPECIAL = ["<pad>", "<eos>", "<unk>", "<mask>", "<sep>"]
WORDS = [f"w{number}" for number in range(30)]
SIZES = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
"""Of a BERT or a Llama."""

dice = random.Random(3)


def tokenizer() -> Any:
    """Return one whole word per token."""
    table = {word: number for number, word in enumerate([*SPECIAL, *WORDS])}
    inside = Tokenizer(models.WordLevel(table, unk_token="<unk>"))
    inside.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=inside, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", mask_token="<mask>",
        sep_token="<sep>", model_max_length=32,
    )  # fmt: skip


def text(shortest: int = 3, longest: int = 9) -> str:
    """Return some words."""
    return " ".join(dice.choice(WORDS) for _ in range(dice.randint(shortest, longest)))


def tell(trainer: Any, **more: Any) -> None:
    """Write what came of a training where the test looks for it.

    The printer of the original takes `total_flos` out of the metrics that `train` returns; ours leaves it.
    """
    more.get("metrics", {}).pop("total_flos", None)
    Path("outcome.json").write_text(json.dumps({"history": trainer.state.log_history, **more}))
