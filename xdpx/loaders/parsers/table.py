"""Rows of a table in a database."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from xdpx.config.faults import ConfigError, Fault
from xdpx.config.parameters import param
from xdpx.loaders.parsers.base import BadLine, Row, RowParser
from xdpx.loaders.parsers.json import cell
from xdpx.loaders.parsers.picking import picked
from xdpx.loaders.tables import open_tables, place_of


class TableParser(RowParser):
    """Read a table or view: data_source is a database (sqlite://, postgresql://, odps://), data_files its tables."""

    class Parameters(RowParser.Parameters):
        """What the parser of tables can be told."""

        fields: list[str] | None = param(
            None, doc="Names of the columns to take, in this order, the label last; null takes all."
        )
        order_by: list[str] = param(
            [], doc="Columns to sort rows by, so that they always come alike; none: as the database gives them."
        )

    def read(self, path: str) -> Iterator[tuple[int, Row | BadLine]]:
        """Yield the chosen cells of each row."""
        place = place_of(path)
        tables = open_tables(place.source)
        there = tables.columns(place.table)
        names = [there[index] for index in picked(there, self.parameters.fields, path)]
        self._check_order(there, path)
        for number, values in enumerate(tables.rows(place.table, names, self.parameters.order_by), 1):
            row = [_text(value) for value in values]
            whole = [text for text in row if text is not None]
            if len(whole) == len(row):
                yield number, whole
            else:
                yield number, _bad(number, names, list(values), row.index(None))

    def _check_order(self, there: list[str], path: str) -> None:
        missing = [name for name in self.parameters.order_by if name not in there]
        if missing:
            problem, remedy = f"there is no column '{missing[0]}'.", f"Choose among: {', '.join(there)}."
            raise ConfigError(path, [Fault("order_by", problem, remedy)])

    def header(self, path: str) -> Row | None:
        """Give the names of the columns."""
        place = place_of(path)
        there = open_tables(place.source).columns(place.table)
        return [there[index] for index in picked(there, self.parameters.fields, path)]


def _text(value: Any) -> str | None:
    return str(value) if isinstance(value, Decimal | date | datetime | time) else cell(value)


def _bad(number: int, names: list[str], values: list[Any], index: int) -> BadLine:
    found = "null" if values[index] is None else f"a {type(values[index]).__name__}"
    return BadLine(number, f"column '{names[index]}' is {found}, not text")
