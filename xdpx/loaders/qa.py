"""Questions, and the stretches of text that answer them."""

from __future__ import annotations

import json
from typing import ClassVar, NamedTuple

from xdpx.loaders.base import Loader, Records
from xdpx.loaders.parsers.base import BadLine, Row, Rows

WIDTHS = (2, 3, 4, 5)


class AnsweredQuestion(NamedTuple):
    """A question, its context cut at both ends of the answer, and the other answers that are right, one per line."""

    question: str
    before: str
    answer: str
    after: str
    others: str


class QALoader(Loader):
    """Columns: question, context, answer, where it begins in the context, in characters, and other right answers.

    The last are a list in JSON; the first 2, 3 or 4 columns will do. Without its beginning an answer is where it stands
    first. An empty one means that the context has none. The text is cut at both ends of the answer, so that tokens
    never stretch over them. The other answers are for scoring: they need not stand in the context.
    """

    text_fields: ClassVar[tuple[str, ...]] = AnsweredQuestion._fields
    listed_fields: ClassVar[tuple[str, ...]] = ("others",)
    num_targets: ClassVar[int] = 0

    class Parameters(Loader.Parameters):
        """What every loader can be told."""

    @property
    def num_sections(self) -> int:
        """How many columns a line has that asks only."""
        return WIDTHS[0]

    def is_labelled(self, row: Row) -> bool | None:
        """Tell whether a row fits: an answer is no label but text, so none is labelled."""
        return False if len(row) in WIDTHS else None

    def expected(self) -> str:
        """Return in words which columns a line must have."""
        return "question, context, and perhaps answer, its beginning, and other answers"

    def records(self, rows: Rows, *, labelled: bool) -> Records:
        """Make the records of a block; an answer that does not stand in its context makes a bad one."""
        del labelled
        columns: list[AnsweredQuestion] = []
        lines: list[int] = []
        bad = list(rows.bad)
        for line, row in zip(rows.lines, rows.rows, strict=True):
            parts = _parts(row)
            if isinstance(parts, str):
                bad.append(BadLine(line, parts))
            else:
                columns.append(parts)
                lines.append(line)
        names = zip(
            self.text_fields, list(zip(*columns, strict=True)) or [()] * len(AnsweredQuestion._fields), strict=True
        )
        return Records({name: list(texts) for name, texts in names}, None, lines, sorted(bad))


def _parts(row: Row) -> AnsweredQuestion | str:
    """Return the texts of a question, or what is wrong."""
    if len(row) not in WIDTHS:
        return f"has {len(row)} columns, not {WIDTHS[0]} to {WIDTHS[-1]}"
    question, context, answer, start, others = (*row, "", "", "")[: WIDTHS[-1]]
    if not answer:
        return AnsweredQuestion(question, context, "", "", "")
    begin = int(start) if start.strip().isdigit() else -1
    if begin < 0 or context[begin : begin + len(answer)] != answer:
        begin = context.find(answer)
    if begin < 0:
        return f"has the answer {answer!r:.40}, which does not stand in its context"
    listed = _listed(others)
    if listed is None:
        return f"has the other answers {others!r:.40}, which are no list of texts in JSON"
    return AnsweredQuestion(question, context[:begin], answer, context[begin + len(answer) :], listed)


def _listed(others: str) -> str | None:
    """Return the texts of a list in JSON, one per line; None where it is something else."""
    try:
        texts = json.loads(others) if others.strip() else []
    except ValueError:
        return None
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        return None
    return "\n".join(" ".join(text.split()) for text in texts)
