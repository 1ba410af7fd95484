"""Find the tokens that are the answer in a text that was tokenized without regard to it, and where tokens stand in it.

Letters: N records, U distinct texts, C characters of all distinct texts together, V tokens of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from xdpx.config.faults import wrong_return
from xdpx.loaders.base import Answer
from xdpx.processors.samples import Ragged, offsets_of
from xdpx.tokenizers.base import Tokenizer

NOWHERE = -1
"""First and last token of an answer that is missing or has no token."""


def placed(
    texts: Sequence[str], answers: Sequence[Answer], counts: NDArray[np.integer], tokenizer: Tokenizer
) -> dict[str, Ragged]:
    """Return the fields that a processor with `reads_answers` gets about texts and the answers in them.

    Args:
        texts: of the records, often the same several times.
        answers: to the question of each, in its text.
        counts: of the tokens of each text, (N,).
        tokenizer: made the tokens.

    Returns:
        begins, ends: of each token, in bytes of UTF-8 within its text; text: these bytes; right: those of the right
        answers, one per line; answer: first and last token of the answer, both -1 for none.

    Raises:
        ConfigError: a user's tokenizer says of another number of tokens where they stand.
    """
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    rows = np.fromiter(map(numbers.__getitem__, texts), np.int64, len(texts))
    borders_U = offsets_of(np.fromiter(map(len, numbers), np.int64, len(numbers)))
    spans = tokenizer.spans(list(numbers))
    offsets_U = offsets_of(np.fromiter(map(len, spans), np.int64, len(spans)))
    if not np.array_equal(np.diff(offsets_U)[rows], counts):
        found = f"{offsets_U[-1]:,} spans for texts of another number of tokens"
        raise wrong_return("tokenizer", tokenizer, "spans", found, "Return (begin, end) of every token of each text.")
    begin_V, end_V = _among_all(np.array(list(chain.from_iterable(spans)), np.int64), offsets_U, borders_U)
    data = np.frombuffer("".join(numbers).encode(), np.uint8)
    byte_C = np.append(np.flatnonzero(data & 0xC0 != 0x80), len(data))  # where characters begin
    first_byte = np.repeat(byte_C[borders_U[:-1]], np.diff(offsets_U))
    right = [answer.right.encode() for answer in answers]
    return {
        "begins": Ragged(byte_C[begin_V] - first_byte, offsets_U).take(rows),
        "ends": Ragged(byte_C[end_V] - first_byte, offsets_U).take(rows),
        "text": Ragged(data, byte_C[borders_U]).take(rows),
        "answer": _tokens_of(answers, begin_V, end_V, borders_U[rows], offsets_U[rows]),
        "right": Ragged(np.frombuffer(b"".join(right), np.uint8), offsets_of(np.array([*map(len, right)], np.int64))),
    }


def _among_all(
    spans: NDArray[np.int64], offsets_U: NDArray[np.int64], borders_U: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return begin and end of each token among the characters of all texts, (V,) each, neither ever decreasing."""
    low, high = (np.repeat(each, np.diff(offsets_U))[:, None] for each in (borders_U[:-1], borders_U[1:]))
    begin, end = np.maximum.accumulate(np.clip(spans.reshape(-1, 2) + low, low, high)).T
    return begin, end


def _tokens_of(
    answers: Sequence[Answer],
    begin_V: NDArray[np.int64],
    end_V: NDArray[np.int64],
    border: NDArray[np.int64],
    offset: NDArray[np.int64],
) -> Ragged:
    """Return the tokens that hold the first and the last character of each answer, counted within its text."""
    begin, end = np.array([answer[:2] for answer in answers], np.int64).reshape(-1, 2).T
    first = np.searchsorted(end_V, border + begin, side="right")
    last = np.searchsorted(begin_V, border + end, side="left") - 1
    there = (begin < end) & (first <= last)
    pairs = np.where(there, np.stack([first, last]) - offset, NOWHERE)
    return Ragged(pairs.T.ravel(), np.arange(len(answers) + 1) * 2)
