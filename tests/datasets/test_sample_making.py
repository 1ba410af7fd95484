from __future__ import annotations

import random
from typing import Any

import numpy as np

from xdpx.datasets.sample_making import Maker, Recipe, Work
from xdpx.loaders import loaders
from xdpx.loaders.parsers import parsers
from xdpx.loaders.parsers.base import Block
from xdpx.processors import processors
from xdpx.tokenizers import tokenizers
from xdpx.tokenizers.encoder import Encoder
from xdpx.tokenizers.vocabulary import Vocabulary

ROWS = [["good film, very good film"]] * 40


class Noisy(processors["single"]):  # type: ignore[misc, name-defined]
    """A processor of a user that draws random numbers."""

    def numerize_many(self, fields: Any, targets: Any) -> Any:
        self.drawn = random.random(), np.random.rand()
        return super().numerize_many(fields, targets)


def test_what_an_own_processor_draws_depends_only_on_the_block() -> None:
    loader = loaders["single"](loaders["single"].Parameters(tokenizer="space"))
    vocabulary = Vocabulary(["[PAD]", "[UNK]", "good", "film"])
    encoder = Encoder(tokenizers["space"](tokenizers["space"].Parameters()), vocabulary)
    processor = Noisy(Noisy.Parameters(max_len=9), vocabulary=vocabulary)
    maker = Maker(Recipe(parsers["csv"](parsers["csv"].Parameters()), loader, encoder, processor))
    before = random.getstate()
    drawn = []
    for first in (1, 1, 41):
        block = Block(first, rows=ROWS, lines=range(first, first + len(ROWS)))
        assert maker(Work(block, labelled=False)).counts.samples == 40
        drawn.append(processor.drawn)
    assert drawn[0] == drawn[1] != drawn[2]
    assert random.getstate() == before
