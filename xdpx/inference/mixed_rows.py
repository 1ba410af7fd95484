"""Warn if code of a user lets the answer for a row depend on chance, or on the rows that share its batch."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xdpx.config.registry import are_shipped
from xdpx.inference.probes import MOST_OF_NEIGHBOURS, difference
from xdpx.logger import log
from xdpx.utils.distributed_utils import is_master

Answers = Mapping[str, Any]


def may_mix(*parts: object) -> bool:
    """Return whether one of the parts, such as network and loss, is a user's: the shipped ones do not mix rows."""
    return not are_shipped(*parts)


def warn_of_mixing(score: Callable[[Any], Answers], batch: Any, alone: Any, *, num_rows: int, what: str) -> None:
    """Warn if the last row of a batch gets another answer than alone, or each time; what is scored here never counts.

    Args:
        score: returns the answers for a batch, arrays with a row for each of its rows among them.
        batch: of several rows.
        alone: a batch of its last row only.
        num_rows: of the batch.
        what: the name of the network.
    """
    with _aside():
        together = _of_last_row(score(batch), num_rows)
        try:
            apart = _apart(together, _of_last_row(score(alone), 1))
        except (RuntimeError, ValueError):  # such as of BatchNorm: no variance of one row
            apart = float("inf")
        if apart <= MOST_OF_NEIGHBOURS:
            return
        again = _apart(together, _of_last_row(score(batch), num_rows))
    if again > 0:
        _tell_of_chance(what, again)
        return
    how = f"they differ by {apart:.1e}" if apart < float("inf") else "alone it fails, or they differ without limit"
    log.warning(
        f"{what}: predicts a row differently in a batch than alone ({how}): the result depends on which rows share a "
        "batch, or on their padding. No row may depend on the others in its batch: no mean over "
        "rows, BatchNorm in evaluation mode, padding masked; or set exact: true, which computes such rows alone."
    )


def warn_of_chance(score: Callable[[Any], Answers], batch: Any, *, what: str) -> None:
    """Warn if the answers for a batch differ each time; what is scored here never counts. On all processes.

    Args:
        score: returns the answers for a batch.
        batch: of any number of rows.
        what: the name of the network.
    """
    with _aside():
        apart = _apart(*({name: np.asarray(each) for name, each in score(batch).items()} for _ in range(2)))
    if apart > MOST_OF_NEIGHBOURS and is_master():
        _tell_of_chance(what, apart)


def _tell_of_chance(what: str, apart: float) -> None:
    log.warning(
        f"{what}: gives another answer when the same batch is computed again (they differ by {apart:.1e}): scores, the "
        "choice of the best checkpoint and predictions depend on chance. Dropout and noise belong into training alone: "
        "nn.Dropout instead of functional.dropout, which needs training=self.training; and no .train() in forward."
    )


@contextmanager
def _aside() -> Generator[None]:
    """Log nothing inside, and restore the random generators of torch afterwards."""
    import torch

    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices=devices), log.muted():
        yield


def _of_last_row(answers: Answers, num_rows: int) -> dict[str, NDArray[Any]]:
    """Return the answer for the last row: the last entry of each array with one for each row."""
    arrays = {name: np.asarray(value) for name, value in answers.items()}
    return {name: value[-1] for name, value in arrays.items() if value.shape[:1] == (num_rows,)}


def _apart(one: dict[str, NDArray[Any]], other: dict[str, NDArray[Any]]) -> float:
    """Return how far the answers for a row are apart; of numbers, if there are any, as a class changes by rounding."""
    names: Iterable[str] = one.keys() & other.keys()
    names = [name for name in names if one[name].dtype.kind == "f"] or names
    pairs = [(one[name], other[name]) for name in names]
    # an answer may be as long as the longest of its batch
    cut = [tuple(map(slice, np.minimum(first.shape, second.shape))) for first, second in pairs]
    return max((difference(two[to], one[to]) for (one, two), to in zip(pairs, cut, strict=True)), default=0.0)
