"""The loader `qa`: questions, and the spans of text that answer them."""

from __future__ import annotations

import json
from typing import ClassVar, NamedTuple

from xdpx.loaders.base import Loader, Records
from xdpx.loaders.parsers.base import BadLine, Row, Rows

WIDTHS = (2, 3, 4, 5)


class AnsweredQuestion(NamedTuple):
    """A question, its context split at both ends of the answer, and the other correct answers, one per line."""

    question: str
    before: str
    answer: str
    after: str
    others: str


class QALoader(Loader):
    """Columns: question, context, answer, its start in the context in characters, and other correct answers.

    The last column is a JSON list; only the first 2, 3 or 4 columns are allowed, too. Without a start, the first
    occurrence of the answer is used. An empty answer means that the context has none. The context is split at both ends
    of the answer, so that no token crosses them. The other answers are for scoring, and need not occur in the context.
    """

    text_fields: ClassVar[tuple[str, ...]] = AnsweredQuestion._fields
    listed_fields: ClassVar[tuple[str, ...]] = ("others",)
    num_targets: ClassVar[int] = 0
    between: ClassVar[tuple[str, ...]] = ("answer", "start", "others")

    class Parameters(Loader.Parameters):
        """Keys of the qa loader."""

    @property
    def num_sections(self) -> int:
        """Number of columns of a line without an answer."""
        return WIDTHS[0]

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of the columns of a line without an answer."""
        return ("question", "context")

    def is_labelled(self, row: Row) -> bool | None:
        """Return False if the number of columns is valid, else None. Answers are texts, so no file is labelled."""
        return False if len(row) in WIDTHS else None

    def expected(self) -> str:
        """Return a description of the columns of a line, for messages."""
        return "question, context, and perhaps answer, its beginning, and other answers"

    def records(self, rows: Rows, *, labelled: bool) -> Records:
        """Return the records of a block; a row whose answer does not occur in its context is bad."""
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
    """Return the texts of a question, or the problem."""
    if len(row) not in WIDTHS:
        return f"has {len(row)} columns, not {WIDTHS[0]} to {WIDTHS[-1]}"
    question, context, answer, start, others = (*row, "", "", "")[: WIDTHS[-1]]
    if not answer:
        return AnsweredQuestion(question, context, "", "", "")
    begin = int(start) if start.strip().isdecimal() else -1
    if begin < 0 or context[begin : begin + len(answer)] != answer:
        begin = context.find(answer)
    if begin < 0:
        return f"has the answer {answer!r:.40}, which does not occur in its context"
    listed = _listed(others)
    if listed is None:
        return f"has the other answers {others!r:.40}, which are not a list of texts in JSON"
    return AnsweredQuestion(question, context[:begin], answer, context[begin + len(answer) :], listed)


def _listed(others: str) -> str | None:
    """Return the texts of a JSON list, one per line; None if it is not a list of texts."""
    try:
        texts = json.loads(others) if others.strip() else []
    except ValueError:
        return None
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        return None
    return "\n".join(" ".join(text.split()) for text in texts)
