"""Run a search order by order, in one process or in several that train each trial together (ranks, hosts)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from xdpx.config.faults import ConfigError
from xdpx.search.journal import Journal
from xdpx.search.search import Search
from xdpx.search.trials import Order, Result


class SearchRefused(OSError):
    """Raised on the other processes if the first could not begin or continue the search; holds its message."""


def search_together(
    make_journal: Callable[[], Journal],
    carry_out: Callable[[Order], Result | None],
    *,
    is_first: bool = True,
    broadcast: Callable[[Any], Any] = lambda value: value,
) -> Search | None:
    """Carry out every order of a search; the first process decides, and all processes train.

    Args:
        make_journal: returns the journal with the state of the search; called on the first process only.
        carry_out: trains the trial of an order, on all processes; returns None if interrupted.
        is_first: whether this is the process that decides.
        broadcast: returns on all processes the value passed by the first; values are JSON values.

    Returns:
        On the first process the search, finished unless it was interrupted; None on the others.

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
