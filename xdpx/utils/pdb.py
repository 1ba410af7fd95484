"""A debugger for one of several processes: `pdb.set_trace()` works where the plain one has no keyboard.

In worker processes of one's own, call `pdb.set_nprocs(n)` first: then those that hit a breakpoint take turns. Nothing
is started by importing this.
"""

from __future__ import annotations

import pdb as _pdb
import sys
from typing import Any

_turn: Any = None


class _TerminalDebugger(_pdb.Pdb):
    """Talks to the terminal itself: multiprocessing closes the standard input of its children."""

    _has_turn = False

    def interaction(self, *args: Any, **options: Any) -> None:
        """Take the terminal, and the turn when several processes share it."""
        from xdpx.utils.io_utils import io

        if _turn is not None and not self._has_turn:
            _turn.acquire()
            self._has_turn = True
        before = sys.stdin
        try:
            sys.stdin = io.open("/dev/stdin")
            super().interaction(*args, **options)
        finally:
            sys.stdin = before

    def set_continue(self) -> None:
        """Go on, and let the next process have its turn."""
        super().set_continue()
        self._give_turn_away()

    def set_quit(self) -> None:
        """End the program, and let the next process have its turn."""
        super().set_quit()
        self._give_turn_away()

    def _give_turn_away(self) -> None:
        if _turn is not None and self._has_turn:
            self._has_turn = False
            _turn.release()


def set_nprocs(count: int) -> None:
    """Prepare for `count` processes that may hit breakpoints: call it before they are started.

    Raises:
        ValueError: when count is below 1.
    """
    global _turn
    if count < 1:
        raise ValueError(f"set_nprocs({count}): there is at least 1 process.")
    if count > 1 and _turn is None:
        import multiprocessing

        _turn = multiprocessing.Lock()


def set_trace() -> None:
    """Stop here and ask what to do."""
    debugger = _TerminalDebugger()
    debugger.set_trace(sys._getframe(1))
