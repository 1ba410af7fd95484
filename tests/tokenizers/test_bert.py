"""Ids that another program made are taken as they are; what is none is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from xdpx.config.faults import ConfigError
from xdpx.tokenizers import tokenizers

BERT_ID = tokenizers["bert_id"]
WORDS = {"pad_word": "[PAD]", "unk_word": "[UNK]"}


@pytest.fixture
def known(tmp_path: Path) -> Any:
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\nhello\n##s\n")
    return BERT_ID(BERT_ID.Parameters(vocab_file=str(tmp_path / "vocab.txt")))


def test_numbers_are_ids_and_tokens_those_they_stand_for(known: Any) -> None:
    assert known.encode(["2 3  1", ""], known.vocabulary(**WORDS)) == [[2, 3, 1], []]
    assert known.tokenize("2 3") == ["hello", "##s"]


@pytest.mark.parametrize("text", ["4", "-1", "hello", "1.0", "\u0662"])
def test_what_is_no_id_of_the_vocabulary_is_refused(known: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"holds '{text}', which is not a number from 0 to 3"):
        known.encode([text], known.vocabulary(**WORDS))


def test_ids_without_their_vocabulary_are_refused() -> None:
    with pytest.raises(ConfigError, match="vocab_file: is missing: ids mean nothing without it"):
        BERT_ID(BERT_ID.Parameters()).vocabulary(**WORDS)
