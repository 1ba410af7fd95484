"""What was decoded, as rows of JSON: prompts and continuations with their texts. On the host, no arrays of a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

Texts = Callable[[Sequence[Sequence[int]]], Sequence[str]]
"""From rows of ids, without padding, to their texts."""

Row = tuple[str, dict[str, Any]]


def texts_by(model_input: Any, key: str | None = None) -> Texts:
    """Give what turns ids into texts by an input's tokenizer; without an input, numbers stand for themselves."""

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
    """Give `(key, row)` for each continuation, the best first; examples that only fill up a batch are left out.

    A row has `prefix, decoded, original, ids, logprobs, prefix_length, decode_length, decoded_substr, decoded_ids`;
    where a prompt has several continuations, `sample_index` and `score` too. `ids` and `logprobs` have as many
    entries as there are slots; `decode_length` counts the prompt and the new tokens.

    Args:
        out: what `LanguageModel.decode` gives third, on the host.
        texts: of the input's tokenizer.
        keys: of the examples; the texts of their prompts otherwise.
    """
    weights = np.asarray(out["eval_sample_weights"])
    rows: list[Row] = []
    for index in np.flatnonzero(weights > 0).tolist():
        key = None if keys is None else keys[index]
        rows += [(row["prefix"] if key is None else key, row) for row in _continuations(index, out, texts)]
    return rows


def _continuations(index: int, out: Mapping[str, Any], texts: Texts) -> Iterator[dict[str, Any]]:
    prefix_length = int(out["prefix_lengths"][index])
    original = _ints(out["original_ids"][index])[: int(out["original_lengths"][index])]
    several = len(out["output_ids"][index]) > 1
    for sample, every in enumerate(out["output_ids"][index]):
        ids, length = _ints(every), int(out["decode_lengths"][index][sample])
        new = ids[prefix_length:length]
        prefix, decoded, new_text, original_text = texts([ids[:prefix_length], ids[:length], new, original])
        row = {
            "prefix": prefix,
            "decoded": decoded,
            "original": original_text,
            "ids": ids,
            "logprobs": [float(each) for each in out["logprobs"][index][sample]],
            "prefix_length": prefix_length,
            "decode_length": length,
            "decoded_substr": new_text,
            "decoded_ids": new,
        }
        if several:
            row |= {"sample_index": sample, "score": float(out["scores"][index][sample])}
        yield row


def _ints(ids: Any) -> list[int]:
    return [int(each) for each in ids]
