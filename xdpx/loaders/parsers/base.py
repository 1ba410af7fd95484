"""What every parser does: cut a file into blocks of work, and a block into rows of text columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

from xdpx.config.faults import THIS_RUN, ConfigError, Fault
from xdpx.config.parameters import Parameters as BaseParameters

Row = list[str]

NUL = "holds a NUL character"

BLOCK_ROWS = 4096
BLOCK_CHARACTERS = 1 << 20


class BadLine(NamedTuple):
    """A line that cannot be used: its 1-based number in the file, and what was found."""

    line: int
    problem: str


class Block(NamedTuple):
    """Some consecutive lines or rows of a file: what one worker takes at a time.

    Attributes:
        first_line: 1-based number of its first line.
        data: the lines as they stand in the file, for parsers that work on lines.
        rows: the rows, for formats that only a sequential reader can cut.
        lines: 1-based number of the line where each of `rows` begins.
        bad: lines that could not even be cut out.
        picked: positions of the columns that are wanted, by the header of the file; None for all.
    """

    first_line: int
    data: bytes = b""
    rows: Sequence[Row] = ()
    lines: Sequence[int] = ()
    bad: tuple[BadLine, ...] = ()
    picked: tuple[int, ...] | None = None


class Rows(NamedTuple):
    """Rows of a block, the 1-based line where each begins, and the lines that gave none."""

    rows: list[Row]
    lines: Sequence[int]
    bad: list[BadLine]


class Parser(ABC):
    """Read one file format.

    Attributes:
        unit: what a position in the file counts, for messages: "line", "row" or "record".
    """

    unit: ClassVar[str] = "line"

    class Parameters(BaseParameters):
        """What a parser can be told."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters: Any = parameters

    @abstractmethod
    def blocks(self, path: str) -> Iterator[Block]:
        """Cut a file into blocks, reading it once from front to back in bounded memory. Runs in the main process."""

    @abstractmethod
    def parse(self, block: Block) -> Rows:
        """Cut a block into rows. Runs in a worker."""

    def header(self, path: str) -> Row | None:
        """Give the names of the columns, when the file or the config names them."""
        del path
        return None


class RowParser(Parser):
    """A format whose rows only a sequential reader can cut: the main process reads, workers do the rest."""

    unit: ClassVar[str] = "row"

    @abstractmethod
    def read(self, path: str) -> Iterator[tuple[int, Row | BadLine]]:
        """Yield the number of each row and the row itself, or what is wrong with it."""

    def blocks(self, path: str) -> Iterator[Block]:
        """Gather rows into blocks."""
        return gather(self.read(path))

    def parse(self, block: Block) -> Rows:
        """Take the rows as they are; a row that is no valid Unicode is bad."""
        return valid(Rows(list(block.rows), block.lines, list(block.bad)))


def gather(numbered: Iterable[tuple[int, Row | BadLine]]) -> Iterator[Block]:
    """Gather numbered rows into blocks of at most BLOCK_ROWS rows or about BLOCK_CHARACTERS characters."""
    rows: list[Row] = []
    lines: list[int] = []
    bad: list[BadLine] = []
    characters = 0
    for line, row in numbered:
        if isinstance(row, BadLine):
            bad.append(row)
        else:
            rows.append(row)
            lines.append(line)
            characters += sum(map(len, row))
        if len(rows) + len(bad) >= BLOCK_ROWS or characters >= BLOCK_CHARACTERS:
            yield Block(line, rows=rows, lines=lines, bad=tuple(bad))
            rows, lines, bad, characters = [], [], [], 0
    if rows or bad:
        yield Block(lines[0] if lines else bad[0].line, rows=rows, lines=lines, bad=tuple(bad))


def valid(rows: Rows) -> Rows:
    """Sort out rows that hold NUL or half of a surrogate pair: they are no text, but a sign of a damaged file."""
    joined = "".join(map("".join, rows.rows))
    if not _not_text(joined):
        return rows
    good: list[Row] = []
    lines: list[int] = []
    bad = list(rows.bad)
    for line, row in zip(rows.lines, rows.rows, strict=True):
        problem = _not_text("".join(row))
        if problem:
            bad.append(BadLine(line, problem))
        else:
            good.append(row)
            lines.append(line)
    return Rows(good, lines, sorted(bad))


def _not_text(text: str) -> str:
    if "\0" in text:
        return NUL
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = ord(error.object[error.start])
        if 0xDC80 <= code <= 0xDCFF:  # what `surrogateescape` makes of a byte that is no UTF-8
            return f"is not UTF-8 text (byte 0x{code - 0xDC00:02x})"
        return f"holds half of a surrogate pair (U+{code:04X})"
    return ""


def missing_extra(parser: str, package: str, error: ImportError) -> ConfigError:
    """Say in one sentence which extra reads this format."""
    fault = Fault("parser", f"'{parser}' needs the package {package}.", "Install it: pip install 'xdpx[data]'.")
    refusal = ConfigError(THIS_RUN, [fault])
    refusal.__cause__ = error
    return refusal
