"""The encoder gives the very ids of the Hugging Face libraries, whatever the text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xdpx.config.faults import ConfigError
from xdpx.tokenizers import characters
from xdpx.tokenizers.bert import SPECIAL_WORDS, BertTokenizer
from xdpx.tokenizers.characters import Boundaries, ranges
from xdpx.tokenizers.encoder import Encoder
from xdpx.tokenizers.vocabulary import Vocabulary
from xdpx.tokenizers.words import SpaceTokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = [
    "hello",
    "world",
    "##ing",
    "##s",
    "un",
    "##aff",
    "##able",
    "play",
    "中",
    "文",
    "，",
    "。",
    "!",
    ",",
    "的",
    "ß",
    "é",
]
VOCABULARY = [*SPECIAL_WORDS, *WORDS, *LETTERS, *(f"##{letter}" for letter in LETTERS), *"0123456789.-'[]"]
NASTY = (
    "\x00\x07\x0b\x0c\x1c\x1f\x7f\x85\xa0\xad\u0300\u0301\u0345\u1680\u180e\u2003\u200b\u200d\u2028\u2029\u202e\u3000"
    "\ufeff\ufffd\ue000\uf900\ufa0e\u2f00éÉßſİıΣςⅠ①ﬁ≠≮가각ｱ゛ゞ々〆〇中文國囯，。！？“”‘’…—·《》、\U00020000\U0002f800\U000e0001"
    "\U0001f600\U0001f1e8\U00010400\U0001d7ce#@[]_-/'\" \t\r\n"
)


@pytest.fixture(scope="module", params=[True, False], ids=["lower", "cased"])
def encoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    path = tmp_path_factory.mktemp("bert") / "vocab.txt"
    path.write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    tokenizer = BertTokenizer(BertTokenizer.Parameters(vocab_file=str(path), lower=request.param))
    return Encoder(tokenizer, tokenizer.vocabulary(pad_word="[PAD]", unk_word="[UNK]"))


def rows(encoder: Encoder, texts: list[str]) -> list[list[int]]:
    encoded = encoder.encode_many(texts)
    return [encoded.row(index) for index in range(len(encoded))]


PIECES = st.sampled_from([*WORDS, *SPECIAL_WORDS, "[mask]", "[MA\x1cSK]", "##", *NASTY, *LETTERS])
TEXT = (
    st.lists(st.one_of(PIECES, st.text(max_size=3)), max_size=12)
    .map("".join)
    .map(lambda text: text.encode("utf-8", "ignore").decode())
)


@settings(max_examples=400, deadline=None)
@given(texts=st.lists(TEXT, max_size=4))
def test_ids_are_those_of_the_library_for_any_text(encoder: Encoder, texts: list[str]) -> None:
    assert rows(encoder, texts) == encoder.tokenizer.encode(texts, encoder.vocabulary)


def test_ids_are_those_of_transformers(encoder: Encoder, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    lower = encoder.tokenizer.parameters.lower
    theirs = transformers.BertTokenizer(vocab=dict(encoder.vocabulary.ids), do_lower_case=lower)
    texts = ["Hello, worlds! unaffable 中文，[MASK] playing", "É ß x\x0by [CLS]a[SEP] \ufa0e國", NASTY, ""]
    assert rows(encoder, texts) == [theirs(text, add_special_tokens=False)["input_ids"] for text in texts]


@pytest.mark.parametrize("lower", [True, False])
def test_every_border_of_the_table_is_a_border_to_the_library(lower: bool) -> None:
    from tokenizers import normalizers, pre_tokenizers

    normalize = normalizers.BertNormalizer(lowercase=lower).normalize_str
    cut = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    kinds = Boundaries.of_bert().kinds
    wrong = []
    for code in kinds.nonzero()[0].tolist():
        pieces = [piece for piece, _ in cut(normalize(f"a{chr(code)}b"))]
        expected = {characters.WHITE: 2, characters.SINGLE: 3, characters.HIDDEN: 1}[int(kinds[code])]
        if len(pieces) != expected:
            wrong.append(hex(code))
    assert not wrong


def test_python_takes_nothing_else_for_white_space() -> None:
    kinds = Boundaries.of_bert().kinds
    white = {code for code in range(0x110000) if chr(code).isspace()}
    assert white == {
        code for code in kinds.nonzero()[0].tolist() if kinds[code] in {characters.WHITE, characters.HIDDEN}
    }


def test_characters_of_special_words_are_no_borders() -> None:
    kinds = Boundaries.of_bert(whole=["[MASK]"]).kinds
    assert kinds[ord("[")] == characters.WORD
    assert kinds[ord("(")] == characters.SINGLE


def test_forgetting_changes_nothing(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["hello world", "中文 playing", "unaffable"] * 3
    monkeypatch.setattr("xdpx.tokenizers.encoder.MAX_WORDS", 1)
    assert [rows(encoder, [text])[0] for text in texts] == rows(encoder, texts)


def test_an_encoder_survives_the_way_to_another_process(encoder: Encoder) -> None:
    from multiprocessing.reduction import ForkingPickler

    copy = ForkingPickler.loads(ForkingPickler.dumps(encoder))
    assert rows(copy, ["hello 中 zz"]) == rows(encoder, ["hello 中 zz"])


def test_ranges_reads_single_characters_and_spans() -> None:
    assert ranges("a-c,-") == [(97, 99), (44, 44), (45, 45)]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([[1]], "1 rows for 2 texts"),
        (iter([[1], [2]]), "list_iterator for 2 texts"),
        ([[1], [3]], "the id 3, which is not in the vocabulary"),
        ([[1], [-1]], "the id -1, which is not in the vocabulary"),
        ([[1], ["a"]], r"\[\[1\], \['a'\]\]"),
        ([[1], None], r"\[\[1\], None\]"),
    ],
)
def test_ids_that_are_none_of_the_vocabulary_are_the_fault_of_the_tokenizer(found: Any, words: str) -> None:
    class Mine(SpaceTokenizer):
        boundaries = None

        def encode(self, texts: Sequence[str], vocabulary: Vocabulary) -> Any:
            return found

    mine = Encoder(Mine(Mine.Parameters()), Vocabulary(["[PAD]", "[UNK]", "good"]))
    with pytest.raises(ConfigError, match=rf"'Mine\.encode' returns {words}\. Return a list of ids .* in \[0, 3\)"):
        mine.encode_many(["good", "bad"])
