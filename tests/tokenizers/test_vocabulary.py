"""Which tokens there are, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from xdpx.config.faults import ConfigError
from xdpx.tokenizers.vocabulary import Vocabulary

SPECIAL = ("[PAD]", "[UNK]")


def test_tokens_stand_by_frequency_then_alphabet_behind_special_words() -> None:
    built = Vocabulary.build({"b": 2, "a": 2, "c": 9, "[UNK]": 50}, special_words=SPECIAL)
    assert built.tokens == ["[PAD]", "[UNK]", "c", "a", "b"]


def test_rare_words_stay_out_unless_they_have_an_embedding() -> None:
    built = Vocabulary.build({"a": 1, "b": 1, "c": 3}, special_words=SPECIAL, threshold=1, always={"b", "zz"})
    assert built.tokens == [*SPECIAL, "c", "b"]


def test_a_largest_size_counts_special_words() -> None:
    assert Vocabulary.build({"a": 1, "b": 2}, special_words=SPECIAL, max_size=3).tokens == [*SPECIAL, "b"]


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = Vocabulary(["[PAD]", "[UNK]", "\n", "\u2028", "a b", "\x0b"])
    written.write(str(tmp_path / "vocab.txt"))
    read = Vocabulary.read(str(tmp_path / "vocab.txt"))
    assert read.tokens == written.tokens
    assert read.digest == written.digest


def test_line_ends_of_other_systems_and_a_mark_at_the_beginning_are_no_part_of_tokens(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes("\ufeff[PAD]\r\n[UNK]\r\na\r\n".encode())
    assert Vocabulary.read(str(tmp_path / "vocab.txt")).tokens == ["[PAD]", "[UNK]", "a"]


@pytest.mark.parametrize(("content", "message"), [(b"", "contains no token"), (b"\xff\xfea", "not UTF-8")])
def test_a_file_that_is_no_vocabulary_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "vocab.txt").write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        Vocabulary.read(str(tmp_path / "vocab.txt"))


def test_ids() -> None:
    vocabulary = Vocabulary(["<pad>", "<unk>", "[CLS]", "un", "##able"], pad_word="<pad>", unk_word="<unk>")
    assert (vocabulary.pad, vocabulary.unk, vocabulary.cls, vocabulary.mask) == (0, 1, 2, None)
    assert (vocabulary.index("un"), vocabulary.index("x"), vocabulary.find("x")) == (3, 1, None)
    assert vocabulary.continuation.tolist() == [False] * 4 + [True]
