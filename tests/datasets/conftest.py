"""Small stores and folders as written by x-prepro."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xdpx.datasets.writing import PartWriter, assemble
from xdpx.processors import processors
from xdpx.processors.base import Processor
from xdpx.tokenizers.vocabulary import Vocabulary

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(5, 60))]


@pytest.fixture(scope="session")
def processor() -> Processor:
    """One text per sample, with a new mask in each epoch."""
    chosen = processors["bert_lm"]
    return chosen(chosen.Parameters(max_len=40), vocabulary=Vocabulary(WORDS))


@pytest.fixture
def write_store(processor: Processor) -> Callable[..., list[dict[str, Any]]]:
    """Write a store of samples with random lengths; return its content."""

    def write(path: Path, count: int, *, seed: int = 0) -> list[dict[str, Any]]:
        numbers = np.random.default_rng(seed)
        texts = [numbers.integers(5, 60, length).tolist() for length in numbers.integers(1, 38, count)]
        samples = [processor.numerize({"tokens": text}, None) for text in texts]
        schema = processor.columns(labelled=False)
        with PartWriter(str(path.with_suffix(".part0")), schema) as part:
            for sample in samples:
                part.add(sample)
        assemble([str(path.with_suffix(".part0"))], str(path), schema)
        return samples

    return write


@pytest.fixture
def data_dir(tmp_path: Path, write_store: Any) -> Callable[..., str]:
    """Write a data_dir with splits of the given sizes; `arriving` ones are only announced."""

    def make(sizes: Mapping[str, int], *, arriving: Sequence[str] = (), suffix: str = ".pt") -> str:
        for number, (split, size) in enumerate(sizes.items()):
            if not (tmp_path / f"{split}{suffix}").exists():
                write_store(tmp_path / f"{split}{suffix}", size, seed=number)
        meta = {"data_size": dict(sizes), "arriving": list(arriving)}
        (tmp_path / "meta.hjson").write_text(json.dumps(meta), encoding="utf-8")
        return str(tmp_path)

    return make
