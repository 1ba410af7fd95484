"""What every parser does: cut a file into blocks of work, and a block into rows of text columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

from xdpx.config.faults import THIS_RUN, ConfigError, Fault, nearest
from xdpx.config.parameters import Parameters as BaseParameters

Row = list[str]

NUL = "holds a NUL character"
WITH_QUOTES = "with quotes"
"""Stands in what is said of a row of the wrong width that holds quotes: they may wrap a cell that was cut."""

BLOCK_ROWS = 4096
BLOCK_CHARACTERS = 1 << 20


class BadLine(NamedTuple):
    """A line that cannot be used: its 1-based number in the file, and what was found."""

    line: int
    problem: str


class Span(NamedTuple):
    """The bytes from `start` up to `end` of a file; rows begin at both."""

    start: int
    end: int


class Block(NamedTuple):
    """Some consecutive lines or rows of a file: what one worker takes at a time.

    Attributes:
        first_line: 1-based number of its first line.
        data: the lines as they stand in the file, for parsers that work on lines.
        rows: the rows, for formats that only a sequential reader can cut.
        lines: 1-based number of the line where each of `rows` begins.
        bad: lines that could not even be cut out.
        picked: positions of the columns that are wanted, by the header of the file; None for all.
        width: how many columns the header has, where there is one.
    """

    first_line: int
    data: bytes = b""
    rows: Sequence[Row] = ()
    lines: Sequence[int] = ()
    bad: tuple[BadLine, ...] = ()
    picked: tuple[int, ...] | None = None
    width: int = 0


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

    def span(self, path: str, index: int, count: int) -> Span | None:
        """Return part `index` of `count` of a file, where it can be cut without reading it; else None."""
        del path, index, count
        return None

    def blocks_of(self, path: str, span: Span) -> Iterator[Block]:
        """Cut such a part into blocks. Their rows are numbered from 1 at the beginning of the part."""
        raise NotImplementedError(f"{type(self).__name__} gives spans, but does not read them.")

    def header(self, path: str) -> Row | None:
        """Return the names of the columns, when the file or the config names them."""
        del path
        return None

    def remedy(self, problem: str) -> str:
        """Return in words what to do about a row that cannot be used."""
        del problem
        return "Mend the file, or set skip_bad_lines: true."


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
        """Return the rows as they are; a row that is no valid Unicode is bad."""
        return valid(Rows(list(block.rows), block.lines, list(block.bad)))


def wrong_width(row: Row, allowed: str) -> str:
    """Return what is wrong with a row of another number of columns than is `allowed`."""
    text = repr("\t".join(row))
    quotes = f", {WITH_QUOTES}" if any('"' in cell for cell in row) else ""
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    return f"has {len(row)} column{'s' * (len(row) != 1)}{quotes}, {allowed}: {shown}"


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
    """Return the error that names the extra which reads this format."""
    fault = Fault("parser", f"'{parser}' needs the package {package}.", "Install it: pip install 'xdpx[data]'.")
    refusal = ConfigError(THIS_RUN, [fault])
    refusal.__cause__ = error
    return refusal


def picked(names: Sequence[str], fields: Sequence[str] | None, where: str) -> list[int]:
    """Find the columns to take; None takes all. Where the last field, the label, is absent the data are unlabelled.

    Raises:
        ConfigError: there is no column of that name, or two.
    """
    if fields is None:
        return list(range(len(names)))
    missing = [field for field in fields if field not in names]
    unlabelled = len(fields) > 1 and missing == [fields[-1]] and nearest(fields[-1], names) is None
    if missing and not unlabelled:
        near = nearest(missing[0], names)
        remedy = f"Did you mean '{near}'?" if near else f"Choose among: {', '.join(names) or 'none'}."
        raise ConfigError(where, [Fault("fields", f"there is no column '{missing[0]}'.", remedy)])
    wanted = list(fields[:-1] if unlabelled else fields)
    twice = [field for field in wanted if list(names).count(field) > 1]
    if twice:
        raise ConfigError(where, [Fault("fields", f"two columns are called '{twice[0]}'.", "Rename one of them.")])
    return [list(names).index(field) for field in wanted]


def row_of(
    number: int, names: Sequence[str], values: Sequence[Any], texts: Sequence[str | None], *, wanted: str = "text"
) -> Row | BadLine:
    """Return the texts of a row's cells, or which of its `values` has none."""
    row = []
    for name, value, text in zip(names, values, texts, strict=True):
        if text is None:
            found = "null" if value is None else f"a {type(value).__name__}"
            if isinstance(value, float):  # numbers are text, but for those that pandas writes for what is missing
                found = "NaN or infinite"
            return BadLine(number, f"column '{name}' is {found}, not {wanted}")
        row.append(text)
    return row
