"""What is decided alike wherever old checkpoints are deleted, whatever they are called and however many stay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


def in_order(steps: Iterable[int], newest: int | None = None) -> list[int]:
    """Give the steps, those to be deleted first in front: steps decide what is old, never the time of a file.

    Args:
        steps: of the checkpoints that are there.
        newest: the step that counts as the newest, by default the highest. Those beyond it belong to an earlier run, or
            were damaged when this one was resumed from before them: they go first.
    """
    ordered = sorted(steps)
    if newest is None:
        return ordered
    return [step for step in ordered if step > newest] + [step for step in ordered if step <= newest]


def once_safe(surplus: Sequence[T], faults_of_newest: Callable[[], Sequence[str]]) -> list[T]:
    """Give what may be deleted: all of `surplus`, but nothing while the newest that stays is not as it was written.

    Args:
        surplus: what is not wanted any more.
        faults_of_newest: reads the newest one back, and says what is wrong with it; asked only where there is surplus.
    """
    return list(surplus) if surplus and not faults_of_newest() else []
