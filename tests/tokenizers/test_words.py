"""Cut at white space, and Chinese character by character."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xdpx.config.faults import ConfigError
from xdpx.tokenizers.base import Tokenizer, kept_files
from xdpx.tokenizers.encoder import Encoder
from xdpx.tokenizers.vocabulary import Vocabulary
from xdpx.tokenizers.words import ChineseCharacterTokenizer, SpaceTokenizer


def tokens(text: str, *, lower: bool = True, rm_punc: bool = False) -> list[str]:
    return SpaceTokenizer(SpaceTokenizer.Parameters(lower=lower, rm_punc=rm_punc)).tokenize(text)


def test_case_and_accents_go_with_lower() -> None:
    assert tokens(" Élan  VITAL\tn'est ") == ["elan", "vital", "n'est"]
    assert tokens("Élan VITAL", lower=False) == ["Élan", "VITAL"]


def test_control_characters_go() -> None:
    assert tokens("a\x00b c\u200d \x07") == ["ab", "c"]


def test_punctuation_can_count_as_white_space() -> None:
    assert tokens("os.path.join(a, b) 你好，世界", rm_punc=True) == ["os", "path", "join", "a", "b", "你好", "世界"]


@given(st.lists(st.text(max_size=20).map(lambda text: text.encode("utf-8", "ignore").decode()), max_size=3))
def test_many_texts_are_encoded_as_one_by_one(texts: list[str]) -> None:
    for rm_punc in (False, True):
        tokenizer = SpaceTokenizer(SpaceTokenizer.Parameters(rm_punc=rm_punc))
        vocabulary = Vocabulary(["[PAD]", "[UNK]", "a", "b", "0"])
        encoded = Encoder(tokenizer, vocabulary).encode_many(texts)
        expected = [vocabulary.indices(tokenizer.tokenize(text)) for text in texts]
        assert [encoded.row(index) for index in range(len(texts))] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("我有iPhone 12", ["我", "有", "iphone", "12"]),
        ("好吃！！！真的。。。", ["好", "吃", "！", "真", "的", "。"]),
        ("电话13800138000", ["电", "话", "NUM11"]),
        ("2024年", ["2024", "年"]),
        ("3.14 和 12345.6", ["3.14", "和", "NUM6"]),
        ("a_b :) ", ["a", "_", "b", ":", ")"]),
        ("", []),
    ],
)
def test_tokens(text: str, expected: list[str]) -> None:
    assert ChineseCharacterTokenizer(ChineseCharacterTokenizer.Parameters()).tokenize(text) == expected


@pytest.mark.parametrize("odd", ["good film", None, [1, 2], [["a"]], [b"a"], 3])
def test_a_tokenizer_of_ones_own_that_returns_no_list_of_texts_is_refused(odd: Any) -> None:
    class Mine(Tokenizer):
        def tokenize(self, text: str) -> list[str]:
            return odd

    mine = Mine(Mine.Parameters())
    for ask in (
        lambda: mine.count(["a"]),
        lambda: mine.encode(["a"], Vocabulary.build({}, special_words=["[PAD]", "[UNK]"])),
    ):
        with pytest.raises(
            ConfigError, match=r"tokenizer: 'Mine\.tokenize' returns .* for 'a'\. Return a list of texts"
        ):
            ask()


def test_files_of_a_users_own_tokenizer_have_names_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = SpaceTokenizer(SpaceTokenizer.Parameters())

    def refused(files: object) -> str:
        monkeypatch.setattr(SpaceTokenizer, "files", lambda self: files)
        with pytest.raises(ConfigError) as error:
            kept_files(tokenizer)
        return str(error.value)

    for name in ("vocab.txt", "valid.log.tsv", "checkpoint-5.pt", "export.manifest.json", ".lease"):
        assert f"names '{name}', which XDPX uses" in refused({name: "{}"})
    for name in ("../rules.json", "", "sub/rules.json", 3):
        assert "Use a file name without folders" in refused({name: "{}"})
    assert "gives bytes as the content of 'a'" in refused({"a": b"", "rules.json": "{}"})
    assert "gives NoneType" in refused(None)
