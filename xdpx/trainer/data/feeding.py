"""The data of a Trainer: which set is scored, and which batch is the last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any


def eval_set(asked: Any, given: Any) -> tuple[str, Any]:
    """Return the data to score on, and the name under which its loader is kept.

    Args:
        asked: what `evaluate` was given: a set, the name of one of several, None for that of the Trainer.
        given: `eval_dataset` of the Trainer, a dict of several.
    """
    if asked is None and given is None:
        raise ValueError("Trainer: there is no eval_dataset. Give one to the Trainer, or to evaluate.")
    if isinstance(asked, str):
        return asked, given[asked]
    return "eval", given if asked is None else asked


def with_last(loader: Iterable[Any]) -> Iterator[tuple[Any, bool]]:
    """Yield each batch, and whether it is the last one."""
    if hasattr(loader, "end_of_dataloader"):
        yield from ((batch, loader.end_of_dataloader) for batch in loader)
        return
    batches = iter(loader)
    current = next(batches, None)
    while current is not None:
        following = next(batches, None)
        yield current, following is None
        current = following
