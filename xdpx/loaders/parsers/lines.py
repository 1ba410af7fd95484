"""The parser `none`: each line is one column. Also the base of formats with one record per line."""

from __future__ import annotations

from collections.abc import Iterator

from xdpx.config.parameters import param
from xdpx.loaders.parsers.base import NUL, BadLine, Block, Parser, Rows, Span
from xdpx.loaders.parsers.encodings import TextParameters
from xdpx.loaders.parsers.files import line_blocks
from xdpx.loaders.parsers.spans import span_of


class LineParser(Parser):
    """Reads each line as one column."""

    class Parameters(TextParameters, Parser.Parameters):
        """Keys of parsers of lines."""

        start_line: int = param(0, doc="Number of lines at the top of a file to skip, e.g. 1 for a header.", ge=0)

    def blocks(self, path: str) -> Iterator[Block]:
        """Yield a file in blocks of whole lines."""
        return line_blocks(path, start_line=self.parameters.start_line, encoding=self.parameters.encoding)

    def span(self, path: str, index: int, count: int) -> Span | None:
        """Return part `index` of `count` of a file, in whole lines; None in subclasses that override `blocks`."""
        return self._span(path, index, count, header=0) if type(self).blocks is LineParser.blocks else None

    def _span(self, path: str, index: int, count: int, *, header: int) -> Span | None:
        skip, encoding = self.parameters.start_line + header, self.parameters.encoding
        return span_of(path, index, count, skip_lines=skip, encoding=encoding)

    def blocks_of(self, path: str, span: Span) -> Iterator[Block]:
        """Yield a part of a file in blocks of whole lines, numbered from the start of the part."""
        start_line = self.parameters.start_line if span.start == 0 else 0
        return line_blocks(path, start_line=start_line, encoding=self.parameters.encoding, part=span)

    def parse(self, block: Block) -> Rows:
        """Return the decoded lines of a block, split into columns."""
        lines, numbers, bad = decode(block)
        return self.rows(lines, numbers, bad)

    def rows(self, lines: list[str], numbers: range | list[int], bad: list[BadLine]) -> Rows:
        """Return lines, with their numbers, split into columns."""
        return Rows([[line] for line in lines], numbers, bad)


Decoded = tuple[list[str], range | list[int], list[BadLine]]


def decode(block: Block) -> Decoded:
    """Return a block decoded as UTF-8: (lines without line ends, their numbers, lines that are not text)."""
    bad = list(block.bad)
    numbers: range | list[int]
    try:
        lines = block.data.decode().split("\n")
        if lines[-1] == "":
            lines.pop()
        numbers = range(block.first_line, block.first_line + len(lines))
    except UnicodeDecodeError:
        lines, numbers, found = _decode_one_by_one(block)
        bad += found
    if b"\r" in block.data:
        lines = [line.removesuffix("\r") for line in lines]
    return (lines, numbers, bad) if b"\0" not in block.data else _without_nul(lines, numbers, bad)


def _without_nul(lines: list[str], numbers: range | list[int], bad: list[BadLine]) -> Decoded:
    pairs = list(zip(numbers, lines, strict=True))
    bad = [*bad, *(BadLine(number, NUL) for number, line in pairs if "\0" in line)]
    good = [(number, line) for number, line in pairs if "\0" not in line]
    return [line for _, line in good], [number for number, _ in good], sorted(bad)


def _decode_one_by_one(block: Block) -> tuple[list[str], list[int], list[BadLine]]:
    raw = block.data.split(b"\n")
    if raw[-1] == b"":
        raw.pop()
    lines, numbers, bad = [], [], []
    for number, data in enumerate(raw, block.first_line):
        try:
            lines.append(data.decode())
            numbers.append(number)
        except UnicodeDecodeError as error:
            bad.append(BadLine(number, f"is not UTF-8 text (byte 0x{data[error.start]:02x} at {error.start + 1})"))
    return lines, numbers, bad
