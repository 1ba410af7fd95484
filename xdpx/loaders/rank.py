"""Queries and their candidates, one candidate per line."""

from __future__ import annotations

from typing import ClassVar

from xdpx.loaders.base import Records
from xdpx.loaders.pair import PairLoader
from xdpx.loaders.parsers.base import BadLine, Row, Rows


class RankLoader(PairLoader):
    """Columns: the name of a query, text1 (the query), text2 (a candidate), and how good it is; or without the last.

    Lines of one name are candidates of the same query, wherever they stand in the file.
    """

    before: ClassVar[tuple[str, ...]] = ("query_id",)

    def is_labelled(self, row: Row) -> bool | None:
        """Tell from a file's first row whether the file is labelled; None when it has neither number of columns."""
        return super().is_labelled(row[1:]) if row else None

    def expected(self) -> str:
        """Say which columns a line must have."""
        return "query_id, text1, text2 and a label, or query_id, text1, text2 alone"

    def records(self, rows: Rows, *, labelled: bool) -> Records:
        """Make the records of a block, each with the name of its query."""
        width = 1 + self.num_sections + (self.num_targets if labelled else 0)
        bad = list(rows.bad)
        names: dict[int, str] = {}
        kept: list[Row] = []
        for line, row in zip(rows.lines, rows.rows, strict=True):
            if len(row) == width and row[0].strip():
                names[line] = row[0].strip()
                kept.append(row[1:])
            elif len(row) == width:
                bad.append(BadLine(line, "has no name for its query in the first column"))
            elif row != [""]:
                bad.append(BadLine(line, f"has {len(row)} column{'s' * (len(row) != 1)}, not {width}: {row!r:.60}"))
        found = super().records(Rows(kept, list(names), sorted(bad)), labelled=labelled)
        return found._replace(queries=[names[line] for line in found.lines])
