"""Dialogues: one message per line, numbered within its session."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from xdpx.config.parameters import param
from xdpx.loaders.base import Blocks, Loader, Merger, Records
from xdpx.loaders.parsers.base import BadLine, Row, Rows


class SessionCorpusLoader(Loader):
    """Columns: msg_no, sender, text. A number that is not above the last one, or a blank line, begins a session.

    Messages that one sender wrote one after the other are joined, up to `max_consecutive` of them.
    """

    num_targets: ClassVar[int] = 0

    class Parameters(Loader.Parameters):
        """What the session_corpus loader can be told."""

        min_session_size: int = param(8, ge=2, doc="Sessions of fewer messages are dropped.")
        max_consecutive: int = param(2, ge=1, doc="Most lines of one sender that make one message.")

    @property
    def num_sections(self) -> int:
        """How many columns a line has."""
        return 3

    def expected(self) -> str:
        """Say which columns a line must have."""
        return "msg_no, sender, text"

    def records(self, rows: Rows, *, labelled: bool) -> Records:
        """Give the messages of a block, an empty text before each session."""
        del labelled
        session = _Session(self.parameters.max_consecutive)
        bad = list(rows.bad)
        for line, row in zip(rows.lines, rows.rows, strict=True):
            problem = session.add(line, row)
            if problem:
                bad.append(BadLine(line, problem))
        return Records({"text": session.texts}, None, session.lines, sorted(bad))

    def merger(self, max_len: int) -> Merger:
        """Join the messages of each session."""
        del max_len
        return SessionMerger(self.parameters.min_session_size)


class _Session:
    """Messages as they come."""

    def __init__(self, max_consecutive: int) -> None:
        self.texts: list[str] = []
        self.lines: list[int] = []
        self._most = max_consecutive
        self._number: int | None = None
        self._sender = ""
        self._joined = 0

    def add(self, line: int, row: Row) -> str | None:
        """Take a row. Returns what is wrong with it."""
        if row == [""]:
            self._begin(line)
            return None
        if len(row) != 3:
            return f"has {len(row)} column{'s' * (len(row) != 1)}, not 3: msg_no, sender, text"
        number, sender, text = row
        if not number.strip().isdecimal():
            return f"has '{number}' for the number of a message"
        if self._number is not None and int(number) <= self._number:
            self._begin(line)
        self._number = int(number)
        if sender == self._sender and 0 < self._joined < self._most:
            self.texts[-1] = f"{self.texts[-1]} {text}"
            self._joined += 1
        elif text.strip():
            self._append(line, text)
            self._sender, self._joined = sender, 1
        return None

    def _begin(self, line: int) -> None:
        self._append(line, "")
        self._number, self._sender, self._joined = None, "", 0

    def _append(self, line: int, text: str) -> None:
        self.texts.append(text)
        self.lines.append(line)


class SessionMerger(Merger):
    """Joins the messages between two borders. Sessions of too few messages are dropped."""

    def __init__(self, fewest: int) -> None:
        self._fewest = fewest
        self._messages: list[NDArray[np.int32]] = []

    def feed(self, texts: Blocks, borders: NDArray[np.bool_]) -> Blocks:
        """Take some more messages; give the sessions that have ended."""
        ended = []
        for index, border in enumerate(borders.tolist()):
            message = texts.values[texts.offsets[index] : texts.offsets[index + 1]]
            if border:
                ended += self._end()
            elif len(message):
                self._messages.append(message)
        return _blocks(ended)

    def finish(self) -> Blocks:
        """Give the last session."""
        return _blocks(self._end())

    def _end(self) -> list[NDArray[np.int32]]:
        messages, self._messages = self._messages, []
        return [np.concatenate(messages)] if len(messages) >= self._fewest else []


def _blocks(sessions: list[NDArray[np.int32]]) -> Blocks:
    values = np.concatenate(sessions) if sessions else np.zeros(0, np.int32)
    return Blocks(values, np.cumsum([0, *map(len, sessions)]))
