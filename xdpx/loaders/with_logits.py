"""Texts with what another model, the teacher, thinks of them: the files that `x-pred` writes with `distill: true`."""

from __future__ import annotations

import json
import math
from typing import Any, ClassVar

from xdpx.loaders.base import Loader, Records
from xdpx.loaders.pair import PairLoader
from xdpx.loaders.parsers.base import BadLine, Row, Rows


class WithLogits(Loader):
    """Columns: those of the texts, the teacher's logits as a list, and a label; logits and label may be missing."""

    between: ClassVar[tuple[str, ...]] = ("logits",)

    def is_labelled(self, row: Row) -> bool | None:
        """Tell from a file's first row whether the file is labelled; a list behind the texts is the logits."""
        return super().is_labelled(self._without_logits(row)[0])

    def expected(self) -> str:
        """Say which columns a line must have."""
        return f"{super().expected()}, and before the label perhaps logits such as [0.5, -1.2]"

    def records(self, rows: Rows, *, labelled: bool) -> Records:
        """Make the records of a block, each with its logits; an empty list where a line has none."""
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
        """Give (the columns without the logits, the logits as text); None where there are none."""
        place = self.num_sections
        if len(row) <= place or not row[place].lstrip().startswith("["):
            return row, None
        return [*row[:place], *row[place + 1 :]], row[place]


class SingleWithLogitsLoader(WithLogits):
    """Columns: text, the teacher's logits as a list, label; logits and label may be missing."""


class PairWithLogitsLoader(WithLogits, PairLoader):
    """Columns: text1, text2, the teacher's logits as a list, label; logits and label may be missing."""


def numbers_of(cell: str) -> list[float]:
    """Read a list of numbers.

    Raises:
        ValueError: it is none; the text says what it is.
    """
    try:
        found: Any = json.loads(cell)
    except ValueError:
        found = None
    if not isinstance(found, list) or not found or not all(_is_finite(number) for number in found):
        shown = cell if len(cell) <= 40 else f"{cell[:37]}..."
        raise ValueError(f"has logits that are no list of finite numbers: {shown}")
    return [float(number) for number in found]


def _is_finite(number: Any) -> bool:
    return isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number)
