"""The base classes of parsers: split a file into blocks of work, and a block into rows of text columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from numbers import Integral
from typing import Any, ClassVar, NamedTuple

from xdpx.config.faults import THIS_RUN, ConfigError, Fault, did_you_mean, nearest, shortened, wrong_return
from xdpx.config.parameters import Parameters as BaseParameters

Row = list[str]

NUL = "holds a NUL character"
WITH_QUOTES = "with quotes"
"""Part of the problem of a row with the wrong width and quotes in it, which may enclose a cell that was split."""

BLOCK_ROWS = 4096
BLOCK_CHARACTERS = 1 << 20


class BadLine(NamedTuple):
    """A line that cannot be used: its number in the file, from 1, and the problem."""

    line: int
    problem: str


class Span(NamedTuple):
    """A byte range of a file from `start` (inclusive) to `end` (exclusive); both are starts of rows."""

    start: int
    end: int


class Block(NamedTuple):
    """Consecutive lines or rows of a file, the unit of work of one worker.

    Attributes:
        first_line: number of its first line, from 1.
        data: the raw lines, for parsers that work on lines.
        rows: the rows, for formats that can only be split sequentially.
        lines: line (from 1) where each of `rows` begins.
        bad: lines that could not be read.
        picked: positions of the selected columns, from the header of the file; None for all.
        width: number of columns of the header, if there is one.
    """

    first_line: int
    data: bytes = b""
    rows: Sequence[Row] = ()
    lines: Sequence[int] = ()
    bad: tuple[BadLine, ...] = ()
    picked: tuple[int, ...] | None = None
    width: int = 0


class Rows(NamedTuple):
    """Rows of a block, the line (from 1) where each begins, and the lines that cannot be used."""

    rows: list[Row]
    lines: Sequence[int]
    bad: list[BadLine]


class Parser(ABC):
    """Reads one file format.

    Attributes:
        unit: what is counted, for messages: "line", "row" or "record".
        place: what the number of a row says, if that is not the unit: "sentence at line".
    """

    unit: ClassVar[str] = "line"
    place: ClassVar[str] = ""

    class Parameters(BaseParameters):
        """Keys of every parser."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters: Any = parameters

    @abstractmethod
    def blocks(self, path: str) -> Iterator[Block]:
        """Yield the blocks of a file, read sequentially in bounded memory. Runs in the main process."""

    @abstractmethod
    def parse(self, block: Block) -> Rows:
        """Return the rows of a block. Runs in a worker."""

    def span(self, path: str, index: int, count: int) -> Span | None:
        """Return part `index` (from 0) of `count` of a file, if it can be split without reading it; else None."""
        del path, index, count
        return None

    def blocks_of(self, path: str, span: Span) -> Iterator[Block]:
        """Yield the blocks of a part that `span` returned. Their rows are numbered from 1 at the start of the part."""
        raise NotImplementedError(f"{type(self).__name__} yields spans, but does not read them.")

    def header(self, path: str) -> Row | None:
        """Return the names of the columns, if the file or the config has them; else None."""
        del path
        return None

    def remedy(self, problem: str) -> str:
        """Return what to do about a row that cannot be used, for messages."""
        if "is a list, not text" in problem:
            return "Join its items into one text: words with spaces between them, labels with label_separator."
        return "Fix the file, or set skip_bad_lines: true."


class RowParser(Parser):
    """Base of formats that can only be read sequentially: the main process reads rows, workers do the rest."""

    unit: ClassVar[str] = "row"

    @abstractmethod
    def read(self, path: str) -> Iterator[tuple[int, Row | BadLine]]:
        """Yield (number, row), or (number, BadLine) for a row that cannot be used."""

    def blocks(self, path: str) -> Iterator[Block]:
        """Yield the rows of a file in blocks.

        Raises:
            ConfigError: a user's `read` yields nothing that could be read one by one.
        """
        numbered: object = self.read(path)
        if not isinstance(numbered, Iterable):
            remedy = "Yield (number, list of texts) for each row."
            raise wrong_return("parser", self, "read", f"{numbered!r:.80}", remedy)
        return gather(numbered, reader=self)

    def parse(self, block: Block) -> Rows:
        """Return the rows unchanged; a row with NUL or invalid Unicode is bad.

        Raises:
            ConfigError: a user's `read` yields something else than rows of texts, numbered in increasing order.
        """
        rows, numbers = list(block.rows), block.lines
        if not set(map(type, rows)) <= {list, tuple} or not set(map(type, chain.from_iterable(rows))) <= {str}:
            raise other_row(self, next(row for row in rows if not _is_row(row)))
        if not all(issubclass(kind, Integral) for kind in set(map(type, numbers))):
            raise other_row(self, (numbers[0], rows[0]))
        if sorted(set(numbers)) != list(numbers):  # predictions are put beside rows by these numbers
            later = next(each for before, each in pairwise(numbers) if each <= before)
            remedy = "Number the rows of a file in increasing order, such as by enumerate(rows, start=1)."
            raise wrong_return("parser", self, "read", f"the number {later} for a row after a later one", remedy)
        return valid(Rows(rows, numbers, list(block.bad)))


