"""Where tokens stand in a text, and which of them are an answer."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from xdpx.config.faults import ConfigError
from xdpx.datasets.answer_places import placed
from xdpx.loaders.base import Answer
from xdpx.tokenizers import tokenizers
from xdpx.tokenizers.base import LibraryTokenizer
from xdpx.tokenizers.bert import bert_library

WORDS = ["[UNK]", "[MASK]", "in", "19", "##70", "##s", "o", "'", "neil", "北", "京", "cafe", "##1"]


class Pieces(LibraryTokenizer):
    """Word pieces."""

    library = bert_library({word: index for index, word in enumerate(WORDS)}, lower=True, unk_word="[UNK]")


def test_an_answer_is_the_tokens_that_hold_its_first_and_its_last_character() -> None:
    text = "In 1970s,  O'Neil\u200b 北京 Café1 Qwx [MASK] 💛"
    spans = [*combinations(range(len(text) + 1), 2)]
    encoding = Pieces.library.encode(text, add_special_tokens=False)
    count = len(encoding.ids)
    found = placed(
        [text] * len(spans), [Answer(*span) for span in spans], np.full(len(spans), count), Pieces(Pieces.Parameters())
    )
    for row, (begin, end) in enumerate(spans):
        inside = [place for at in range(begin, end) if (place := encoding.char_to_token(at)) is not None]
        assert found["answer"].row(row).tolist() == ([inside[0], inside[-1]] if inside else [-1, -1])
    data = found["text"].row(0).tobytes()
    pieces = [data[begin:end].decode() for begin, end in zip(found["begins"].row(0), found["ends"].row(0), strict=True)]
    assert pieces == [text[begin:end] for begin, end in encoding.offsets]


def test_each_text_has_places_of_its_own() -> None:
    texts, answers = ["in 北", "", "19 in", "in 北"], [Answer(3, 4, "北"), Answer(), Answer(3, 5, "in"), Answer()]
    found = placed(texts, answers, np.array([2, 0, 2, 2]), Pieces(Pieces.Parameters()))
    assert [found["answer"].row(row).tolist() for row in range(4)] == [[1, 1], [-1, -1], [1, 1], [-1, -1]]
    assert [found["ends"].row(row).tolist() for row in range(4)] == [[2, 6], [], [2, 5], [2, 6]]
    assert [found[name].row(row).tobytes().decode() for name in ("text", "right") for row in range(4)] == [
        *texts, "北", "", "in", "",
    ]  # fmt: skip


def test_nothing_has_no_places() -> None:
    found = placed([], [], np.array([], np.int64), Pieces(Pieces.Parameters()))
    assert all(len(rows) == 0 for rows in found.values())


def test_a_tokenizer_that_tells_the_places_of_other_tokens_is_refused() -> None:
    class Odd(tokenizers["space"]):  # type: ignore[misc, name-defined]
        def spans(self, texts: Any) -> Any:
            return [[(0, 1)] for _ in texts]

    with pytest.raises(ConfigError, match="spans"):
        placed(["bob sees"], [Answer()], np.array([2]), Odd(Odd.Parameters()))
