"""The parser `csv`: columns separated by a delimiter, with or without quotes."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import chain

from xdpx.config.faults import ConfigError, Fault
from xdpx.config.parameters import param
from xdpx.loaders.parsers.base import (
    WITH_QUOTES,
    BadLine,
    Block,
    Row,
    Rows,
    Span,
    gather,
    picked,
    plain_delimiter,
    valid,
    wrong_width,
)
from xdpx.loaders.parsers.files import MAX_LINE_BYTES, line_blocks, skip_lines
from xdpx.loaders.parsers.lines import LineParser
from xdpx.logger import log

AUTO = "auto"
DELIMITERS = {"\t": "'\\t'", ",": "','", ";": "';'", "|": "'|'"}
"""Delimiters that are common in files -> how they are written in a config."""
QUOTED_BY_CUSTOM = frozenset({",", ";"})
"""Delimiters with which all programs put double quotes around cells that contain the delimiter. In files with tabs, a
quote is usually text, such as the quotation marks of a sentence."""


LINES_OF_TITLE = 10
"""Maximum number of lines above the names of the columns that are looked for, such as a title, or Excel's `sep=,`."""


class CSVParser(LineParser):
    """Splits lines at a delimiter, tab by default. With `quotechar`, cells may contain delimiters and line breaks.

    Empty columns are kept, including the first and the last. Without `quotechar`, quotes are ordinary text.

    Source: RFC 4180 for cells in quotes: `""` inside of them is one quote.
    """

    class Parameters(LineParser.Parameters):
        """Keys of the csv parser."""

        delimiter: str = param("\t", doc="Delimiter between columns.")
        quotechar: str | None = param(
            AUTO,
            doc="Character around cells that contain delimiters or line breaks; auto: a double quote if the delimiter "
            "is a comma or a semicolon, else none; null: none, quotes are text.",
        )
        fields: list[str] | None = param(
            None,
            doc="Names of the columns to take, in this order, the label last; the first line after start_line is the "
            "header. null: all columns, and no header.",
        )

        def conflicts(self) -> list[tuple[str, str]]:
            """Return conflicts of the delimiter and the quote character."""
            found = super().conflicts()
            delimiter = plain_delimiter(self.delimiter)
            if not delimiter or "\n" in delimiter:
                found.append(("delimiter", f"is {self.delimiter!r}. Use a character such as ',' or a tab."))
            if self.quotechar is not None and len(self.quotechar) != 1 and self.quotechar != AUTO:
                found.append(("quotechar", f"is {self.quotechar!r}. Use one character, auto, or null for none."))
            elif self.quotechar not in {None, AUTO} and len(delimiter) > 1:
                found.append(("delimiter", f"is {self.delimiter!r}. Use one character when quotechar is set."))
            return found

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self.delimiter = plain_delimiter(parameters.delimiter)
        by_custom = '"' if self.delimiter in QUOTED_BY_CUSTOM else None
        self.quotechar = by_custom if parameters.quotechar == AUTO else parameters.quotechar

    def blocks(self, path: str) -> Iterator[Block]:
        """Yield the blocks of a file; after the first quote, rows can only be found by sequential reading."""
        blocks = super().blocks(path) if self.quotechar is None else self._until_quotes(path, self.quotechar.encode())
        return blocks if self.parameters.fields is None else self._behind_header(blocks, path)

    def span(self, path: str, index: int, count: int) -> Span | None:
        """Return part `index` of `count` of a file; None with `quotechar`, which requires sequential reading."""
        if self.quotechar is not None or type(self).blocks is not CSVParser.blocks:
            return None
        return self._span(path, index, count, header=int(self.parameters.fields is not None))

    def blocks_of(self, path: str, span: Span) -> Iterator[Block]:
        """Yield the blocks of a part of a file, with the columns selected by the header at the top of the file."""
        blocks = super().blocks_of(path, span)
        if self.parameters.fields is None:
            return blocks
        if span.start == 0:
            return self._behind_header(blocks, path)
        head = next(self.blocks(path))
        return (block._replace(picked=head.picked, width=head.width) for block in blocks)

    def parse(self, block: Block) -> Rows:
        """Return the rows of a block."""
        rows = super().parse(block) if block.data else valid(Rows(list(block.rows), block.lines, list(block.bad)))
        return rows if block.picked is None else _take(rows, block.picked, block.width, self.parameters.fields)

    def header(self, path: str) -> Row | None:
        """Return the names of the columns, if the config has them; else None."""
        first = next(self.blocks(path), None) if self.parameters.fields is not None else None
        return None if first is None or first.picked is None else self.parameters.fields[: len(first.picked)]

    def _behind_header(self, blocks: Iterator[Block], path: str) -> Iterator[Block]:
        """Take the header from the first line, and add the positions of the selected columns to each block."""
        positions: tuple[int, ...] | None = None
        width = 0
        for block in blocks:
            if positions is None:
                line, block = self._without_first(block)
                if line.bad:  # the reader of this block names the likely encoding, unless it skips bad lines
                    yield Block(line.bad[0].line, bad=tuple(line.bad))
                    problem = f"name columns, but the header {line.bad[0].problem}."
                    raise ConfigError(path, [Fault("fields", problem, "Set encoding, or fix the first line.")])
                head = [name.strip() for name in line.rows[0]] if line.rows else []
                self._refuse_uncut(head, path)
                self._refuse_title(head, block, path)
                positions = tuple(picked(head, self.parameters.fields, path))
                width = len(head)
            yield block._replace(picked=positions, width=width)

    def _refuse_uncut(self, head: Row, path: str) -> None:
        """Raise if the first line is one cell, from which another delimiter cuts the column that is wanted first."""
        wanted = (self.parameters.fields or [""])[0]
        for other, shown in DELIMITERS.items() if len(head) == 1 else ():
            names = [name.strip(' "') for name in head[0].split(other)]
            if len(names) > 1 and wanted in names:
                problem = (
                    f"splits the first line into only one column, {head[0]!r:.80}; {shown} splits it into columns."
                )
                raise ConfigError(path, [Fault("delimiter", problem, f"Set delimiter: {shown}.")])

    def _refuse_title(self, head: Row, block: Block, path: str) -> None:
        """Raise if the names of the columns are not in the first line, but in one of the next."""
        wanted = set(self.parameters.fields or ())
        rows = self.parse(block) if wanted.isdisjoint(head) else Rows([], [], [])
        for line, row in zip(rows.lines[:LINES_OF_TITLE], rows.rows[:LINES_OF_TITLE], strict=True):
            if wanted <= {name.strip() for name in row}:
                problem, remedy = f"are not in the first line, but in line {line}.", f"Set start_line: {line - 1}."
                raise ConfigError(path, [Fault("fields", problem, remedy)])

    def _without_first(self, block: Block) -> tuple[Rows, Block]:
        """Return (the first line, the rest of the block)."""
        if not block.data:
            first = valid(Rows(list(block.rows[:1]), block.lines[:1], []))
            return first, block._replace(rows=block.rows[1:], lines=block.lines[1:])
        line, _, rest = block.data.partition(b"\n")
        head = self.parse(Block(block.first_line, line))
        return head, block._replace(first_line=block.first_line + 1, data=rest)

    def rows(self, lines: list[str], numbers: range | list[int], bad: list[BadLine]) -> Rows:
        """Return lines split at the delimiter, or by the rules of quotes if they contain any.

        The latter happens only for lines that do not come from a file, such as typed ones.
        """
        if self.quotechar is None or not any(self.quotechar in line for line in lines):
            delimiter = self.delimiter
            return Rows([line.split(delimiter) for line in lines], numbers, bad)
        try:
            return Rows([row or [""] for row in self._reader(iter(lines))], numbers, bad)
        except csv.Error as error:
            return Rows([], [], [*bad, BadLine(numbers[0], self._not_quoted(error))])

    def remedy(self, problem: str) -> str:
        """Return what to do about a row that cannot be used, for messages."""
        if WITH_QUOTES not in problem:
            return super().remedy(problem)
        if self.quotechar is None:
            return f"If quotes wrap cells, set quotechar: '\"'. Else: {super().remedy(problem)}"
        return f"A quoted cell begins right after the delimiter. {super().remedy(problem)}"

    def _until_quotes(self, path: str, quote: bytes) -> Iterator[Block]:
        """Yield blocks of lines for workers to split, up to the first block with a quote; then blocks of rows."""
        blocks, start = line_blocks(path, encoding=self.parameters.encoding), self.parameters.start_line
        for block in blocks:
            if quote in block.data:
                self._tell(path)
                rows_to_skip = max(start - block.first_line + 1, 0)
                yield from gather(self._quoted_rows(chain([block], blocks), block.first_line, rows_to_skip))
                return
            yield from skip_lines([block], start)

    def _tell(self, path: str) -> None:
        if self.parameters.quotechar == AUTO:
            log.info(
                f"{path}: quotes are read as wrapping cells, as in any csv; if they are text, set quotechar: null",
                once=True,
            )

    def _quoted_rows(self, blocks: Iterator[Block], first_line: int, skip: int) -> Iterator[tuple[int, Row | BadLine]]:
        lines = _Lines(blocks, first_line)
        numbered = self._numbered_rows(lines)
        for _ in range(skip):
            next(numbered, None)
        for number, row in numbered:
            yield from ((bad.line, bad) for bad in lines.take_bad())
            yield number, row
        yield from ((bad.line, bad) for bad in lines.take_bad())

    def _numbered_rows(self, lines: _Lines) -> Iterator[tuple[int, Row | BadLine]]:
        reader = self._reader(lines)
        while True:
            start = lines.number + 1
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield start, BadLine(start, self._not_quoted(error))
            else:
                yield start, row or [""]

    def _reader(self, lines: Iterator[str]) -> Iterator[Row]:
        csv.field_size_limit(MAX_LINE_BYTES)
        return csv.reader(lines, delimiter=self.delimiter, quotechar=self.quotechar, strict=True)

    def _not_quoted(self, error: csv.Error) -> str:
        hint = "; if quotes are text, set quotechar: null" if self.parameters.quotechar == AUTO else ""
        return f"is not quoted csv ({error}); is a quote unclosed?{hint}"


