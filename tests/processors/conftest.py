"""A small vocabulary with whole words and pieces, and records to convert."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from xdpx.processors import processors
from xdpx.processors.base import Processor
from xdpx.processors.samples import Samples
from xdpx.tokenizers.vocabulary import Vocabulary

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    """105 tokens: the five special ones, then w5, w6, ##7, ... (every third one continues a word)."""
    return Vocabulary(SPECIAL + [f"##{i}" if i % 3 == 1 else f"w{i}" for i in range(5, 105)])


@pytest.fixture
def make(vocabulary: Vocabulary) -> Any:
    """Return a function that builds a processor by name."""

    def build(name: str, *, max_len: int = 16, more_words: Sequence[str] = (), **options: Any) -> Processor:
        chosen = processors[name]
        words = Vocabulary([*vocabulary.tokens, *more_words]) if more_words else vocabulary
        return chosen(chosen.Parameters(max_len=max_len, **options), vocabulary=words)

    return build


@pytest.fixture
def sampled() -> Any:
    """Return a function that converts records, each a row of ids per text field, to samples."""

    def build(processor: Processor, records: Sequence[Sequence[Sequence[int]]], targets: Any = None) -> Samples:
        rows = []
        for index, record in enumerate(records):
            fields = dict(zip(processor.text_fields, record, strict=True))
            rows.append(processor.numerize(fields, None if targets is None else targets[index]))
        return Samples.from_dicts(rows, processor.columns(labelled=targets is not None))

    return build


@pytest.fixture
def blocks() -> list[list[list[int]]]:
    """Rows of ids with many lengths, the same each time."""
    numbers = np.random.default_rng(7)
    return [[numbers.integers(5, 105, length).tolist()] for length in (1, 2, 3, 5, 8, 13, 13, 14, 14, 30)]
