"""The loader `qa`: questions, and the spans of text that answer them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import ClassVar

from xdpx.loaders.base import Answer, Loader, Records
from xdpx.loaders.parsers.base import BadLine, Row, Rows

WIDTHS = (2, 3, 4, 5)
UNTOLD = frozenset({"", "-1"})
"""Starts that say nothing about where the answer is."""


class QALoader(Loader):
    """Columns: question, context, answer, its start in the context in characters, and other correct answers.

    The last column is a JSON list; only the first 2, 3 or 4 columns are allowed, too. If the answer is not where the
    start says, the occurrence nearest to it is used; without a start, the first. An empty answer means that the context
    has none. The other answers are for scoring, and need not occur in the context.
    """

    text_fields: ClassVar[tuple[str, ...]] = ("question", "context")
    has_answers: ClassVar[bool] = True
    num_targets: ClassVar[int] = 0
    between: ClassVar[tuple[str, ...]] = ("answer", "start", "others")

    class Parameters(Loader.Parameters):
        """Keys of the qa loader."""

    def is_labelled(self, row: Row) -> bool | None:
        """Return False if the number of columns is valid, else None. Answers are texts, so no file is labelled."""
        return False if len(row) in WIDTHS else None

    def are_answered(self, rows: Sequence[Row]) -> bool:
        """Return whether all rows have the column of the answer, which may be empty."""
        return all(len(row) > WIDTHS[0] for row in rows)

    def expected(self) -> str:
        """Return a description of the columns of a line, for messages."""
        return "question, context, and perhaps answer, its beginning, and other answers"

    def records(self, rows: Rows, *, labelled: bool) -> Records:
        """Return the records of a block; a row whose answer does not occur in its context is bad."""
        del labelled
        fields: dict[str, list[str]] = {name: [] for name in self.text_fields}
        lines: list[int] = []
        answers: list[Answer] = []
        bad = list(rows.bad)
        for line, row in zip(rows.lines, rows.rows, strict=True):
            answer = _answer(row)
            if isinstance(answer, str):
                bad.append(BadLine(line, answer))
                continue
            for name, text in zip(self.text_fields, row, strict=False):
                fields[name].append(text)
            lines.append(line)
            answers.append(answer)
        return Records(fields, None, lines, sorted(bad), answers=answers)


def _answer(row: Row) -> Answer | str:
    """Return the answers of a row, or the problem."""
    if len(row) not in WIDTHS:
        return f"has {len(row)} columns, not {WIDTHS[0]} to {WIDTHS[-1]}"
    _, context, answer, start, others = (*row, "", "", "")[: WIDTHS[-1]]
    if not answer.strip():
        return Answer()
    start = start.strip()
    wanted = int(start) if start.isdecimal() else 0
    begin = _nearest(context, answer, wanted)
    if begin < 0:
        return f"has the answer {answer!r:.40}, which does not occur in its context"
    listed = _listed(others)
    if listed is None:
        return f"has the other answers {others!r:.40}, which are not a list of texts in JSON"
    right = "\n".join(text for each in (answer, *listed) if (text := " ".join(each.split())))
    moved = start not in UNTOLD and not (start.isdecimal() and begin == wanted)
    return Answer(begin, begin + len(answer), right, moved)


def _nearest(context: str, answer: str, wanted: int) -> int:
    """Return where the occurrence of the answer begins that is nearest to a position; -1 if there is none."""
    before, behind = context.rfind(answer, 0, wanted + len(answer)), context.find(answer, wanted)
    if before < 0 or behind < 0:
        return max(before, behind)
    return before if wanted - before <= behind - wanted else behind


def _listed(others: str) -> list[str] | None:
    """Return the texts of a JSON list; None if it is not a list of texts."""
    try:
        texts = json.loads(others) if others.strip() else []
    except ValueError:
        return None
    return texts if isinstance(texts, list) and all(isinstance(text, str) for text in texts) else None
