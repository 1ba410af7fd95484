"""Decide which of the processes that train together has died, is frozen or hangs, from what is known of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from xdpx.utils.process_facts import Life
from xdpx.utils.pulse import DATA, UNLIKE_OTHERS, Standing

FROZEN_SECONDS = 1.0
"""How long a process of this machine may be stopped (SIGSTOP). Short: the system reports it, so it is not a guess."""
GRACE_SECONDS = 0.5
"""Wait after a process is gone: it may have reported an error, and then the others end by themselves with it."""
FAR_PATIENCE = 2.0
"""Multiple of `hang_seconds` for a silent process on another machine: it cannot be seen whether it is computing."""
DEAF_PATIENCE = 20.0
"""The same for one that is silent but uses the CPU: it may hold the GIL, e.g. while it sorts a long list."""

Trouble = Literal["has died", "is frozen", "is silent", "hangs"]


@dataclass(frozen=True)
class Known:
    """The observations of a process.

    Attributes:
        silent: seconds since its last message.
        standing: what it was doing then.
        life: its state according to the system; `unknown` for a process on another machine.
        computes: whether it has used the CPU since its last message, or is waiting to be scheduled.
        stopped: seconds since it was first found stopped, without having been found running in between.
    """

    rank: int
    silent: float
    standing: Standing
    life: Life = "unknown"
    computes: bool = False
    stopped: float = 0.0

    @property
    def place(self) -> tuple[int, int]:
        """The step and phase it has reached, as a sort key: the others wait for the rank that is furthest behind."""
        return self.standing.step, not self.standing.phase.startswith(DATA)


@dataclass(frozen=True)
class Verdict:
    """Why a training must end: what is wrong, and with which ranks.

    Attributes:
        comes_again: whether a restart would only lead there again.
    """

    trouble: Trouble
    ranks: tuple[int, ...]
    comes_again: bool = False


def judge(known: Sequence[Known], hang_seconds: float, *, unmoved_seconds: float = math.inf) -> Verdict | None:
    """Return what is wrong, or None if nothing is, or if it is too early to tell.

    A process counts as hanging only when all processes are overdue: while one of them does something that may take
    long, the others merely wait for it.

    Args:
        known: every process except those that have ended normally.
        hang_seconds: silence after which a process is in trouble.
        unmoved_seconds: since any process last changed its step or phase, or left. The others may have been waiting
            for it all that time, so they get `hang_seconds` from then on.
    """
    for trouble, holds in (("has died", _died), ("is frozen", _frozen), ("is silent", _silent)):
        found = tuple(each.rank for each in known if holds(each, hang_seconds))
        if found:
            return Verdict(trouble, found)  # type: ignore[arg-type] # one of the three
    if not known or unmoved_seconds <= hang_seconds or not all(each.standing.overdue for each in known):
        return None
    last = min(each.place for each in known)
    behind = [each for each in known if each.place == last]
    comes_again = all(each.standing.phase.startswith(UNLIKE_OTHERS) for each in behind)
    return Verdict("hangs", tuple(each.rank for each in behind), comes_again)


def _died(each: Known, hang_seconds: float) -> bool:
    return each.life == "gone" and each.silent > min(GRACE_SECONDS, hang_seconds)


def _frozen(each: Known, hang_seconds: float) -> bool:
    return each.life == "stopped" and each.stopped > min(FROZEN_SECONDS, hang_seconds)


def _silent(each: Known, hang_seconds: float) -> bool:
    if each.life in {"traced", "stopped"}:
        return False
    patience = FAR_PATIENCE if each.life == "unknown" else DEAF_PATIENCE if each.computes else 1.0
    return each.silent > patience * hang_seconds
