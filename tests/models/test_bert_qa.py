"""Answers as stretches of a text: from a file to their scores."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from xdpx.config.faults import ConfigError
from xdpx.datasets.sample_making import Maker, Recipe, Work
from xdpx.engines.pytorch.out_of_memory import joined
from xdpx.engines.pytorch.transfer import to_arrays, to_device
from xdpx.inference.given import rows_of
from xdpx.inference.probes import odd_rows
from xdpx.loaders import loaders
from xdpx.loaders.base import Answer
from xdpx.loaders.parsers import parsers
from xdpx.loaders.parsers.base import Block, Rows
from xdpx.losses import losses
from xdpx.losses.answers import best_threshold
from xdpx.losses.bert_qa import best_span, best_spans
from xdpx.models import models
from xdpx.processors import processors
from xdpx.processors.samples import Samples
from xdpx.processors.windows import windows_of
from xdpx.tokenizers import tokenizers
from xdpx.tokenizers.base import LibraryTokenizer
from xdpx.tokenizers.bert import bert_library
from xdpx.tokenizers.encoder import Encoder
from xdpx.tokenizers.vocabulary import Vocabulary

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "who", "bob", "sees", "al", "##ice", "."]


def test_the_json_of_squad_becomes_rows(tmp_path: Path) -> None:
    answers = [{"text": text, "answer_start": start} for text, start in (("Bob", 0), ("b", 2), ("Bob", 0), ("b", 2))]
    none = {"question": "why?", "answers": [], "is_impossible": True, "plausible_answers": answers}
    questions = [{"question": "who?", "answers": answers}, none, {"question": "when?"}]
    data = [{"paragraphs": [{"context": "Bob sees Alice.", "qas": questions}]}]
    (tmp_path / "a.json").write_text(json.dumps({"data": data}))
    parser = parsers["squad"](parsers["squad"].Parameters())
    assert parser.parse(next(iter(parser.blocks(str(tmp_path / "a.json"))))).rows == [
        ["who?", "Bob sees Alice.", "Bob", "0", '["b"]'], ["why?", "Bob sees Alice.", "", "-1", ""],
        ["when?", "Bob sees Alice."],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("article", "message"),
    [
        ({"paragraph": []}, "has an article without a list 'paragraphs', but with: paragraph"),
        ({"paragraphs": [{"context": "a", "qa": []}]}, "has a paragraph without a list 'qas', but with: context, qa"),
        ({"paragraphs": [None]}, "has a paragraph without a list 'qas', but with: NoneType"),
    ],
)
def test_questions_are_not_lost_by_another_key(tmp_path: Path, article: dict[str, Any], message: str) -> None:
    sound = {"paragraphs": [{"context": "a", "qas": [{"question": "b"}]}]}
    (tmp_path / "a.json").write_text(json.dumps({"data": [sound, article]}))
    with pytest.raises(ConfigError, match=message):
        list(parsers["squad"](parsers["squad"].Parameters()).read(str(tmp_path / "a.json")))


def test_a_question_that_is_impossible_and_answered_is_a_bad_line(tmp_path: Path) -> None:
    question = {"question": "b", "answers": [{"text": "a", "answer_start": 0}], "is_impossible": True}
    data = [{"paragraphs": [{"context": "a", "qas": [question]}]}]
    (tmp_path / "a.json").write_text(json.dumps({"data": data}))
    ((_, found),) = parsers["squad"](parsers["squad"].Parameters()).read(str(tmp_path / "a.json"))
    assert found == (1, "has is_impossible: true, and answers")


def test_an_answer_is_a_part_of_a_text_that_stays_whole() -> None:
    loader = loaders["qa"](loaders["qa"].Parameters(tokenizer="space"))
    rows = [["q", "aba", "a", "2"], ["q", "aba", "a"], ["q", "aba", " "], ["q", "aba"], ["q", "aba", "c", "0"]]
    found = loader.records(Rows(rows, [1, 2, 3, 4, 5], []), labelled=False)
    assert found.fields == {"question": ["q"] * 4, "context": ["aba"] * 4}
    assert found.answers == [Answer(2, 3, "a"), Answer(0, 1, "a"), Answer(), Answer()]
    assert found.bad == [(5, "has the answer 'c', which does not occur in its context")]


@pytest.mark.parametrize(
    ("start", "found"), [("3", 4), ("1", 0), ("2", 0), ("99", 4), ("4", 4), ("-1", 0), ("", 0), ("²", 0)]
)
def test_an_answer_is_looked_for_near_where_it_should_be(start: str, found: int) -> None:
    loader = loaders["qa"](loaders["qa"].Parameters(tokenizer="space"))
    answers = loader.records(Rows([["q", "ab. ab", "ab", start]], [1], []), labelled=False).answers
    assert answers == [Answer(found, found + 2, "ab", moved=start not in {"4", "-1", ""})]


def test_other_answers_are_a_list_in_json() -> None:
    loader = loaders["qa"](loaders["qa"].Parameters(tokenizer="space"))
    rows = [["q", "a b", "a", "0", '["b", "a  b"]'], ["q", "a b", "a", "0", ""], ["q", "a b", "a", "0", "b"]]
    found = loader.records(Rows(rows, [1, 2, 3], []), labelled=False)
    assert found.answers is not None
    assert [answer.right for answer in found.answers] == ["a\nb\na b", "a"]
    assert found.bad == [(3, "has the other answers 'b', which are not a list of texts in JSON")]


def test_asked_is_a_question_and_a_context_and_not_what_their_record_holds() -> None:
    loader = loaders["qa"](loaders["qa"].Parameters(tokenizer="space"))
    assert rows_of([{"question": "who?", "context": "Bob"}], loader) == [["who?", "Bob"]]
    with pytest.raises(ConfigError, match="a tuple of 2 texts: question, context"):
        rows_of(["who?"], loader)
    odd = odd_rows(loader, ["bob"], max_len=8)
    assert not loader.records(Rows(odd, range(len(odd)), []), labelled=False).bad


def processor(max_len: int, **keys: Any) -> Any:
    kind = processors["bert_qa"]
    return kind(kind.Parameters(max_len=max_len, max_question_length=2, **keys), vocabulary=Vocabulary(WORDS))


def sampled(maker: Any, *records: tuple[str, ...]) -> Samples:
    """Make the samples of (question, context), and perhaps the answer and its start."""
    recipe = Recipe(parsers["squad"](parsers["squad"].Parameters()), qa_loader(), encoder(), maker)
    rows = [list(record) for record in records]
    made = Maker(recipe)(Work(Block(1, rows=rows, lines=range(1, len(rows) + 1)), labelled=False))
    assert made.samples is not None
    return made.samples


def qa_loader() -> Any:
    return loaders["qa"](loaders["qa"].Parameters(tokenizer="space"))


def encoder() -> Encoder:
    return Encoder(tokenizers["space"](tokenizers["space"].Parameters()), Vocabulary(WORDS))


def test_both_ends_of_the_answer_are_positions_in_the_sample() -> None:
    maker = processor(9)
    batch = maker.collate(sampled(maker, ("who", "bob sees al ##ice .", "al ##ice"), ("who who who", "bob sees", "")))
    assert batch["net_input"]["input_ids"].tolist() == [[2, 4, 3, 5, 6, 7, 8, 9, 3], [2, 4, 4, 3, 5, 6, 3, 0, 0]]
    assert batch["net_input"]["token_type_ids"].tolist() == [[0, 0, 0, 1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 1, 0, 0]]
    assert batch["target"].tolist() == [[5, 6], [0, 0]]
    assert [bytes(row).rstrip(b"\0") for row in batch["right"]] == [b"al ##ice", b""]


def test_the_text_of_each_token_can_be_read_off_the_batch() -> None:
    maker = processor(8, doc_stride=2)
    batch = maker.collate(sampled(maker, ("who", "É bob  北京, X al", "北")))
    words = [
        [bytes(text)[begin:end].decode() for begin, end in zip(begins, ends, strict=True) if end]
        for text, begins, ends in zip(batch["text"], batch["begins"].tolist(), batch["ends"].tolist(), strict=True)
    ]
    assert words == [["É", "bob", "北京,", "X"], ["北京,", "X", "al"]]
    assert batch["target"].tolist() == [[5, 5], [3, 3]]  # the whole word, as the tokenizer does not split it
    assert "text" not in maker.collate(sampled(maker, ("who", "bob")), training=True)


def test_the_same_tokens_are_read_with_and_without_an_answer() -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "when", "in", "19", "##70", "##s", "70"]
    bert = bert_library({word: index for index, word in enumerate(words)}, lower=True, unk_word="[UNK]")

    class Pieces(LibraryTokenizer):
        library = bert

    kind = processors["bert_qa"]
    maker = kind(kind.Parameters(max_len=16), vocabulary=Vocabulary(words))
    parser = parsers["squad"](parsers["squad"].Parameters())
    recipe = Recipe(parser, qa_loader(), Encoder(Pieces(Pieces.Parameters()), Vocabulary(words)), maker)
    rows = [["when", "in 1970s", "70", "5"], ["when", "in 1970s"], ["when", "in 1970s", "in 19"]]
    samples = Maker(recipe)(Work(Block(1, rows=rows, lines=[1, 2, 3]), labelled=False)).samples
    assert samples is not None
    batch = maker.collate(samples)
    assert batch["net_input"]["input_ids"].tolist() == [[2, 4, 3, 5, 6, 7, 8, 3]] * 3
    assert batch["target"].tolist() == [[5, 5], [0, 0], [3, 4]]


def test_an_answer_that_is_cut_off_cannot_be_found_but_still_counts() -> None:
    maker = processor(7)
    batch = maker.collate(sampled(maker, ("who", "bob sees al ##ice .", "al ##ice")))
    assert batch["net_input"]["input_ids"].tolist() == [[2, 4, 3, 5, 6, 7, 3]]
    assert (batch["target"].tolist(), bytes(batch["right"][0])) == ([[0, 0]], b"al ##ice")


def test_a_long_context_becomes_windows_that_overlap() -> None:
    maker = processor(8, doc_stride=2)
    context = "bob sees al ##ice . bob bob"
    samples = sampled(maker, ("who", context, "##ice ."), ("who who", "bob sees al", ""))
    batch = maker.collate(samples)
    assert batch["net_input"]["input_ids"].tolist() == [
        [2, 4, 3, 5, 6, 7, 8, 3], [2, 4, 3, 7, 8, 9, 5, 3], [2, 4, 3, 9, 5, 5, 3, 0], [2, 4, 4, 3, 5, 6, 7, 3],
    ]  # fmt: skip
    assert batch["window"].tolist() == [0, 1, 2, 0]
    assert batch["target"].tolist() == [[0, 0], [4, 5], [0, 0], [0, 0]]
    texts = [bytes(row).rstrip(b"\0").decode() for row in batch["text"]]
    assert texts == ["bob sees al ##ice", "al ##ice . bob", ". bob bob", "bob sees al"]


def test_samples_of_an_older_version_are_refused() -> None:
    maker = processor(9)
    samples = sampled(maker, ("who", "bob"))
    old = Samples({name: column for name, column in samples.columns.items() if name != "text"})
    with pytest.raises(ConfigError, match=r"data_dir.*older version.*Run x-prepro again"):
        maker.collate(old, training=True)


def test_made_up_tokens_need_no_text() -> None:
    maker = processor(9)
    sample = maker.numerize({"question": [4], "context": [5, 6]}, None)
    batch = maker.collate(Samples.from_dicts([sample], maker.columns(labelled=False)))
    assert (batch["target"].tolist(), batch["text"].shape) == ([[0, 0]], (1, 0))


def test_windows_leave_nothing_out() -> None:
    for room, stride in ((3, 1), (3, 3), (3, 9), (1, 1)):
        lengths = np.arange(12)
        found = windows_of(lengths, np.full(12, room), stride)
        for row, length in enumerate(lengths.tolist()):
            mine = found.rows == row
            spans = [
                range(start, start + size) for start, size in zip(found.starts[mine], found.lengths[mine], strict=True)
            ]
            assert sorted({place for span in spans for place in span}) == list(range(length))
            assert max(map(len, spans)) <= room
            assert found.numbers[mine].tolist() == list(range(len(spans)))
    assert windows_of(np.array([9]), np.array([0]), 2).lengths.tolist() == [0]
    assert windows_of(np.array([9]), np.array([4]), None).lengths.tolist() == [4]


def test_all_right_answers_are_kept_for_scoring() -> None:
    maker = processor(9)
    samples = sampled(maker, ("who", "bob sees", "bob", "0", '["Bob  sees", "nobody"]'), ("who", "bob", "", "-1", ""))
    right = [bytes(row).rstrip(b"\0").decode() for row in maker.collate(samples)["right"]]
    assert right == ["bob\nBob sees\nnobody", ""]
    assert maker.decode(samples.sample(0)).endswith("| bob | Bob sees | nobody")


def test_only_a_question_that_came_before_is_a_duplicate_and_no_window_of_another() -> None:
    parser = parsers["squad"](parsers["squad"].Parameters())
    recipe = Recipe(parser, qa_loader(), encoder(), processor(8, doc_stride=2))
    rows = [["who", "bob sees al sees bob sees al"]] * 2 + [["who", "bob"], ["who", "bob", "bob"]]
    made = Maker(recipe)(Work(Block(1, rows=rows, lines=[1, 2, 3, 4]), labelled=False, hashed=True))
    assert made.kept.tolist() == [0, 0, 0, 1, 1, 1, 2, 3]
    assert made.hashes is not None
    assert np.array_equal(made.hashes[:3], made.hashes[3:6])
    assert len(np.unique(made.hashes, axis=0)) == 5
    assert (made.counts.too_short, made.counts.too_long, made.counts.samples) == (0, 0, 8)


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
    batch = maker.collate(sampled(maker, ("who", "bob sees al ##ice ."), ("who who who", "bob sees")))
    logits = model(**{name: torch.from_numpy(value) for name, value in batch["net_input"].items()})
    possible = (logits > -1e30).all(dim=-1)
    assert possible.nonzero().tolist() == [[0, 0], [0, 3], [0, 4], [0, 5], [0, 6], [0, 7], [1, 0], [1, 4], [1, 5]]


def test_the_best_spans_come_one_after_the_other_and_then_none() -> None:
    logits = torch.full((1, 4, 2), torch.finfo(torch.float32).min)
    logits[0, 0], logits[0, 1], logits[0, 3] = (
        torch.tensor([0.0, 0.0]),
        torch.tensor([1.0, 3.0]),
        torch.tensor([0.5, 2.0]),
    )
    spans, scores = best_spans(logits, 2, number=4)
    assert scores[0].tolist() == [4.0, 2.5, -math.inf, -math.inf]
    assert spans[0, :2].tolist() == [[1, 1], [3, 3]]
    assert best_spans(logits, 2, number=30)[1].shape == (1, 30)


def built(**keys: Any) -> Any:
    return losses["bert_qa"](losses["bert_qa"].Parameters(**keys))


def gathered(pred: Any, score: Any, nothing: Any, right: Any, *, window: Any = None) -> dict[str, Any]:
    """Predictions of windows with one answer each; a window is a question unless told otherwise."""
    size = len(pred)
    return {
        "pred": np.array(pred, object)[:, None], "score": np.array(score, float)[:, None],
        "nothing": np.array(nothing, float), "sample": np.arange(size), "window": np.array(window or [0] * size),
        "right": np.array(right, object), "loss_sum": 1.0, "count": float(size), "correct": 2.0, "too_long": 0.0,
    }  # fmt: skip


class Said(torch.nn.Module):
    """Gives the same logits for every batch."""

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__()
        self.logits = logits

    def forward(self, **net_input: Any) -> torch.Tensor:
        return self.logits


def test_predicted_is_the_text_as_it_stands_in_the_context() -> None:
    maker = processor(9)
    batch = maker.collate(sampled(maker, ("who", "O'Neil sees  北京 .", "北京"), ("who", "Qwx Vbnm", "Qwx")))
    possible = torch.from_numpy(batch["ends"] > 0)
    logits = torch.zeros(*possible.shape, 2).masked_fill(~possible.unsqueeze(-1), -2e30)
    logits[0, 5] = logits[1, 4] = 4.0  # 北京, and Vbnm, which is unknown as Qwx is
    logits[0, 4, 0] = logits[0, 5, 0] + 2.0
    tensors = to_device(batch, torch.device("cpu"))
    found = built(n_best=2).predictions(Said(logits), tensors)
    assert found["pred"].tolist() == [["sees  北京", "北京"], ["Vbnm", "Qwx Vbnm"]]
    assert found["span"].tolist() == [[[4, 5], [5, 5]], [[4, 4], [3, 4]]]
    assert found["right"].tolist() == ["北京", "Qwx"]
    host = to_arrays(joined([found, found]))
    scores = built().metrics({**host, "sample": np.arange(4)})
    assert (scores["em"], scores["acc"]) == (0.0, 0.0)


def test_answers_are_scored_as_text() -> None:
    rows = gathered(["a B. c", "O'Neil", ""], [1, 1, -np.inf], [0, 0, 0], ["b d", "the oneil", ""])
    found = built().metrics(rows)
    assert (found["acc"], found["em"]) == (2 / 3, 2 / 3)
    assert np.isclose(found["f1"], (0.5 + 1 + 1) / 3)
    assert list(built().rows(rows, None)) == [["a B. c"], ["O'Neil"], [""]]


def test_the_nearest_of_several_right_answers_counts() -> None:
    rows = gathered(["b c", "e"], [1, 1], [0, 0], ["e\nb c", "b c"])
    found = built().metrics(rows)
    assert (found["em"], found["f1"]) == (0.5, 0.5)


def test_the_windows_of_a_question_are_put_together_in_any_order() -> None:
    rows = gathered(["5", "6", "7", "9"], [1, 3, 2, -5], [0, 2, 9, 0], ["6"] * 3 + ["9"], window=[0, 1, 2, 0])
    rows["count"] = 4.0
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        mixed = {name: value[order] if isinstance(value, np.ndarray) else value for name, value in rows.items()}
        assert built().metrics(mixed)["em"] == 0.5  # the second question is said to have none: -5 < 0
        assert built(null_threshold=None).metrics(mixed)["em"] == 1.0
        cells = [cell for (cell,) in built().rows(mixed, None)]
        assert cells == [["6", "6", "6", ""][place] for place in order]


def test_questions_without_an_answer_want_silence() -> None:
    rows = gathered(["x"] * 4, [1] * 4, [0, 2, 3, 5], ["x", "x", "", ""])
    found = built().metrics(rows)  # doubts are -1, 1, 2, 4
    assert (found["f1"], found["best_f1"]) == (0.75, 1.0)
    assert found["best_null_threshold"] == 1.5
    assert built(null_threshold=1.5).metrics(rows)["f1"] == 1.0
    assert "best_f1" not in built().metrics(gathered(["x"], [1], [0], ["x"]))


def test_the_best_answers_are_listed_with_their_shares() -> None:
    rows = gathered(["5", "6"], [0, 0], [0, 0], ["5", "5"], window=[0, 1])
    rows["pred"] = np.array([["5", "6"], ["6", "8 9"]], object)
    rows["score"] = np.log([[4.0, 2.0], [1.0, 0.5]])
    loss = built(n_best=2)
    assert loss.columns() == ("answer", "n_best")
    cells = list(loss.rows(rows, None))
    assert cells[0] == cells[1]
    assert (cells[0][0], json.loads(cells[0][1])) == ("5", [["5", 0.571429], ["6", 0.285714], ["", 0.142857]])
    assert built(n_best=2, null_threshold=None)._found(rows, np.array([0, 1])).shares(None)[0] == ("5", 0.666667)


def test_the_best_threshold_is_the_best_of_all() -> None:
    dice = np.random.default_rng(0)
    for size in (1, 2, 9):
        doubts, spoken = dice.integers(-3, 3, size).astype(float), dice.random(size)
        silent = dice.integers(0, 2, size).astype(float)
        doubts[0] = np.inf if size == 9 else doubts[0]

        def mean(threshold: float, doubts: Any = doubts, spoken: Any = spoken, silent: Any = silent) -> float:
            return float(np.where(doubts > threshold, silent, spoken).mean())

        best, threshold = best_threshold(doubts, spoken, silent)
        assert np.isclose(best, mean(threshold))
        assert np.isclose(best, max(mean(each) for each in np.arange(-4.5, 4, 0.5)))
