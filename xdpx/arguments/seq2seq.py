"""`Seq2SeqTrainingArguments`: what a Seq2SeqTrainer is told besides."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xdpx.arguments.declaring import option
from xdpx.arguments.training import TrainingArguments


@dataclass(repr=False)
class Seq2SeqTrainingArguments(TrainingArguments):
    """Everything a Seq2SeqTrainer is told: all of `TrainingArguments`, and how to generate in evaluations."""

    sortish_sampler: bool = option(False, "Accepted without effect; train_sampling_strategy decides the order.")
    predict_with_generate: bool = option(False, "Generate text in evaluations, for metrics such as ROUGE and BLEU.")
    generation_max_length: int | None = option(None, "Most tokens to generate; unset: as the model's config says.")
    generation_num_beams: int | None = option(None, "Beams to search with; unset: as the model's config says.")
    generation_config: str | Path | Any | None = option(
        None, "How to generate: a model's name, a path, or an object of transformers."
    )
