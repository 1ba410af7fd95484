"""Loaders of one, two or three texts with a label, some also with words, queries or a teacher's logits."""

from __future__ import annotations

import json
import math
from typing import Any, ClassVar

from xdpx.config.faults import shortened
from xdpx.config.parameters import param
from xdpx.loaders.base import Loader, Records
from xdpx.loaders.parsers.base import BadLine, Row, Rows, wrong_width


class SingleLoader(Loader):
    """Columns: text, label; or only the text."""


class PairLoader(Loader):
    """Columns: text1, text2, label; or only the texts."""

    text_fields: ClassVar[tuple[str, ...]] = ("text1", "text2")


class TripletLoader(Loader):
    """Columns: a text, one with the same meaning, one with another meaning, and optionally a label."""

    text_fields: ClassVar[tuple[str, ...]] = ("text1", "text2", "text3")


class DPRLoader(Loader):
    """Columns: a question, the passage that answers it, and optionally a label."""

    text_fields: ClassVar[tuple[str, ...]] = ("question", "passage")


class RankLoader(PairLoader):
    """Columns: the name of a query, text1 (the query), text2 (a candidate), and optionally its relevance.

    Lines with the same name are candidates of one query, wherever they are in the file.
    """

    before: ClassVar[tuple[str, ...]] = ("query_id",)

    def is_labelled(self, row: Row) -> bool | None:
        """Return whether a file is labelled, judged by its first row; None if the number of columns fits neither."""
        return super().is_labelled(row[1:]) if row else None

    def expected(self) -> str:
        """Return a description of the columns of a line, for messages."""
        return "query_id, text1, text2 and a label, or query_id, text1, text2 alone"

    def records(self, rows: Rows, *, labelled: bool) -> Records:
        """Return the records of a block, each with the name of its query."""
        width = 1 + self.num_sections + (self.num_targets if labelled else 0)
        bad = list(rows.bad)
        names: dict[int, str] = {}
        kept: list[Row] = []
        for line, row in zip(rows.lines, rows.rows, strict=True):
            if len(row) == width and row[0].strip():
                names[line] = row[0].strip()
                kept.append(row[1:])
            elif len(row) == width:
                bad.append(BadLine(line, "has no query name in the first column"))
            elif row != [""]:
                bad.append(BadLine(line, wrong_width(row, f"not {width}")))
        found = super().records(Rows(kept, list(names), sorted(bad)), labelled=labelled)
        return found._replace(queries=[names[line] for line in found.lines])


class MixLoader(Loader):
    """Base of loaders of segmented texts: the first token of each word is marked, and no word is lost."""

    marks_words: ClassVar[bool] = True
    keeps_words: ClassVar[bool] = True

    class Parameters(Loader.Parameters):
        """Keys of the loaders of segmented texts."""

        with_words: bool = param(False, doc="Add the words, as ids of word_vocab.txt, to the word pieces.")

    @property
    def gives_words(self) -> bool:
        """Whether samples also contain the words themselves."""
        return bool(self.parameters.with_words)


class SingleMixLoader(MixLoader):
    """Columns: text, label; words of the text are separated by spaces. The label may be missing."""


class PairMixLoader(MixLoader, PairLoader):
    """Columns: text1, text2, label; words of the texts are separated by spaces. The label may be missing."""


class WithLogits(Loader):
    """Columns: those of the texts, the teacher's logits as a list, and a label; logits and label may be missing."""

    between: ClassVar[tuple[str, ...]] = ("logits",)

    def is_labelled(self, row: Row) -> bool | None:
        """Return whether a file is labelled, judged by its first row; a list after the texts is the logits."""
        return super().is_labelled(self._without_logits(row)[0])

    def expected(self) -> str:
        """Return a description of the columns of a line, for messages."""
        return f"{super().expected()}, and before the label perhaps logits such as [0.5, -1.2]"

    def records(self, rows: Rows, *, labelled: bool) -> Records:
        """Return the records of a block, each with its logits, or an empty list if a line has none."""
        kept: list[tuple[int, Row]] = []
        logits: dict[int, list[float]] = {}
        bad = list(rows.bad)
        for line, row in zip(rows.lines, rows.rows, strict=True):
            plain, cell = self._without_logits(row)
            try:
                logits[line] = [] if cell is None else numbers_of(cell)
                kept.append((line, plain))
            except ValueError as error:
                bad.append(BadLine(line, str(error)))
        lines, texts = [line for line, _ in kept], [row for _, row in kept]
        found = super().records(Rows(texts, lines, sorted(bad)), labelled=labelled)
        return found._replace(logits=[logits[line] for line in found.lines])

    def _without_logits(self, row: Row) -> tuple[Row, str | None]:
        """Return (the columns without logits, the logits as text, or None if there are none)."""
        place = self.num_sections
        if len(row) <= place or not row[place].lstrip().startswith("["):
            return row, None
        return [*row[:place], *row[place + 1 :]], row[place]


class SingleWithLogitsLoader(WithLogits):
    """Columns: text, the teacher's logits as a list, label; logits and label may be missing."""


class PairWithLogitsLoader(WithLogits, PairLoader):
    """Columns: text1, text2, the teacher's logits as a list, label; logits and label may be missing."""


def numbers_of(cell: str) -> list[float]:
    """Return the numbers of a cell with a JSON list.

    Raises:
        ValueError: the cell is not a non-empty list of finite numbers.
    """
    try:
        found: Any = json.loads(cell)
    except ValueError:
        found = None
    if not isinstance(found, list) or not found or not all(_is_finite(number) for number in found):
        raise ValueError(f"has logits that are not a list of finite numbers: {shortened(cell, 40)}")
    return [float(number) for number in found]


def _is_finite(number: object) -> bool:
    return isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number)
