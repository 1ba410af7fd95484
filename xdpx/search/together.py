"""Carry out a search order by order, by one process or by several that train each trial together (ranks, hosts)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from xdpx.config.faults import ConfigError
from xdpx.search.journal import Journal
from xdpx.search.search import Search
from xdpx.search.trials import Order, Result


class SearchRefused(OSError):
    """The first process could not begin or continue the search; its own error, there, says why."""


def search_together(
    make_journal: Callable[[], Journal],
    carry_out: Callable[[Order], Result | None],
    *,
    is_first: bool = True,
    broadcast: Callable[[Any], Any] = lambda value: value,
) -> Search | None:
    """Carry out every order of a search; the first process decides, and all processes train.

    Args:
        make_journal: returns the journal, which knows where the search stands; called on the first process.
        carry_out: trains the trial of an order as far as ordered, on all processes; None where that was interrupted.
        is_first: whether this is the process that decides.
        broadcast: returns what the first process said; what it says, JSON can hold.

    Returns:
        The search, on the first process: finished, unless it was interrupted.

    Raises:
        ConfigError, OSError: the search cannot be begun or continued; on other processes `SearchRefused`.
    """
    if not is_first:
        while (told := broadcast(None)) is not None:
            if isinstance(told, str):
                raise SearchRefused(told)
            carry_out(Order(**told))
        return None
    with ExitStack() as stack:
        try:
            journal = stack.enter_context(make_journal())
        except (ConfigError, OSError) as error:
            broadcast(str(error))
            raise
        while orders := journal.search.ready():
            broadcast(dict(vars(orders[0])))
            result = carry_out(orders[0])
            if result is None:
                break
            journal.tell(result)
        broadcast(None)
    return journal.search
