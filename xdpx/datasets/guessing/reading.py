"""Read a file of any format as a table of texts, guessing its encoding, delimiter and header."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from io import StringIO
from typing import Any

from xdpx.config.faults import ConfigError, did_you_mean
from xdpx.datasets.data_files import COMPRESSED
from xdpx.datasets.findings.raw_files import (
    LOOKED_AT,
    blank_before_label,
    is_column_name,
    repeats,
)
from xdpx.datasets.guessing.decimals import are_decimals
from xdpx.datasets.guessing.decision import Decision, Wishes, question
from xdpx.datasets.guessing.encodings import ZIP, no_text, text_of
from xdpx.datasets.guessing.headers import (
    has_header,
    header_of_rows,
    name_in,
    rows_above_names,
    rows_of_data,
    told_above,
)
from xdpx.datasets.guessing.json_files import as_table, read_json
from xdpx.datasets.guessing.lists import LISTED, tagged_lists, without_brackets
from xdpx.datasets.guessing.tagging import read_conll
from xdpx.loaders.parsers.base import BadLine, Row, RowParser
from xdpx.loaders.parsers.csv import DELIMITERS, QUOTED_BY_CUSTOM
from xdpx.loaders.parsers.encodings import unmarked_utf16
from xdpx.loaders.parsers.excel import ExcelParser, sheet_names
from xdpx.loaders.parsers.files import MAX_LINE_BYTES, open_raw
from xdpx.loaders.parsers.parquet import ParquetParser
from xdpx.tokenizers.target_map import folded

SUFFIXES = (".csv", ".tsv", ".txt", ".jsonl", ".json", ".xlsx", ".parquet", ".conll", ".bio")
"""Suffixes of files that can be read, optionally followed by that of a compression."""

_FASTTEXT = re.compile(r"((?:__label__\S+\s+)+)(.*)")

_SEPARATOR = re.compile(r'"?sep=([,;|\t])"?\n')
"""A first line by which Excel knows the delimiter; it is no row."""

WORKBOOK = b"[Content_Types].xml"
"""The name of a file in every .xlsx workbook, which is a zip archive."""

EVEN = 0.98
"""Minimum share of lines that a delimiter must split into the same number of columns."""


@dataclass(frozen=True)
class Table:
    """The content of a file as a table of texts.

    Attributes:
        path: the file.
        names: of the columns: those in the file, or `column 1` and so on.
        named: whether the file has them.
        rows: with as many cells each.
        left_out: descriptions of rows that could not be used.
        tagged: whether each row is a sentence, of words and their tags.
        delimiter: of columns; '' if the format has none.
    """

    path: str
    names: list[str]
    named: bool
    rows: list[Row]
    left_out: tuple[str, ...] = ()
    tagged: bool = False
    delimiter: str = ""


def ending(path: str) -> str:
    """Return the suffix of a file that determines its format, in lower case, without compression; '' if unknown."""
    name = path.lower()
    for suffix in COMPRESSED:
        name = name.removesuffix(suffix)
    return next((suffix for suffix in SUFFIXES if name.endswith(suffix)), "")


def read_table(path: str, wishes: Wishes) -> tuple[Table, list[Decision]]:
    """Return the table in a file, which is read into memory, and the decisions made.

    Columns without a name and without content, as spreadsheets write them, are left out.

    Raises:
        ConfigError: the file cannot be read, or its format cannot be guessed.
    """
    table, decisions = _read(path, wishes)
    table = replace(table, rows=without_brackets(table.rows))
    if wishes.task is None and (tagged := tagged_lists(path, table.names, table.rows)) is not None:
        names, rows = tagged
        shown = f"words in '{names[0]}', their tags in '{names[1]}'"
        return replace(table, names=names, rows=rows, tagged=True), [*decisions, Decision("lists", shown, "certain")]
    kept = [
        index
        for index, (name, number) in enumerate(zip(table.names, numbered(len(table.names)), strict=True))
        if (name != number and not name.startswith("Unnamed: ")) or any(row[index].strip() for row in table.rows)
    ]
    last = max(kept, default=0)
    if not table.named:  # columns in front keep their numbers, by which they are chosen
        kept = list(range(last + 1))
    if len(kept) < len(table.names):
        rows = [[row[index] for index in kept] for row in table.rows]
        table = replace(table, names=[table.names[index] for index in kept], rows=rows)
    return table, decisions


def _read(path: str, wishes: Wishes) -> tuple[Table, list[Decision]]:
    with open_raw(path) as stream:
        data = stream.read()
    if not data.strip():
        raise question(path, "file", "is empty.", "Is it the right one?")
    if data.startswith(ZIP):
        if WORKBOOK not in data:
            remedy = "Unpack it; then name a file, or a folder with train, dev and test."
            raise question(path, "file", "is a zip archive, but not a workbook (.xlsx).", remedy)
        return _excel(path, wishes)
    if (known := no_text(data)) is not None:
        raise question(path, "file", f"is {known[0]}.", known[1])
    if data.startswith(b"PAR1"):
        names, rows, shape = as_table(path, ParquetParser(ParquetParser.Parameters()).objects(path), "parquet")
        return Table(path, names, True, rows), [Decision("format", shape, "certain")]
    text, encoding = text_of(data, path, wishes)
    table, decisions = _text(path, text, wishes)
    return table, [encoding, *decisions]


def _text(path: str, text: str, wishes: Wishes) -> tuple[Table, list[Decision]]:
    lines = [line for line in text.split("\n") if line.strip()]
    if "\0" in text:
        likely = unmarked_utf16(text.encode())
        remedy = f"It is likely {likely}: encoding={likely}." if likely else "Is it damaged, or in another format?"
        line = text.count("\n", 0, text.index("\0")) + 1
        raise question(path, "file", f"holds NUL characters, the first in line {line:,}, so it is not text.", remedy)
    if (json := read_json(path, text)) is not None:
        names, rows, shape = json
        return Table(path, names, True, rows), [Decision("format", f"JSON, {shape}", "certain")]
    if all(map(_FASTTEXT.match, lines[:LOOKED_AT])):
        return _fasttext(path, lines), [Decision("format", "__label__ in front of each text (fastText)", "certain")]
    if (said := _SEPARATOR.match(text)) is not None:
        return _text(path, text[said.end() :], replace(wishes, delimiter=wishes.delimiter or said[1]))
    if wishes.delimiter is None and (found := read_conll(path, text, sure=ending(path) in {".conll", ".bio"})):
        sentences, left_out = found
        table = Table(path, ["words", "tags"], True, sentences, left_out, tagged=True)
        return table, [Decision("format", "words and their tags (CoNLL)", "certain")]
    return _delimited(path, text, lines, wishes)


# ------------------------------------------------------------------------------------------------ delimited lines


def _delimited(path: str, text: str, lines: Sequence[str], wishes: Wishes) -> tuple[Table, list[Decision]]:
    if escaped := _escapes_quotes(lines[:LOOKED_AT], wishes):  # as Spark and MySQL write them
        text, lines = text.replace('\\"', '""'), [line.replace('\\"', '""') for line in lines]
    delimiter, quoted, sure = _delimiter(path, lines[:LOOKED_AT], wishes)
    rows, left_out = _cut_all(path, text, delimiter, quoted=quoted)
    shown = f"{DELIMITERS.get(delimiter, repr(delimiter))} between columns" + (", quotes around cells" * quoted)
    shown += ' with \\" in them' * escaped
    titles = rows_above_names(rows[:LOOKED_AT]) if wishes.header is None else 0
    left_out, rows = (*left_out, *told_above(rows[:titles])), rows[titles:]
    first = [name_in(cell) for cell in rows[0]]
    header, header_sure = (wishes.header, "given") if wishes.header is not None else has_header(rows[:LOOKED_AT])
    names, decision = _named(path, first, header_sure, header=bool(header))
    rows, others = rows_of_data(rows[1:] if header else rows, rows[0] if header else None)
    left_out = (*left_out, *others)
    table = Table(path, names, bool(header), rows, left_out, delimiter=delimiter)
    return table, [Decision("format", shown, sure, "delimiter=..."), decision]


def _named(path: str, first: Row, sure: Any, *, header: bool) -> tuple[list[str], Decision]:
    """Return the names of the columns, in the first row or by number, and the decision about them."""
    names = numbered(len(first))
    if header:
        names = [cell or number for cell, number in zip(first, names, strict=True)]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise question(path, "header", f"two columns are called '{twice}'.", "Rename one of them.")
    shown = f"yes: {', '.join(names)}" if header else "no"
    return names, Decision("header", shown, sure, f"header={str(not header).lower()}")


def numbered(count: int) -> list[str]:
    """Return names for columns without names: `column 1` and so on."""
    return [f"column {index}" for index in range(1, count + 1)]


def _delimiter(path: str, lines: Sequence[str], wishes: Wishes) -> tuple[str, bool, Any]:
    """Return (delimiter, whether cells are quoted, how sure)."""
    if wishes.delimiter is not None:
        delimiter = wishes.delimiter.replace("\\t", "\t")
        if len(delimiter) != 1:
            raise question(path, "delimiter", f"is {wishes.delimiter!r}.", "Use one character, or \\t for a tab.")
        return delimiter, _wraps(lines, delimiter), "given"
    found = []
    for delimiter in DELIMITERS:
        quoted = _wraps(lines, delimiter)
        rows = list(_rows_of(lines, delimiter)) if quoted else [line.split(delimiter) for line in lines]
        width = _usual(rows)
        share = sum(len(row) == width for row in rows) / max(len(rows), 1)
        if width > 1 and share >= EVEN:
            columns = list(zip(*[row for row in rows if len(row) == width][1:], strict=True))
            commas = any(map(are_decimals, columns))  # a comma between its digits would split every number, too
            labels = commas or any(repeats(set(column), len(column)) for column in columns)
            found.append(((labels, share == 1.0, commas), delimiter, quoted))
    if not found:
        raise _no_delimiter(path, lines)
    rank, delimiter, quoted = max(found, key=lambda each: each[0])  # among equals, the first in DELIMITERS
    return delimiter, quoted, "certain" if len([each for each, *_ in found if each == rank]) == 1 else "likely"


def _no_delimiter(path: str, lines: Sequence[str]) -> ConfigError:
    """Return the error for a missing delimiter: texts contain it, a space precedes the label, or there is no label."""
    for delimiter in DELIMITERS:
        counts = [line.count(delimiter) for line in lines]
        if min(counts) > 0:
            most = counts.index(max(counts))
            shown = f"{DELIMITERS[delimiter]} splits lines into {min(counts) + 1} to {max(counts) + 1} columns"
            problem = f"{shown}, such as {lines[0][:40]!r} and {lines[most][:60]!r}."
            wrapped = f'"good{delimiter} cheap"{delimiter}positive'
            remedy = f"Texts that contain it need quotes around them, {wrapped}; or separate columns by tabs."
            return question(path, "delimiter", problem, remedy)
    blank = blank_before_label(lines, 1)
    if blank is not None:
        return question(path, "delimiter", *blank)
    problem = f"cannot be found: no tab, comma, semicolon or '|' splits lines such as {lines[0][:50]!r} evenly."
    remedy = "Give it: delimiter=...; a classifier cannot be trained on texts without labels."
    return question(path, "delimiter", problem, remedy)


def _escapes_quotes(lines: Sequence[str], wishes: Wishes) -> bool:
    """Return whether quotes enclose cells only if a quote within them is written with a backslash in front."""
    if not any('\\"' in line for line in lines):
        return False
    delimiters = [wishes.delimiter.replace("\\t", "\t")] if wishes.delimiter else DELIMITERS
    doubled = [line.replace('\\"', '""') for line in lines]
    return not any(_wraps(lines, each) for each in delimiters) and any(_wraps(doubled, each) for each in delimiters)


def _rows_of(lines: Sequence[str], delimiter: str) -> Iterator[Row]:
    """Yield the rows of lines with quoted cells, up to a cell that continues after the last line."""
    with suppress(csv.Error):
        yield from csv.reader([line + "\n" for line in lines], delimiter=delimiter, strict=True)


def _wraps(lines: Sequence[str], delimiter: str) -> bool:
    """Return whether double quotes enclose cells, rather than being quotation marks in texts."""
    if not any(line.startswith('"') or f'{delimiter}"' in line for line in lines):
        return False
    quoted: list[Row] = []
    reader = csv.reader([line + "\n" for line in lines], delimiter=delimiter, strict=True)
    with suppress(csv.Error):
        quoted.extend(reader)
    if not quoted or reader.line_num < len(lines):  # an error before the end, where a cell might just be cut off
        return False
    plain = [line.split(delimiter) for line in lines]
    if delimiter in QUOTED_BY_CUSTOM or not _is_even(plain):
        return _is_even(quoted)
    if _usual(quoted) < _usual(plain) or len(quoted) < len(plain):  # even with and without quotes, but differently
        return _usual(quoted) < _usual(plain)
    columns = zip(*(row for row in plain if len(row) == _usual(plain)), strict=True)
    return any(all(len(cell) > 1 and cell[0] == cell[-1] == '"' for cell in column) for column in columns)


def _is_even(rows: Sequence[Row]) -> bool:
    """Return whether nearly all rows have the same number of columns."""
    width = _usual(rows)
    return sum(len(row) == width for row in rows) >= EVEN * len(rows)


def _usual(rows: Sequence[Row]) -> int:
    widths = [len(row) for row in rows]
    return max(set(widths), key=widths.count, default=0)


def _cut_all(path: str, text: str, delimiter: str, *, quoted: bool) -> tuple[list[Row], tuple[str, ...]]:
    csv.field_size_limit(MAX_LINE_BYTES)
    lines = StringIO(text, newline="")
    plain = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)
    reader = csv.reader(lines, delimiter=delimiter, strict=True) if quoted else plain
    rows: list[tuple[int, Row]] = []
    bare: list[int] = []
    try:
        for row in reader:
            if any(each.strip() for each in row):
                rows.append((reader.line_num, row))
            elif len(row) > 1:
                bare.append(reader.line_num)
    except csv.Error as error:
        problem = f"line {reader.line_num} is not quoted csv ({error})."
        raise question(path, "delimiter", problem, "Is a quote unclosed there? Fix it, or give delimiter=...") from None
    width = _usual([row for _, row in rows])
    odd = tuple(
        f"line {line} has {len(row)} column{'s' * (len(row) > 1)}, not {width}"
        for line, row in rows
        if len(row) != width
    )
    if len(odd) > (1 - EVEN) * len(rows) + 1:
        problem = f"cuts {len(odd):,} of {len(rows):,} rows into a different number of columns; {odd[0]}."
        raise question(path, "delimiter", problem, "Give another: delimiter=...; or fix the file.")
    if len(rows[0][1]) != width:
        header = header_of_rows(path, rows[0][1], [row for _, row in rows if len(row) == width], delimiter)
        if header is not None:
            rows[0], odd = (rows[0][0], header), odd[1:]
    if bare:
        odd = (f"{len(bare):,} rows that contain only delimiters, such as line {bare[0]}", *odd)
    return [row for _, row in rows if len(row) == width], odd


# ------------------------------------------------------------------------------------------------ other formats


def _fasttext(path: str, lines: Sequence[str]) -> Table:
    """Return the table of labels and texts of all lines; several labels are joined like those of a JSON list."""
    found = [match for line in lines if (match := _FASTTEXT.match(line))]
    odd = tuple(f"line {number} has no __label__" for number, line in enumerate(lines, 1) if not _FASTTEXT.match(line))
    labels = (LISTED.join(part.removeprefix("__label__") for part in match[1].split()) for match in found)
    rows = [[label, match[2]] for label, match in zip(labels, found, strict=True)]
    return Table(path, ["label", "text"], named=True, rows=rows, left_out=odd)


def _of_parser(path: str, parser: RowParser) -> Table:
    names = parser.header(path) or []
    rows, left_out = [], []
    for number, row in parser.read(path):
        if isinstance(row, BadLine):
            left_out.append(f"row {number} {row.problem}")
        else:
            rows.append(row)
    if not rows:
        raise question(path, "file", "contains no readable row.", left_out[0] if left_out else "Is it the right one?")
    return Table(path, names, named=True, rows=rows, left_out=tuple(left_out))


def sheets_of(path: str) -> list[str]:
    """Return the names of the sheets of a workbook; [] for other files."""
    with open_raw(path) as stream:
        is_workbook = stream.read(4) == ZIP and WORKBOOK in stream.read()
    return sheet_names(path) if is_workbook else []


def _excel(path: str, wishes: Wishes) -> tuple[Table, list[Decision]]:
    names = sheet_names(path)
    if wishes.sheet is not None and wishes.sheet not in names:
        remedy = did_you_mean(wishes.sheet, names, f"There are: {', '.join(names)}.")
        raise question(path, "sheet", f"there is no sheet '{wishes.sheet}'.", remedy)
    tables = {}
    for name in [wishes.sheet] if wishes.sheet else names:
        try:
            tables[name] = _sheet(path, name, wishes)
        except Exception:  # an empty sheet, or one with only pictures
            if wishes.sheet:
                raise
    if not tables:
        remedy = "Is it the right file? Remove a title above the names."
        raise question(path, "sheet", "no sheet has rows below a row of names.", remedy)
    most = max(tables, key=lambda name: len(tables[name].rows))
    rivals = [name for name, table in tables.items() if name != most and 5 * len(table.rows) > len(tables[most].rows)]
    if rivals:
        raise question(path, "sheet", f"both '{most}' and '{rivals[0]}' contain rows.", f"Choose: sheet='{most}'.")
    sure: Any = "given" if wishes.sheet else "certain" if len(names) == 1 else "likely"
    what = f"Excel, sheet '{most}' of {len(names)}"
    table, decision = _with_header(replace(tables[most], path=path), wishes)
    return table, [Decision("format", what, sure, "sheet=..." if len(names) > 1 else ""), decision]


def _sheet(path: str, name: str, wishes: Wishes) -> Table:
    """Return the table of a sheet, below its title if it has one."""
    parser = ExcelParser(ExcelParser.Parameters(sheet_name=name))
    top = parser.top(path, LOOKED_AT) if wishes.header is None else []
    titles = rows_above_names(top)
    if titles:
        parser = ExcelParser(ExcelParser.Parameters(sheet_name=name, start_line=titles))
    table = _of_parser(path, parser)
    return replace(table, left_out=(*told_above(top[:titles]), *table.left_out))


def _with_header(table: Table, wishes: Wishes) -> tuple[Table, Decision]:
    """Return a sheet, whose first row may be a row instead of names, and the decision about its header."""
    first = [name_in(cell) for cell in table.names]
    header, sure = (wishes.header, "given") if wishes.header is not None else (True, "certain")
    if wishes.header is None and not any(is_column_name(folded(cell)) for cell in first):
        header, sure = has_header([first, *table.rows[:LOOKED_AT]])
    names, decision = _named(table.path, first, sure, header=bool(header))
    rows, others = rows_of_data(table.rows if header else [table.names, *table.rows], table.names if header else None)
    left_out = (*table.left_out, *others)
    return replace(table, names=names, named=bool(header), rows=rows, left_out=left_out), decision
