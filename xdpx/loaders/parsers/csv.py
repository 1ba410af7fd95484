"""Columns between delimiters, with or without quotes."""

from __future__ import annotations

import csv
from collections.abc import Iterator

from xdpx.config.parameters import param
from xdpx.loaders.parsers.base import BadLine, Block, Row, Rows, gather, valid
from xdpx.loaders.parsers.files import MAX_LINE_BYTES, line_blocks
from xdpx.loaders.parsers.lines import LineParser
from xdpx.loaders.parsers.picking import picked


class CSVParser(LineParser):
    """Cut lines at a delimiter, tab by default. With `quotechar`, cells may hold delimiters and line breaks.

    Empty columns are kept, also the first and the last. Without `quotechar` quotes are text like any other.
    """

    class Parameters(LineParser.Parameters):
        """What the csv parser can be told."""

        delimiter: str = param("\t", doc="What stands between columns.")
        quotechar: str | None = param(
            None, doc="Character around cells that hold delimiters or line breaks; null: none."
        )
        fields: list[str] | None = param(
            None,
            doc="Names of the columns to take, in this order, the label last: the first line, behind start_line, is "
            "the header. null: all columns, and no header.",
        )

        def conflicts(self) -> list[tuple[str, str]]:
            """Refuse delimiters and quotes that cannot work."""
            found = []
            delimiter = _plain(self.delimiter)
            if not delimiter or "\n" in delimiter:
                found.append(("delimiter", f"is {self.delimiter!r}. Use a character such as ',' or a tab."))
            if self.quotechar is not None and len(self.quotechar) != 1:
                found.append(("quotechar", f"is {self.quotechar!r}. Use one character, or null for none."))
            elif self.quotechar is not None and len(delimiter) > 1:
                found.append(("delimiter", f"is {self.delimiter!r}. Use one character when quotechar is set."))
            return found

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self.delimiter = _plain(parameters.delimiter)

    def blocks(self, path: str) -> Iterator[Block]:
        """Cut a file into blocks. Where cells may hold line breaks, only reading from the front finds the rows."""
        blocks = super().blocks(path) if self.parameters.quotechar is None else gather(self._quoted_rows(path))
        return blocks if self.parameters.fields is None else self._behind_header(blocks, path)

    def parse(self, block: Block) -> Rows:
        """Cut the lines of a block into columns."""
        quoted = self.parameters.quotechar is not None
        rows = valid(Rows(list(block.rows), block.lines, list(block.bad))) if quoted else super().parse(block)
        return rows if block.picked is None else _take(rows, block.picked)

    def header(self, path: str) -> Row | None:
        """Give the names of the columns, where the config names them."""
        first = next(self.blocks(path), None) if self.parameters.fields is not None else None
        return None if first is None or first.picked is None else self.parameters.fields[: len(first.picked)]

    def _behind_header(self, blocks: Iterator[Block], path: str) -> Iterator[Block]:
        """Read the header off the first line, and tell each block which columns are wanted."""
        positions: tuple[int, ...] | None = None
        for block in blocks:
            if positions is None:
                head, block = self._without_first(block)
                positions = tuple(picked([name.strip() for name in head], self.parameters.fields, path))
            yield block._replace(picked=positions)

    def _without_first(self, block: Block) -> tuple[Row, Block]:
        """Take the first line off a block. Returns (its columns, the rest)."""
        if self.parameters.quotechar is not None:
            first = block.rows[0] if block.rows else []
            return first, block._replace(rows=block.rows[1:], lines=block.lines[1:])
        line, _, rest = block.data.partition(b"\n")
        head = self.parse(Block(block.first_line, line)).rows
        return head[0] if head else [], block._replace(first_line=block.first_line + 1, data=rest)

    def rows(self, lines: list[str], numbers: range | list[int], bad: list[BadLine]) -> Rows:
        """Cut lines into columns at the delimiter, or typed lines by the rules of quotes."""
        if self.parameters.quotechar is None:
            delimiter = self.delimiter
            return Rows([line.split(delimiter) for line in lines], numbers, bad)
        try:
            return Rows(list(self._reader(iter(lines))), numbers, bad)
        except csv.Error as error:
            return Rows([], [], [*bad, BadLine(numbers[0], f"is no quoted csv ({error})")])

    def _quoted_rows(self, path: str) -> Iterator[tuple[int, Row | BadLine]]:
        lines = _Lines(line_blocks(path))
        numbered = self._numbered_rows(lines)
        for _ in range(self.parameters.start_line):
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
                yield start, BadLine(start, f"is no quoted csv ({error}); is a quote left open?")
            else:
                yield start, row or [""]

    def _reader(self, lines: Iterator[str]) -> Iterator[Row]:
        csv.field_size_limit(MAX_LINE_BYTES)
        return csv.reader(lines, delimiter=self.delimiter, quotechar=self.parameters.quotechar, strict=True)


class _Lines(Iterator[str]):
    """Lines of a file with their ends, counted. Bytes that are no UTF-8 are kept as lone surrogates."""

    def __init__(self, blocks: Iterator[Block]) -> None:
        self.number = 0
        self._bad: list[BadLine] = []
        self._lines = self._read(blocks)

    def __next__(self) -> str:
        return next(self._lines)

    def take_bad(self) -> list[BadLine]:
        """Give, once, the lines that could not be read at all."""
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


def _take(rows: Rows, positions: tuple[int, ...]) -> Rows:
    """Take the wanted columns; a row that does not reach to the last of them is bad."""
    needed = max(positions) + 1
    good: list[Row] = []
    lines: list[int] = []
    bad = list(rows.bad)
    for line, row in zip(rows.lines, rows.rows, strict=True):
        if len(row) >= needed:
            good.append([row[index] for index in positions])
            lines.append(line)
        elif row != [""]:
            bad.append(BadLine(line, f"has {len(row)} column{'s' * (len(row) != 1)}, fewer than the header"))
    return Rows(good, lines, sorted(bad))


def _plain(delimiter: str) -> str:
    r"""Read the two characters `\t`, which hjson leaves alone in bare text, as a tab."""
    return delimiter.replace("\\t", "\t")
