"""Rows of many requests -> batches of similar length: one thread tokenises while others compute."""

from __future__ import annotations

import threading
import time
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from xdpx.logger import log

if TYPE_CHECKING:
    from xdpx.inference.answers import EncodedRow, Prediction

Text = str | Sequence[str]
"""A row of a request: one text, or several."""
OVERHEAD_TOKENS = 32
"""Fixed cost of a batch, as a number of tokens: a row whose padding costs more gets a batch of its own."""
MOST_ENCODED = 256
"""Rows that are tokenised at a time, so that the first of them need not wait for the last."""


class Full(Exception):
    """The queue is full. `seconds` is an estimate of the time until its rows are answered."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"try again in {seconds:.0f} s")
        self.seconds = seconds


class Closed(Exception):
    """The batcher accepts no more requests."""


class Answering(Protocol):
    """The methods of a model that a batcher calls: the two halves of `TrainedRun.predict`, thread-safe."""

    def encode(self, texts: Sequence[Text]) -> list[EncodedRow]:
        """Return the rows that `answer` computes. Raises ConfigError where one is not text that the model reads."""
        ...

    def answer(self, encoded: Sequence[EncodedRow]) -> list[Prediction]:
        """Return a prediction for each encoded row."""
        ...


@dataclass(frozen=True)
class Sizes:
    """Limits on the batches and on the queue.

    Attributes:
        tokens: maximum per batch, including padding; a longer row is a batch of its own. A few hundred keep a CPU busy,
            and more only delay the answers; a GPU needs many.
        rows: maximum per batch.
        waiting: maximum number of rows in the queue, over all requests.
        threads: batches computed in parallel, each with a copy of the model; None chooses by the machine.
    """

    tokens: int = 512
    rows: int = 64
    waiting: int = 2048
    threads: int | None = None


Deliver = Callable[["PredictionRequest"], None]
"""Called once, in a thread of the batcher, when a request is answered or has failed."""


@dataclass(eq=False, slots=True)
class PredictionRequest:
    """Some rows that are answered together.

    Attributes:
        texts: its rows.
        deliver: called when the request has been answered or has failed.
        answers: one for each row, if it succeeded.
        error: why it failed.
        since: when it arrived, in seconds of `time.perf_counter`.
    """

    texts: Sequence[Text]
    deliver: Deliver
    answers: list[Prediction | None] = field(default_factory=list)
    error: Exception | None = None
    since: float = field(default_factory=time.perf_counter)
    missing: int = 0


@dataclass(eq=False, slots=True)
class _Waiting:
    """An encoded row that waits for its batch; the lowest `number` is next."""

    length: int
    number: int
    row: EncodedRow
    request: PredictionRequest
    index: int

    def __lt__(self, other: _Waiting) -> bool:
        return (self.length, self.number) < (other.length, other.number)


class Pool:
    """The waiting rows, sorted by length. Not thread-safe."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes
        self._rows: list[_Waiting] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, row: _Waiting) -> None:
        """Add a row."""
        insort(self._rows, row)

    def take(self) -> list[_Waiting]:
        """Remove and return the next batch: the row with the lowest number, and its neighbours in length.

        So a row waits at most for the batches of those before it. A neighbour is added while the token budget allows,
        and while its padding costs less than a batch of its own.
        """
        rows = self._rows
        first = min(range(len(rows)), key=lambda index: rows[index].number)
        start, stop, longest = first, first + 1, rows[first].length
        while stop - start < self._sizes.rows:
            below = rows[start - 1] if start else None
            above = rows[stop] if stop < len(rows) else None
            count = stop - start
            costs_below = longest - below.length if below else None
            costs_above = count * (above.length - longest) if above else None
            up = above is not None and (costs_below is None or (costs_above or 0) <= costs_below)
            costs = costs_above if up else costs_below
            width = above.length if up and above else longest
            if costs is None or costs > OVERHEAD_TOKENS or (count + 1) * width > self._sizes.tokens:
                break
            start, stop, longest = (start, stop + 1, width) if up else (start - 1, stop, width)
        taken = rows[start:stop]
        del rows[start:stop]
        return taken


