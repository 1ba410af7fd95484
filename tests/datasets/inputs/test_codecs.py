from __future__ import annotations

from pathlib import Path

import pytest

from xdpx.config.faults import ConfigError
from xdpx.datasets.inputs import Characters, Codec, HouseTokenizer


def rows_of(codec: Codec, texts: list[str]) -> list[list[int]]:
    found = codec.encode(texts)
    return [found.row(i).tolist() for i in range(len(found))]


def test_characters_go_to_ids_and_back() -> None:
    codec = Characters(alphabet="abé中")
    assert rows_of(codec, ["ba", "", "中é?"]) == [[4, 3], [], [6, 5, 2]]
    assert codec.decode([4, 3, 2, 0, 1]) == "ba�"
    assert codec.vocab_size == 7


def test_ids_beyond_the_alphabet_which_a_larger_model_may_write_are_shown_as_unknown() -> None:
    assert Characters(alphabet="ab").decode([3, 4, 5, 127]) == "ab\ufffd\ufffd"


def test_the_alphabet_of_a_file_is_sorted(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("cab\nbac")
    codec = Characters(alphabet_from=str(tmp_path / "a.txt"))
    assert codec.alphabet == "\nabc"
    assert codec.digest == Characters(alphabet="\nabc").digest != Characters(alphabet="abc\n").digest


@pytest.mark.parametrize("fields", [{}, {"alphabet": "a", "alphabet_from": "b"}])
def test_an_alphabet_is_given_once(fields: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="either alphabet or alphabet_from"):
        Characters(**fields).vocab_size  # noqa: B018 - read by being asked


def test_an_empty_alphabet_knows_nothing() -> None:
    assert rows_of(Characters(alphabet=""), ["ab"]) == [[2, 2]]


def test_a_tokenizer_of_the_house_reads_a_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\nhello\nworld\n")
    for fields in ({"vocab_file": str(tmp_path / "vocab.txt")}, {"data_dir": str(tmp_path)}):
        codec = HouseTokenizer(tokenizer="space", **fields)
        assert rows_of(codec, ["Hello world", "who"]) == [[2, 3], [1]]
        assert codec.decode([2, 3, 99]) == "hello world [UNK]"
        assert codec.vocab_size == 4


def test_options_reach_the_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\nHello\n")
    codec = HouseTokenizer(tokenizer="space", vocab_file=str(tmp_path / "vocab.txt"), options={"lower": False})
    assert rows_of(codec, ["Hello hello"]) == [[2, 1]]


def test_a_tokenizer_of_the_library_brings_its_vocabulary(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "hi": 1, "you": 2}, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    codec = HouseTokenizer(vocab_file=str(tmp_path / "tokenizer.json"))
    assert rows_of(codec, ["hi you"]) == [[1, 2]]
    assert codec.decode([1, 2]) == "hi you"
    assert codec.vocab_size == 3


def test_a_tokenizer_without_a_vocabulary_says_what_to_name() -> None:
    with pytest.raises(ConfigError, match="Name a vocab_file, or a data_dir of x-prepro"):
        HouseTokenizer(tokenizer="space").vocab_size  # noqa: B018 - read by being asked