def wrong_width(row: Row, allowed: str) -> str:
    """Return the problem of a row with a wrong number of columns; `allowed` is a clause such as `not 3`."""
    shown = shortened(repr("\t".join(row)))
    quotes = f", {WITH_QUOTES}" if any('"' in cell for cell in row) else ""
    return f"has {len(row)} column{'s' * (len(row) != 1)}{quotes}, {allowed}: {shown}"


def _is_row(row: object) -> bool:
    return isinstance(row, list | tuple) and all(isinstance(cell, str) for cell in row)


def other_row(reader: object, found: object) -> ConfigError:
    """Return the error for a parser that yields something else than (number, row of texts)."""
    remedy = "Yield (number, list of texts) for each row, or (number, BadLine(number, problem))."
    return wrong_return("parser", reader, "read", f"{found!r:.80} as a row", remedy)


def gather(numbered: Iterable[tuple[int, Row | BadLine]], *, reader: object = None) -> Iterator[Block]:
    """Yield numbered rows in blocks of at most BLOCK_ROWS rows and about BLOCK_CHARACTERS characters.

    Args:
        numbered: the rows.
        reader: the parser that reads them, for messages; it may be a user's.

    Raises:
        ConfigError: what it reads has no number, or no cells.
    """
    rows: list[Row] = []
    lines: list[int] = []
    bad: list[BadLine] = []
    characters = 0
    for found in numbered:
        try:
            line, row = found
            characters += 0 if isinstance(row, BadLine) else sum(map(len, row))
        except (TypeError, ValueError) as error:
            raise other_row(reader, found) from error
        if isinstance(row, BadLine):
            bad.append(row)
        else:
            rows.append(row[:] if isinstance(row, list) else row)  # a user's parser may fill one list for all rows
            lines.append(line)
        if len(rows) + len(bad) >= BLOCK_ROWS or characters >= BLOCK_CHARACTERS:
            yield Block(line, rows=rows, lines=lines, bad=tuple(bad))
            rows, lines, bad, characters = [], [], [], 0
    if rows or bad:
        yield Block(lines[0] if lines else bad[0].line, rows=rows, lines=lines, bad=tuple(bad))


def valid(rows: Rows) -> Rows:
    """Return the rows with those that contain NUL or a lone surrogate moved to `bad`: signs of a damaged file."""
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
        if 0xDC80 <= code <= 0xDCFF:  # how `surrogateescape` decodes a byte that is not UTF-8
            return f"is not UTF-8 text (byte 0x{code - 0xDC00:02x})"
        return f"holds half of a surrogate pair (U+{code:04X})"
    return ""


def plain_delimiter(delimiter: str) -> str:
    r"""Return a delimiter with the two characters `\t`, which hjson keeps in unquoted text, replaced by a tab."""
    return delimiter.replace("\\t", "\t")


def missing_extra(parser: str, package: str, error: ImportError) -> ConfigError:
    """Return the error for a missing package, which names the extra to install."""
    fault = Fault("parser", f"'{parser}' needs the package {package}.", "Install it: pip install 'xdpx[data]'.")
    refusal = ConfigError(THIS_RUN, [fault])
    refusal.__cause__ = error
    return refusal


def picked(names: Sequence[str], fields: Sequence[str] | None, where: str) -> list[int]:
    """Return the positions of the columns to take; all if `fields` is None.

    If only the last field, the label, is missing and no column has a similar name, the data are unlabelled.

    Raises:
        ConfigError: a field has no column, or two.
    """
    if fields is None:
        return list(range(len(names)))
    missing = [field for field in fields if field not in names]
    unlabelled = len(fields) > 1 and missing == [fields[-1]] and nearest(fields[-1], names) is None
    if missing and not unlabelled:
        remedy = did_you_mean(missing[0], names, f"Choose among: {', '.join(names) or 'none'}.")
        raise ConfigError(where, [Fault("fields", f"there is no column '{missing[0]}'.", remedy)])
    wanted = list(fields[:-1] if unlabelled else fields)
    twice = [field for field in wanted if list(names).count(field) > 1]
    if twice:
        raise ConfigError(where, [Fault("fields", f"two columns are called '{twice[0]}'.", "Rename one of them.")])
    return [list(names).index(field) for field in wanted]


def row_of(
    number: int, names: Sequence[str], values: Sequence[Any], texts: Sequence[str | None], *, wanted: str = "text"
) -> Row | BadLine:
    """Return the texts of the cells of a row, or a BadLine for the first of its `values` without a text.

    Args:
        number: of the row, from 1.
        names: of the columns.
        values: of the cells.
        texts: of the cells; None if a value cannot be converted.
        wanted: what a cell should be, for the message.
    """
    row = []
    for name, value, text in zip(names, values, texts, strict=True):
        if text is None:
            found = "null" if value is None else f"a {type(value).__name__}"
            if isinstance(value, float):  # finite numbers have a text; pandas writes NaN for missing values
                found = "NaN or infinite"
            return BadLine(number, f"column '{name}' is {found}, not {wanted}")
        row.append(text)
    return row
