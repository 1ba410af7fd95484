"""A soft prompt in front of every text, and masks that know of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from xdpx.config.faults import ConfigError
from xdpx.loaders import loaders
from xdpx.processors import processors
from xdpx.processors.samples import Ragged, Samples
from xdpx.tokenizers.vocabulary import Vocabulary

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused1]", "[unused2]", *(f"w{index}" for index in range(20))]
PROMPT = [5, 6]


def make(name: str = "bert_cl_single_prompt", **values: Any) -> Any:
    kind = processors[name]
    more = {"prompt_length": 2} if name.endswith("prompt") else {}
    vocabulary = Vocabulary(WORDS, pad_word="[PAD]", unk_word="[UNK]")
    return kind(kind.Parameters(max_len=12, **more, **values), vocabulary=vocabulary)


def texts(lengths: tuple[int, ...] = (8, 3, 5)) -> Ragged:
    return Ragged(np.arange(7, 7 + sum(lengths), dtype=np.int32), np.cumsum([0, *lengths]))


def samples() -> Samples:
    return Samples({"input_ids": texts(), "length": texts().lengths})


@pytest.mark.parametrize("pad_multiple", [1, 8])
def test_the_prompt_stands_behind_cls_and_everything_else_is_as_without_it(pad_multiple: int) -> None:
    plain, found = (
        make("bert_lm").collate(samples(), seed=3),
        make().collate(samples(), seed=3, pad_multiple=pad_multiple),
    )
    ids, mask = found["net_input"]["input_ids"], found["net_input"]["attention_mask"]
    width = plain["net_input"]["input_ids"].shape[1]
    assert ids.shape[1] == (12 if pad_multiple == 1 else 16)
    assert (ids[:, 1:3] == PROMPT).all()
    assert mask[:, 1:3].all()
    for name, array in (("input_ids", ids), ("attention_mask", mask)):
        without = np.delete(array, [1, 2], axis=1)
        assert np.array_equal(without[:, :width], plain["net_input"][name])
        assert not without[:, width:].any()
    assert np.array_equal(found["target"], plain["target"])
    seen = ids.ravel()[found["net_input"]["masked_positions"]]
    assert np.array_equal(seen, plain["net_input"]["input_ids"].ravel()[plain["net_input"]["masked_positions"]])


def test_a_batch_can_be_cut_and_a_text_leaves_room_for_the_prompt() -> None:
    processor = make()
    whole = processor.collate(samples(), seed=3)
    parts = processor.split(whole, 3)
    assert np.array_equal(np.concatenate([part["target"] for part in parts]), whole["target"])
    columns, _ = processor.numerize_many({"tokens": texts((10, 1, 1))}, None)
    assert columns["input_ids"].lengths.tolist() == [8, 1, 1]
    assert columns["length"].tolist() == [12, 5, 5]


def test_blocks_of_the_corpus_leave_room_for_the_prompt() -> None:
    kind = loaders["corpus_mix_prompt"]
    loader = kind(kind.Parameters(tokenizer="space", prompt_length=4, break_mode="none"))
    plain = loaders["corpus_mix"]
    other = plain(plain.Parameters(tokenizer="space", break_mode="none"))
    from xdpx.loaders.base import Blocks

    lines = Blocks(np.arange(40, dtype=np.int32), np.array([0, 40]))
    longest = [int(np.diff(each.merger(15).feed(lines, np.zeros(1, bool)).offsets).max()) for each in (loader, other)]
    assert longest == [8, 12]


def test_a_prompt_that_leaves_no_room_or_that_no_vocabulary_holds_is_refused() -> None:
    kind = processors["bert_cl_single_prompt"]
    vocabulary = Vocabulary(WORDS, pad_word="[PAD]", unk_word="[UNK]")
    with pytest.raises(ConfigError, match=r"max_len: is 4, which leaves no room for a text after the prompt"):
        kind(kind.Parameters(max_len=4, prompt_length=2), vocabulary=vocabulary)
    with pytest.raises(ConfigError, match=r"prompt_length: the id of '\[unused3\]' is not known"):
        kind(kind.Parameters(max_len=12, prompt_length=3), vocabulary=vocabulary)
