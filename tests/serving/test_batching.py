"""Which rows are computed together, with a model whose rows are as long as their texts."""

import threading
import time

import pytest

from xdpx.config.faults import ConfigError, Fault
from xdpx.inference.answers import Prediction
from xdpx.serving.batching import Batcher, Closed, Full, Sizes


class Row:
    def __init__(self, text):
        self.text, self.length = text, len(text)


class Fake:
    """Answers a text with itself, while `open` is set; `batches` are the texts that were computed together."""

    def __init__(self):
        self.batches = []
        self.open = threading.Event()

    def encode(self, texts):
        if "bad" in texts:
            raise ConfigError("predict", [Fault("texts[0]", "is bad.")])
        return [Row(text) for text in texts]

    def answer(self, rows):
        assert self.open.wait(10)
        self.batches.append([row.text for row in rows])
        if any(row.text == "burst" for row in rows):
            raise RuntimeError("out of memory")
        return [Prediction(row.text, {}) for row in rows]


class Asked:
    """Requests that were asked for, and what became of them."""

    def __init__(self, sizes, model=None):
        self.model = model or Fake()
        self.batcher = Batcher([self.model], sizes)
        self.ended = []

    def ask(self, *texts):
        self.batcher.ask(texts, self.ended.append)

    def all(self, *requests):
        """Ask for all of them while the model is busy with a first row, then let it go on; return later batches."""
        self.ask("first")
        while self.batcher._pool or self.batcher._asked or self.batcher._encoding:
            time.sleep(0.001)
        for texts in requests:
            self.ask(*texts)
        while self.batcher._asked or self.batcher._encoding:
            time.sleep(0.001)
        self.model.open.set()
        self.batcher.close(10)
        return self.model.batches[1:]


def test_rows_of_like_length_of_several_requests_are_computed_together():
    asked = Asked(Sizes(tokens=2000, rows=64))
    batches = asked.all(["a" * 10, "b" * 200], ["c" * 12], ["d" * 201, "e" * 11])
    assert [sorted(batch) for batch in batches] == [
        ["a" * 10, "c" * 12, "e" * 11],
        ["b" * 200, "d" * 201],
    ]
    answers = {tuple(each.label for each in request.answers) for request in asked.ended}
    assert ("a" * 10, "b" * 200) in answers
    assert len(answers) == 4


def test_a_batch_holds_no_more_than_its_budget_and_a_longer_row_is_alone():
    asked = Asked(Sizes(tokens=100, rows=3))
    batches = asked.all(["a" * 30] * 5, ["b" * 300], ["c" * 3] * 8)
    assert ["b" * 300] in batches
    assert all(
        len(batch) * max(map(len, batch)) <= 100 and len(batch) <= 3 for batch in batches if batch != ["b" * 300]
    )
    assert sum(map(len, batches)) == 14


def test_the_row_that_came_first_is_in_the_next_batch_and_many_of_one_request_hold_up_nobody():
    asked = Asked(Sizes(tokens=80, rows=4))
    batches = asked.all(["a" * 20] * 40, ["b" * 79])
    assert ["b" * 79] in batches[:2]


def test_a_row_at_fault_fails_its_request_alone():
    asked = Asked(Sizes())
    asked.all(["good", "bad"], ["fine"], ["burst", "one"])
    told = {request.texts: request.error for request in asked.ended}
    assert isinstance(told["good", "bad"], ConfigError)
    assert told["fine",] is None or isinstance(told["fine",], RuntimeError)  # it may have been computed with `burst`
    assert isinstance(told["burst", "one"], RuntimeError)
    assert asked.batcher.num_waiting == 0


def test_what_finds_no_room_is_refused_and_nothing_is_taken_after_the_end():
    asked = Asked(Sizes(waiting=3))
    asked.ask("one", "two", "three", "four")  # more than may wait, but nobody waits
    with pytest.raises(Full, match="try again in 1 s"):
        asked.ask("five")
    asked.model.open.set()
    asked.batcher.close(10)
    assert [each.label for each in asked.ended[0].answers] == ["one", "two", "three", "four"]
    with pytest.raises(Closed):
        asked.ask("six")
