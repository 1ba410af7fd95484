"""Answers as stretches of a text: from a file to their scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from xdpx.loaders import loaders
from xdpx.loaders.parsers import parsers
from xdpx.loaders.parsers.base import Rows
from xdpx.losses import losses
from xdpx.losses.bert_qa import best_span, text_of
from xdpx.models import models
from xdpx.processors import processors
from xdpx.processors.samples import Samples
from xdpx.tokenizers.vocabulary import Vocabulary

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "who", "bob", "sees", "al", "##ice", "."]


def test_the_json_of_squad_becomes_rows(tmp_path: Path) -> None:
    answers = [{"text": "Bob", "answer_start": 0}, {"text": "b", "answer_start": 2}]
    questions = [{"question": "who?", "answers": answers}, {"question": "why?", "answers": []}, {"question": "when?"}]
    data = [{"paragraphs": [{"context": "Bob sees Alice.", "qas": questions}]}]
    (tmp_path / "a.json").write_text(json.dumps({"data": data}))
    parser = parsers["squad"](parsers["squad"].Parameters())
    assert parser.parse(next(iter(parser.blocks(str(tmp_path / "a.json"))))).rows == [
        ["who?", "Bob sees Alice.", "Bob", "0"], ["why?", "Bob sees Alice.", "", "-1"], ["when?", "Bob sees Alice."],
    ]  # fmt: skip


def test_a_text_is_cut_at_both_ends_of_its_answer() -> None:
    loader = loaders["qa"](loaders["qa"].Parameters(tokenizer="space"))
    rows = [["q", "aba", "a", "2"], ["q", "aba", "a"], ["q", "aba", "b", "0"], ["q", "aba"], ["q", "aba", "c", "0"]]
    found = loader.records(Rows(rows, [1, 2, 3, 4, 5], []), labelled=False)
    parts = list(zip(*(found.fields[name] for name in ("before", "answer", "after")), strict=True))
    assert parts == [("ab", "a", ""), ("", "a", "ba"), ("a", "b", "a"), ("aba", "", "")]
    assert found.bad == [(5, "has the answer 'c', which does not stand in its context")]


def processor(max_len: int) -> Any:
    kind = processors["bert_qa"]
    return kind(kind.Parameters(max_len=max_len, max_question_length=2), vocabulary=Vocabulary(WORDS))


def sampled(maker: Any, *records: tuple[list[int], ...]) -> Samples:
    rows = [maker.numerize(dict(zip(maker.text_fields, record, strict=True)), None) for record in records]
    return Samples.from_dicts(rows, maker.columns(labelled=False))


def test_both_ends_of_the_answer_are_positions_in_the_sample() -> None:
    maker = processor(9)
    batch = maker.collate(sampled(maker, ([4], [5, 6], [7, 8], [9]), ([4, 4, 4], [5, 6], [], [])))
    assert batch["net_input"]["input_ids"].tolist() == [[2, 4, 3, 5, 6, 7, 8, 9, 3], [2, 4, 4, 3, 5, 6, 3, 0, 0]]
    assert batch["net_input"]["token_type_ids"].tolist() == [[0, 0, 0, 1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 1, 0, 0]]
    assert batch["target"].tolist() == [[5, 6], [0, 0]]
    assert batch["answer"].tolist() == [[7, 8], [-1, -1]]


def test_an_answer_that_is_cut_off_cannot_be_found_but_still_counts() -> None:
    maker = processor(7)
    batch = maker.collate(sampled(maker, ([4], [5, 6], [7, 8], [9])))
    assert batch["net_input"]["input_ids"].tolist() == [[2, 4, 3, 5, 6, 7, 3]]
    assert (batch["target"].tolist(), batch["answer"].tolist()) == ([[0, 0]], [[7, 8]])


def test_the_best_span_is_the_best_of_all_that_are_allowed() -> None:
    torch.manual_seed(1)
    logits = torch.randn(6, 7, 2)
    for row, found in zip(logits, best_span(logits, 3).tolist(), strict=True):
        allowed = [(0, 0)] + [(first, last) for first in range(1, 7) for last in range(first, min(first + 3, 7))]
        assert tuple(found) == max(allowed, key=lambda span: float(row[span[0], 0] + row[span[1], 1]))


def test_answers_are_never_looked_for_outside_of_the_context() -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 8}
    model = models["bert_qa"](models["bert_qa"].Parameters(pretrained_model=None, vocab_size=10, **sizes)).eval()
    maker = processor(9)
    batch = maker.collate(sampled(maker, ([4], [5, 6], [7, 8], [9]), ([4, 4, 4], [5, 6], [], [])))
    logits = model(**{name: torch.from_numpy(value) for name, value in batch["net_input"].items()})
    possible = (logits > -1e30).all(dim=-1)
    assert possible.nonzero().tolist() == [[0, 0], [0, 3], [0, 4], [0, 5], [0, 6], [0, 7], [1, 0], [1, 4], [1, 5]]


def test_answers_are_scored_as_text() -> None:
    loss = losses["bert_qa"](losses["bert_qa"].Parameters(max_len=3))
    rows = {
        "target": np.array([[7, 8, -1], [5, -1, -1], [-1] * 3]),
        "pred": np.array([[7, 8, 9], [5, -1, -1], [-1] * 3]),
    }
    found = loss.metrics({**rows, "loss_sum": 1.0, "count": 3.0, "correct": 2.0})
    assert (found["acc"], found["em"]) == (2 / 3, 2 / 3)
    assert np.isclose(found["f1"], (0.8 + 1 + 1) / 3)
    assert list(loss.rows(rows, None)) == [["7 8 9"], ["5"], [""]]


def test_pieces_of_words_are_joined() -> None:
    assert text_of([5, 6, 7, 8], WORDS) == "bob sees alice"
    assert text_of([0, 1, 2], ["\u0120bo", "b", "\u0120sees"]) == "bob sees"