class Batcher:
    """Answers requests with a model, in threads of its own, which `close` ends.

    Args:
        models: one for each computing thread; the first of them tokenises for all.
        sizes: limits on batches and on the queue.
        started: called at the start of each computing thread.
        computed: called after every batch with its rows, tokens including padding, and seconds.
    """

    def __init__(
        self,
        models: Sequence[Answering],
        sizes: Sizes,
        *,
        started: Callable[[], None] = lambda: None,
        computed: Callable[[int, int, float], None] = lambda rows, tokens, seconds: None,
    ) -> None:
        self._encoder, self._sizes = models[0], sizes
        self._started, self._computed = started, computed
        self._asked: deque[PredictionRequest] = deque()
        self._pool = Pool(sizes)
        self._changed = threading.Condition()
        self._closed = False
        self._num_rows = self._number = self._encoding = 0
        self._rows_per_second = 0.0
        self._num_threads = len(models)
        work: list[Callable[[], None]] = [self._encode_all, *(partial(self._compute_all, each) for each in models)]
        self._threads = [threading.Thread(target=each, name=f"serve-{i}", daemon=True) for i, each in enumerate(work)]
        for thread in self._threads:
            thread.start()

    @property
    def num_waiting(self) -> int:
        """Rows that have no answer yet."""
        return self._num_rows

    def ask(self, texts: Sequence[Text], deliver: Deliver) -> None:
        """Queue rows; `deliver` is called when all of them are answered.

        Raises:
            Full: the queue has no room for these rows.
            Closed: the batcher has been closed.
        """
        with self._changed:
            if self._closed:
                raise Closed
            if self._num_rows and self._num_rows + len(texts) > self._sizes.waiting:
                speed = self._rows_per_second or float("inf")
                raise Full(max(1.0, self._num_rows / speed))
            self._num_rows += len(texts)
            self._asked.append(PredictionRequest(texts, deliver))
            self._changed.notify_all()

    def close(self, seconds: float | None = None) -> None:
        """Accept no more requests, answer those in the queue, and end the threads; wait at most `seconds`."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(seconds)

    # ---- tokenising

    def _encode_all(self) -> None:
        while taken := self._next_asked():
            ready = [each for request, rows in self._encoded(taken) for each in self._as_waiting(request, rows)]
            with self._changed:
                for each in ready:
                    self._pool.add(each)
                self._encoding = 0
                self._changed.notify_all()

    def _next_asked(self) -> list[PredictionRequest]:
        """Wait for requests, and return as many as are tokenised at a time; none if the batcher has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._asked or self._closed)
            taken: list[PredictionRequest] = []
            while self._asked and sum(len(each.texts) for each in taken) < MOST_ENCODED:
                taken.append(self._asked.popleft())
            self._encoding = len(taken)
            return taken

    def _encoded(self, requests: list[PredictionRequest]) -> Iterator[tuple[PredictionRequest, list[EncodedRow]]]:
        """Yield requests with their encoded rows: all tokenised together, or if one is invalid, each by itself."""
        try:
            rows = self._encoder.encode([text for each in requests for text in each.texts])
        except Exception as error:  # encoding each by itself shows which request is at fault
            if len(requests) == 1:
                self._fail(requests, error)
            else:
                for each in requests:
                    yield from self._encoded([each])
            return
        start = 0
        for each in requests:
            yield each, rows[start : start + len(each.texts)]
            start += len(each.texts)

    def _as_waiting(self, request: PredictionRequest, rows: list[EncodedRow]) -> Iterator[_Waiting]:
        """Yield the rows of a request, numbered so that one of many rows does not hold up those that come after it."""
        request.answers, request.missing = [None] * len(rows), len(rows)
        self._number += 1
        for index, row in enumerate(rows):
            yield _Waiting(row.length, self._number + index, row, request, index)

    # ---- computing

    def _compute_all(self, model: Answering) -> None:
        self._started()
        while batch := self._next_batch():
            begun = time.perf_counter()
            try:
                answers = model.answer([each.row for each in batch])
            except Exception as error:  # the batch has failed; the next one may do better
                log.warning(f"a batch of {len(batch)} rows failed: {type(error).__name__}: {error}")
                self._fail(list({id(each.request): each.request for each in batch}.values()), error)
                continue
            seconds = time.perf_counter() - begun
            self._deliver(batch, answers, seconds)
            self._computed(len(batch), len(batch) * max(each.length for each in batch), seconds)

    def _next_batch(self) -> list[_Waiting]:
        with self._changed:
            self._changed.wait_for(lambda: len(self._pool) or (self._closed and not self._asked and not self._encoding))
            return self._pool.take() if len(self._pool) else []

    def _deliver(self, batch: list[_Waiting], answers: list[Prediction], seconds: float) -> None:
        ended = []
        with self._changed:
            for each, answer in zip(batch, answers, strict=True):
                each.request.answers[each.index] = answer
                each.request.missing -= 1
                if not each.request.missing and each.request.error is None:
                    ended.append(each.request)
            self._num_rows -= sum(len(request.texts) for request in ended)
            speed = self._num_threads * len(batch) / max(seconds, 1e-6)
            self._rows_per_second = 0.9 * self._rows_per_second + 0.1 * speed if self._rows_per_second else speed
        for request in ended:
            request.deliver(request)

    def _fail(self, requests: list[PredictionRequest], error: Exception) -> None:
        ended = []
        with self._changed:
            for request in requests:
                if request.error is None:
                    request.error = error
                    ended.append(request)
            self._num_rows -= sum(len(request.texts) for request in ended)
        for request in ended:
            request.deliver(request)
