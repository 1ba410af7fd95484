"""Questions, and the stretches of text that answer them."""

from __future__ import annotations

from typing import ClassVar

from xdpx.loaders.base import Loader, Records
from xdpx.loaders.parsers.base import BadLine, Row, Rows

WIDTHS = (2, 3, 4)


class QALoader(Loader):
    """Columns: question, context, answer, and where it begins in the context, in characters; or the first 2 or 3.

    Without its beginning an answer is where it stands first. An empty one means that the context has none. The text
    is cut at both ends of the answer, so that tokens never stretch over them.
    """

    text_fields: ClassVar[tuple[str, ...]] = ("question", "before", "answer", "after")
    num_targets: ClassVar[int] = 0

    class Parameters(Loader.Parameters):
        """What every loader can be told."""

    @property
    def num_sections(self) -> int:
        """How many columns a line has that asks only."""
        return WIDTHS[0]

    def is_labelled(self, row: Row) -> bool | None:
        """An answer is no label: it is text."""
        return False if len(row) in WIDTHS else None

    def expected(self) -> str:
        """Say which columns a line must have."""
        return "question, context, and perhaps answer and its beginning"

    def records(self, rows: Rows, *, labelled: bool) -> Records:
        """Make the records of a block; an answer that does not stand in its context makes a bad one."""
        del labelled
        columns: list[tuple[str, str, str, str]] = []
        lines: list[int] = []
        bad = list(rows.bad)
        for line, row in zip(rows.lines, rows.rows, strict=True):
            parts = _parts(row)
            if isinstance(parts, str):
                bad.append(BadLine(line, parts))
            else:
                columns.append(parts)
                lines.append(line)
        names = zip(self.text_fields, list(zip(*columns, strict=True)) or [()] * 4, strict=True)
        return Records({name: list(texts) for name, texts in names}, None, lines, sorted(bad))


def _parts(row: Row) -> tuple[str, str, str, str] | str:
    """Give question, text before the answer, answer, text behind it; or what is wrong."""
    if len(row) not in WIDTHS:
        return f"has {len(row)} columns, not {WIDTHS[0]} to {WIDTHS[-1]}"
    question, context, answer, start = (*row, "", "")[:4]
    if not answer:
        return question, context, "", ""
    begin = int(start) if start.strip().isdigit() else -1
    if begin < 0 or context[begin : begin + len(answer)] != answer:
        begin = context.find(answer)
    if begin < 0:
        return f"has the answer {answer!r:.40}, which does not stand in its context"
    return question, context[:begin], answer, context[begin + len(answer) :]
