"""What a model would silently misread in a batch: checked on the host, where values can be looked at.

B rows, T tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Problem = tuple[str, str, str]
"""(array of the batch, problem, remedy)."""


def joined_texts(batch: Mapping[str, Any], *, told_apart: bool, where: str = "") -> Iterator[Problem]:
    """Yield a problem if rows have several texts, unless the network tells them apart by segment_ids.

    Args:
        batch: optionally with `segment_ids` (B, T).
        told_apart: whether the network does.
        where: path of this batch within that of the input, such as `src.`.
    """
    if not told_apart and _has_several(batch):
        problem = "has several texts in a row, which would attend to each other, because packed_input is False."
        remedy = "Set packed_input=True in the network's template, or pack=False in the feature_converter."
        yield f"{where}segment_ids", problem, remedy


def several_prompts(batch: Mapping[str, Any], *, where: str = "") -> Iterator[Problem]:
    """Yield a problem if a row has several texts to continue. For the arguments, see `joined_texts`."""
    if _has_several(batch):
        problem = "has several texts in a row, but decoding continues one text per row."
        yield f"{where}segment_ids", problem, "Set pack=False in the feature_converter of this input."


def padding_before_tokens(batch: Mapping[str, Any], *, told_apart: bool, where: str = "") -> Iterator[Problem]:
    """Yield a problem if padding precedes a token of the same text: a causal network attends to it.

    For the arguments, see `joined_texts`.
    """
    padded: NDArray[Any] = np.asarray(batch.get("paddings", 0)) > 0.5
    if padded.ndim != 2:
        return
    before: NDArray[Any] = padded[:, :-1] & ~padded[:, 1:]
    segments = np.asarray(batch.get("segment_ids", 0))
    if told_apart and segments.shape == padded.shape:
        before &= segments[:, :-1] == segments[:, 1:]
    if before.any():
        row = int(before.any(axis=1).argmax())
        problem = f"has padding before a token (row {row}), which a causal model would read as part of the text."
        remedy = "Put padding after the tokens; or set packed_input=True, and give segment_ids that are 0 at padding."
        yield f"{where}paddings", problem, remedy


def num_positions(network: Any) -> int | None:
    """Return the number of trained positions of a network or its template; None if positions are not trained."""
    return getattr(getattr(network, "position_emb_tpl", None), "max_seq_length", None)


def too_few_positions(batch: Mapping[str, Any], most: int | None, *, where: str = "") -> Iterator[Problem]:
    """Yield a problem if a token is beyond the trained positions: all of those would share the last vector.

    Args:
        batch: with `ids` (B, T), optionally `segment_pos` and `paddings`.
        most: number of positions; None if they are not trained.
        where: path of this batch within that of the input, such as `src.`.
    """
    length = np.shape(batch.get("ids", ()))[1:]
    if most is None or not length:
        return
    given = batch.get("segment_pos")
    positions = np.arange(length[0])[None] if given is None else np.asarray(given)
    last = int(np.max(positions * (np.asarray(batch.get("paddings", 0)) < 0.5), initial=0))
    if last >= most:
        problem = f"has a token at position {last}, but the model has trained positions 0 to {most - 1}."
        name = "ids" if given is None else "segment_pos"
        yield f"{where}{name}", problem, "Truncate the texts, or raise max_seq_length."


def _has_several(batch: Mapping[str, Any]) -> bool:
    """Return whether a row has several texts, of different numbers above 0."""
    segments = np.asarray(batch.get("segment_ids", 0))
    if segments.ndim != 2:
        return False
    last = segments.max(axis=1, initial=0)
    first = np.where(segments > 0, segments, last[:, None]).min(axis=1, initial=np.iinfo(np.int32).max)
    return bool((first < last).any())
