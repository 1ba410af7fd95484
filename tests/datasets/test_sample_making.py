from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xdpx.datasets.sample_making import Maker, Recipe, Work
from xdpx.loaders import loaders, marks
from xdpx.loaders.parsers import parsers
from xdpx.loaders.parsers.base import Block
from xdpx.processors import processors
from xdpx.tokenizers import tokenizers
from xdpx.tokenizers.bert import SPECIAL_WORDS
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


@pytest.mark.parametrize("text", ["the film the", "\u6211 \u7231 film", "film"])
def test_words_of_a_byte_level_tokenizer_keep_the_space_before_them(tmp_path: Path, text: str) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, special_tokens=[*SPECIAL_WORDS])
    library.train_from_iterator(["the film the film"], trainer)
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer = tokenizers["auto"](tokenizers["auto"].Parameters(vocab_file=str(tmp_path)))
    encoder = Encoder(tokenizer, tokenizer.vocabulary(pad_word="[PAD]", unk_word="[UNK]"))
    processor = processors["bert_token"](processors["bert_token"].Parameters(max_len=9), vocabulary=encoder.vocabulary)
    loader = loaders["tagged"](loaders["tagged"].Parameters(tokenizer="auto"))
    encoded = Recipe(parsers["conll"](parsers["conll"].Parameters()), loader, encoder, processor).encode("text", [text])
    assert marks.plain(encoded.values).tolist() == library.encode(text, add_special_tokens=False).ids
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    split = library.encode(text.split(), is_pretokenized=True, add_special_tokens=False)
    behind = [index for index, word in zip(split.ids, split.word_ids, strict=True) if word]
    assert marks.plain(encoded.values).tolist()[-len(behind) or len(encoded.values) :] == behind
    assert np.count_nonzero(marks.has(marks.WORD_START, encoded.values)) == len(text.split())
