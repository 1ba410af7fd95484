"""Which of the processes that train together has died, is frozen or hangs: decided from what is known of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from xdpx.utils.process_facts import Life
from xdpx.utils.pulse import Standing

FROZEN_SECONDS = 1.0
"""How long a process of this machine may be stopped: the system says so, and nothing is guessed."""
GRACE_SECONDS = 0.5
"""A process that is gone may have said why: those that wait for it then end by themselves, with their own words."""
FAR_PATIENCE = 2.0
"""Patience with a silent process of another machine, in multiples: nobody can look whether it computes."""
DEAF_PATIENCE = 20.0
"""The same for one that computes without a word: it may hold Python's lock, e.g. while it sorts a long list."""

Trouble = Literal["has died", "is frozen", "is silent", "hangs"]


@dataclass(frozen=True)
class Known:
    """What is known of a process.

    Attributes:
        silent: seconds since it was heard of.
        standing: what it was at then.
        life: what the system says; `unknown` for one of another machine.
        computes: whether it has used the processor since it was heard of, or waits for its turn.
        stopped: seconds for which it was found stopped whenever somebody looked.
    """

    rank: int
    silent: float
    standing: Standing
    life: Life = "unknown"
    computes: bool = False
    stopped: float = 0.0

    @property
    def place(self) -> tuple[int, int]:
        """How far it has come: the rank that is furthest behind is the one that the others wait for."""
        return self.standing.step, self.standing.phase != "data"


@dataclass(frozen=True)
class Verdict:
    """Why a training must end: what is wrong with which ranks."""

    trouble: Trouble
    ranks: tuple[int, ...]


def judge(known: Sequence[Known], hang_seconds: float, *, unmoved_seconds: float = math.inf) -> Verdict | None:
    """Return what is wrong, None when nothing is, or nothing that could not still turn out to be patience.

    A process that takes too long only hangs when all of them do: those that wait for one that may take long, wait too.

    Args:
        known: of each process but those that have ended well.
        hang_seconds: of silence that are too many.
        unmoved_seconds: since one of them last went on to something else, or left: those that waited for it, all the
            time that it took, go on only now.
    """
    for trouble, holds in (("has died", _died), ("is frozen", _frozen), ("is silent", _silent)):
        found = tuple(each.rank for each in known if holds(each, hang_seconds))
        if found:
            return Verdict(trouble, found)  # type: ignore[arg-type] # one of the three
    if not known or unmoved_seconds <= hang_seconds or not all(each.standing.overdue for each in known):
        return None
    last = min(each.place for each in known)
    return Verdict("hangs", tuple(each.rank for each in known if each.place == last))


def _died(each: Known, hang_seconds: float) -> bool:
    return each.life == "gone" and each.silent > min(GRACE_SECONDS, hang_seconds)


def _frozen(each: Known, hang_seconds: float) -> bool:
    return each.life == "stopped" and each.stopped > min(FROZEN_SECONDS, hang_seconds)


def _silent(each: Known, hang_seconds: float) -> bool:
    if each.life in {"traced", "stopped"}:
        return False
    patience = FAR_PATIENCE if each.life == "unknown" else DEAF_PATIENCE if each.computes else 1.0
    return each.silent > patience * hang_seconds
