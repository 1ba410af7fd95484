"""Columns between delimiters, with or without quotes."""

from __future__ import annotations

import csv
from collections.abc import Iterator

from xdpx.config.parameters import param
from xdpx.loaders.parsers.base import BadLine, Block, Row, Rows, gather, valid
from xdpx.loaders.parsers.files import MAX_LINE_BYTES, line_blocks
from xdpx.loaders.parsers.lines import LineParser


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
        if self.parameters.quotechar is None:
            return super().blocks(path)
        return gather(self._quoted_rows(path))

    def parse(self, block: Block) -> Rows:
        """Cut the lines of a block into columns."""
        if self.parameters.quotechar is None:
            return super().parse(block)
        return valid(Rows(list(block.rows), block.lines, list(block.bad)))

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


def _plain(delimiter: str) -> str:
    r"""Read the two characters `\t`, which hjson leaves alone in bare text, as a tab."""
    return delimiter.replace("\\t", "\t")
