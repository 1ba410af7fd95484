"""A debugger for multiprocessing: `pdb.set_trace()` also works in worker processes, whose standard input is closed.

If several processes may hit a breakpoint, call `pdb.set_nprocs(n)` before they are started: then they take turns.
"""

from __future__ import annotations

import pdb as _pdb
import sys
from typing import Any

_turn: Any = None


class _TerminalDebugger(_pdb.Pdb):
    """Reads from /dev/stdin, because multiprocessing closes the standard input of its children."""

    _has_turn = False

    def interaction(self, *args: Any, **options: Any) -> None:
        """Open the terminal; with `set_nprocs`, wait for this process's turn first."""
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
        """Continue, and release the turn to the next process."""
        super().set_continue()
        self._give_turn_away()

    def set_quit(self) -> None:
        """End the program, and release the turn to the next process."""
        super().set_quit()
        self._give_turn_away()

    def _give_turn_away(self) -> None:
        if _turn is not None and self._has_turn:
            self._has_turn = False
            _turn.release()


def set_nprocs(count: int) -> None:
    """Prepare for `count` processes that may hit breakpoints; call it before they are started.

    Raises:
        ValueError: count is below 1.
    """
    global _turn
    if count < 1:
        raise ValueError(f"set_nprocs({count}): there is at least 1 process.")
    if count > 1 and _turn is None:
        import multiprocessing

        _turn = multiprocessing.Lock()


def set_trace() -> None:
    """Start the debugger in the calling frame."""
    debugger = _TerminalDebugger()
    debugger.set_trace(sys._getframe(1))
