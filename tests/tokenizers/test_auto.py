"""Any Hugging Face tokenizer, with the very ids it gives itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from xdpx.config.faults import ConfigError
from xdpx.tokenizers.auto import AutoTokenizer
from xdpx.tokenizers.bert import SPECIAL_WORDS, bert_library
from xdpx.tokenizers.encoder import Encoder

TEXTS = ["Hello, world! [MASK] 中文", "naïve [MA\x1cSK]", "", "x" * 200]
WORDS = [*SPECIAL_WORDS, "hello", ",", "world", "!", "中", "文", "na", "##ive"]


def bert() -> Any:
    return bert_library({word: index for index, word in enumerate(WORDS)}, lower=True, unk_word="[UNK]")


def byte_pairs() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, special_tokens=["<pad>", "<unk>"])
    library.train_from_iterator(["hello hello world"], trainer)
    return library


def of_pieces(prepend: str) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    library = Tokenizer(models.Unigram([("<unk>", 0.0), ("\u2581", -1.0), ("a", -1.0), ("\u2581a", -1.0)], unk_id=0))
    library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prepend)
    return library


def with_prefix() -> Any:
    from tokenizers import pre_tokenizers

    library = byte_pairs()
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    return library


def load(vocab_file: Path, resources: Path | None = None) -> AutoTokenizer:
    parameters = AutoTokenizer.Parameters(vocab_file=str(vocab_file))
    return AutoTokenizer(parameters, resources=str(resources) if resources else None)


@pytest.mark.parametrize(("make", "cut"), [(bert, True), (byte_pairs, False)])
def test_ids_are_those_of_the_library(tmp_path: Path, make: Any, cut: bool) -> None:
    library = make()
    library.enable_truncation(3)
    library.save(str(tmp_path / "tokenizer.json"))
    library.no_truncation()
    tokenizer = load(tmp_path)
    assert (tokenizer.boundaries is not None) is cut
    vocabulary = tokenizer.vocabulary(pad_word="[PAD]", unk_word="[UNK]")
    encoded = Encoder(tokenizer, vocabulary).encode_many(TEXTS)
    expected = [library.encode(text, add_special_tokens=False).ids for text in TEXTS]
    assert [encoded.row(index) for index in range(len(TEXTS))] == expected
    assert [vocabulary.tokens[index] for index in expected[0]] == tokenizer.tokenize(TEXTS[0])


def test_what_it_keeps_is_enough_to_build_it_again(tmp_path: Path) -> None:
    bert().save(str(tmp_path / "my.json"))
    tokenizer = load(tmp_path / "my.json")
    (tmp_path / "data").mkdir()
    for name, text in tokenizer.files().items():
        (tmp_path / "data" / name).write_text(text, encoding="utf-8")
    again = load(tmp_path / "gone.json", resources=tmp_path / "data")
    assert again.tokenize(TEXTS[0]) == tokenizer.tokenize(TEXTS[0])


def test_an_added_token_that_depends_on_its_surroundings_forbids_cutting(tmp_path: Path) -> None:
    from tokenizers import AddedToken

    library = bert()
    library.add_tokens([AddedToken("hello world", single_word=True)])
    library.save(str(tmp_path / "tokenizer.json"))
    assert load(tmp_path).boundaries is None


def test_a_folder_without_tokenizer_json_is_read_by_transformers(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    assert load(tmp_path).tokenize("Hello 中") == ["hello", "中"]


@pytest.mark.parametrize("content", ["{}", "nonsense"])
def test_what_is_no_tokenizer_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ConfigError, match=r"is not a tokenizer\.json"):
        load(tmp_path).tokenize("a")


def test_a_name_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^this run: 1 fault\n  vocab_file: is '.*', where no tokenizer was found"):
        load(tmp_path / "nowhere").tokenize("a")


@pytest.mark.parametrize(
    ("library", "is_part"),
    [
        (byte_pairs(), True),
        (of_pieces("never"), True),
        (with_prefix(), False),  # each word gets one as it is
        (of_pieces("always"), False),
        (bert(), False),
    ],
)
def test_words_need_the_space_before_them_where_it_is_a_part_of_their_tokens(
    tmp_path: Path, library: Any, is_part: bool
) -> None:
    library.save(str(tmp_path / "tokenizer.json"))
    assert load(tmp_path).space_before_words is is_part
    given = AutoTokenizer.Parameters(vocab_file=str(tmp_path), space_before_words=False)
    assert AutoTokenizer(given).space_before_words is False


@pytest.mark.parametrize(
    ("settings", "tokens"),
    [
        ({}, ["[UNK]", "hello"]),
        ({"do_lower_case": True}, ["[UNK]", "hello"]),
        ({"do_lower_case": False}, ["[UNK]", "[UNK]"]),
        ({"added_tokens_decoder": {"40": {"content": "Na", "normalized": False}}}, ["Na", "[UNK]", "hello"]),
    ],
)
def test_a_folder_is_read_as_transformers_reads_it(tmp_path: Path, settings: dict[str, Any], tokens: list[str]) -> None:
    from transformers import AutoTokenizer as Reference

    bert().save(str(tmp_path / "tokenizer.json"))
    config = {"tokenizer_class": "BertTokenizer", **settings}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    assert load(tmp_path).tokenize("Nax Hello") == tokens
    assert Reference.from_pretrained(tmp_path).tokenize("Nax Hello") == tokens


@pytest.mark.parametrize(
    ("processor", "count"),
    [
        (None, 0),
        ({"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": True}, 2),
        ({"type": "Sequence", "processors": [{"type": "TemplateProcessing", "pair": ["A", "[SEP]", "B"]}]}, 1),
        ({"type": "TemplateProcessing", "pair": ["A", "</s>", "</s>", "B", "</s>"]}, 2),
    ],
)
def test_the_separators_of_a_pair_are_read_from_the_definition(tmp_path: Path, processor: Any, count: int) -> None:
    bert().save(str(tmp_path / "tokenizer.json"))
    definition = json.loads((tmp_path / "tokenizer.json").read_text())
    for part in [processor, *processor.get("processors", ())] if processor else []:
        if "pair" in part:
            part["pair"] = [{"Sequence" if len(name) == 1 else "SpecialToken": {"id": name}} for name in part["pair"]]
    (tmp_path / "tokenizer.json").write_text(json.dumps({**definition, "post_processor": processor}))
    assert load(tmp_path).separators == count