class _Lines(Iterator[str]):
    """Counted lines of a file with their newlines. Bytes that are not UTF-8 are kept as lone surrogates."""

    def __init__(self, blocks: Iterator[Block], first_line: int) -> None:
        self.number = first_line - 1
        self._bad: list[BadLine] = []
        self._lines = self._read(blocks)

    def __next__(self) -> str:
        return next(self._lines)

    def take_bad(self) -> list[BadLine]:
        """Return the lines that could not be read since the last call."""
        taken, self._bad = self._bad, []
        return taken

    def _read(self, blocks: Iterator[Block]) -> Iterator[str]:
        for block in blocks:
            self._bad += block.bad
            self.number += len(block.bad)
            lines = block.data.decode("utf-8", "surrogateescape").split("\n")
            last = lines.pop()
            for line in lines:
                self.number += 1
                yield line + "\n"
            if last:
                self.number += 1
                yield last


def _take(rows: Rows, positions: tuple[int, ...], width: int, names: Row) -> Rows:
    """Return the selected columns; rows with another number of columns than the header, or its names, are bad."""
    good: list[Row] = []
    lines: list[int] = []
    bad = list(rows.bad)
    for line, row in zip(rows.lines, rows.rows, strict=True):
        if len(row) == width:
            cells = [row[index] for index in positions]
            first = cells[0].lstrip("\ufeff").strip()  # each of the joined files may begin with a byte order mark
            if (
                first == names[0]
                and [first, *(cell.strip() for cell in cells[1:])] == names[: len(cells)]
                and cells[1:]
            ):
                bad.append(BadLine(line, "repeats the header, as after joining files"))
                continue
            good.append(cells)
            lines.append(line)
        elif row != [""]:
            allowed = f"{'fewer' if len(row) < width else 'more'} than the header ({width})"
            bad.append(BadLine(line, wrong_width(row, allowed)))
    return Rows(good, lines, sorted(bad))
