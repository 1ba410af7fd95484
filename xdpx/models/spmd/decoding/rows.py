"""What was decoded, as rows of JSON: prompts and continuations with their texts. On the host, no arrays of a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

ToText = Callable[[Sequence[Sequence[int]]], Sequence[str]]
"""From rows of ids, without padding, to their texts."""


def decoded_rows(
    batch: Mapping[str, Any], out: Any, to_text: ToText, *, keys: Sequence[str] | None = None
) -> list[tuple[str, dict[str, Any]]]:
    """Give one row per continuation: `(key, row)`, those of padding examples left out.

    A row has `prefix, decoded, original, ids, logprobs, prefix_length, decode_length, decoded_substr, decoded_ids`;
    where a prompt has several continuations, `sample_index` and `score` too, the best first. `ids` and `logprobs`
    have as many entries as there are slots; `decode_length` counts the prompt and the new tokens.

    Args:
        batch: the input: `ids` (B, P), `labels` (B, P) if known, `eval_sample_weights` (B,) if some rows are padding.
        out: a `Decoded` of arrays that lie on the host.
        to_text: the tokenizer of the input.
        keys: of the examples; their numbers in the batch otherwise.
    """
    weights = np.asarray(batch.get("eval_sample_weights", np.ones(len(out.prefix_lengths))))
    kept = [index for index in range(len(weights)) if weights[index] > 0]
    rows = []
    for index in kept:
        key = str(keys[index]) if keys is not None else str(index)
        rows += [(key, row) for row in _rows_of(index, batch, out, to_text)]
    return rows


def _rows_of(index: int, batch: Mapping[str, Any], out: Any, to_text: ToText) -> Iterator[dict[str, Any]]:
    prefix_length = int(out.prefix_lengths[index])
    samples = len(out.output_ids[index])
    original = _original(index, batch)
    for sample in range(samples):
        ids = [int(each) for each in out.output_ids[index][sample]]
        length = int(out.decode_lengths[index][sample])
        new = ids[prefix_length:length]
        prefix, whole, text, first = to_text([ids[:prefix_length], ids[:length], new, original])
        row = {
            "prefix": prefix,
            "decoded": whole,
            "original": first,
            "ids": ids,
            "logprobs": [float(each) for each in out.logprobs[index][sample]],
            "prefix_length": prefix_length,
            "decode_length": length,
            "decoded_substr": text,
            "decoded_ids": new,
        }
        several = {"sample_index": sample, "score": float(out.scores[index][sample])}
        yield row | several if samples > 1 else row


def _original(index: int, batch: Mapping[str, Any]) -> list[int]:
    """Give the example's own ids: `labels` where the input has them, without what is padding."""
    ids = np.asarray(batch.get("labels", batch["ids"])[index])
    if "paddings" in batch:
        ids = ids[np.asarray(batch["paddings"][index]) < 0.5]
    return [int(each) for each in ids]
