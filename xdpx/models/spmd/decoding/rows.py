"""Decoded output as rows of JSON: prompts and continuations with their texts. On the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

Texts = Callable[[Sequence[Sequence[int]]], Sequence[str]]
"""Maps rows of ids, without padding, to their texts."""

Row = tuple[str, dict[str, Any]]

ROW_IN_BATCH = "row_in_batch"
"""Key in the rows that `process_decode_out` returns: which row of the batch, from 0, each continues. Files omit it."""

COLUMNS = ("output_ids", "decode_lengths", "logprobs", "scores", "prefix_lengths", "original_ids", "original_lengths")
"""The decoded arrays that rows are made of."""


def texts_by(model_input: Any, key: str | None = None) -> Texts:
    """Return a function that detokenizes with an input's tokenizer; without an input, ids become numbers."""

    def texts(rows: Sequence[Sequence[int]]) -> Sequence[str]:
        if model_input is None:
            return [" ".join(map(str, row)) for row in rows]
        lengths = np.array([len(row) for row in rows], np.int32)
        ids = np.zeros((len(rows), max(1, *lengths)), np.int32)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = row
        found: Sequence[str] = model_input.ids_to_strings(ids, lengths, key)
        return found

    return texts


def decoded_rows(out: Mapping[str, Any], texts: Texts, keys: Sequence[str | None] | None = None) -> list[Row]:
    """Return `(key, row)` for each continuation, best first; examples that only pad a batch are left out.

    A row has `prefix, decoded, original, ids, logprobs, prefix_length, decode_length, decoded_substr, decoded_ids` and
    `row_in_batch`; with several continuations per prompt also `sample_index` and `score`. `ids` and `logprobs` have one
    entry per slot; `decode_length` counts the prompt and the new tokens.

    Args:
        out: third result of `LanguageModel.decode`, on the host.
        texts: of the input's tokenizer.
        keys: of the examples; None: the texts of their prompts.
    """
    table = {name: np.asarray(out[name]).tolist() for name in COLUMNS}
    real = np.flatnonzero(np.asarray(out["eval_sample_weights"]) > 0).tolist()
    found = [_Continuation.of(table, index, sample) for index in real for sample in range(len(table["scores"][index]))]
    if not found:
        return []
    told = iter(texts([ids for one in found for ids in (one.prefix, one.decoded, one.new, one.original)]))
    rows = [(None if keys is None else keys[one.example], one.row(*islice(told, 4))) for one in found]
    return [(row["prefix"] if key is None else key, row) for key, row in rows]


class _Continuation(NamedTuple):
    """One continuation of one example: parts of its ids, and the other fields of its row."""

    example: int
    prefix: list[int]
    decoded: list[int]
    new: list[int]
    original: list[int]
    known: dict[str, Any]

    @classmethod
    def of(cls, table: Mapping[str, Any], index: int, sample: int) -> _Continuation:
        ids: list[int] = table["output_ids"][index][sample]
        begin, end = table["prefix_lengths"][index], table["decode_lengths"][index][sample]
        original = table["original_ids"][index][: table["original_lengths"][index]]
        known = {"ids": ids, "logprobs": table["logprobs"][index][sample], "prefix_length": begin, "decode_length": end}
        if len(table["scores"][index]) > 1:
            known |= {"sample_index": sample, "score": table["scores"][index][sample]}
        return cls(index, ids[:begin], ids[:end], ids[begin:end], original, known)

    def row(self, prefix: str, decoded: str, new: str, original: str) -> dict[str, Any]:
        told = {"prefix": prefix, "decoded": decoded, "original": original, "decoded_substr": new}
        return {ROW_IN_BATCH: self.example, **told, **self.known, "decoded_ids": self.new}
