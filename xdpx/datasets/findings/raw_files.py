"""Checks whether raw files are parsed as intended: headers read as rows, delimiters or quotes read as text."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from xdpx.datasets.findings.finding import Finding
from xdpx.datasets.guessing.encodings import SAMPLE_BYTES, better
from xdpx.loaders.base import Loader
from xdpx.loaders.parsers.base import Parser, Row
from xdpx.loaders.parsers.csv import DELIMITERS, QUOTED_BY_CUSTOM, CSVParser
from xdpx.loaders.parsers.encodings import UTF8, TextParameters, marked
from xdpx.loaders.parsers.files import open_raw
from xdpx.loaders.parsers.lines import LineParser
from xdpx.tokenizers.target_map import folded, number_of

LOOKED_AT = 1000
"""Number of rows at the top of a file that are examined."""

FEWEST = 4
"""Minimum number of rows to see a pattern."""

FEWEST_FOR_BLANKS = 10
"""Minimum number of rows for labels separated by spaces, which are weaker evidence than commas."""

_NAME = re.compile(
    r"(?:#\d+ )?(?:text|texts|sentence|sent|question|query|passage|context|review|comment|content|title|body|message|"
    r"premise|hypothesis|string|utterance|document|word|words|label|labels|target|targets|class|category|cat|"
    r"sentiment|score|rating|grade|gold|gold_label|quality|polarity|tag|tags|id|idx|index|y|"
    r"文本|句子|标签|类别|内容|评论|问题|标题|情感)(?:[ _-]?(?:\d|a|b|id|text|label))?"
)
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
LABEL_NAMES = frozenset({
    "label", "labels", "target", "targets", "class", "category", "cat", "sentiment", "score", "rating", "grade",
    "gold", "gold_label", "quality", "polarity", "tag", "tags", "y", "标签", "类别", "情感",
})  # fmt: skip
_ROW_IDS = frozenset({"id", "idx", "index"})


def is_column_name(cell: str) -> bool:
    """Return whether a folded cell is a common name of a column of texts or labels."""
    return _NAME.fullmatch(cell) is not None


def numbers_columns(first: Row, others: Sequence[Row]) -> bool:
    """Return whether a first row counts the columns, as pandas does for columns without names.

    Some column must not have numbers in the other rows; a first cell without text is that of row numbers.
    """
    counted = [cell.strip() for cell in first[first[:1] == [""] :]]
    if len(counted) < 2 or counted not in ([str(index + start) for index in range(len(counted))] for start in (0, 1)):
        return False
    columns = zip(*(row for row in others if len(row) == len(first)), strict=True)
    return any(not any(number_of(cell) is not None for cell in column) for column in columns)


class Head(NamedTuple):
    """The first rows of a raw file, and the line where the first of them begins."""

    first_line: int
    rows: list[Row]


def head_of(path: str, parser: Parser) -> Head:
    """Return the first rows of a raw file, without blank and unusable ones."""
    for block in islice(parser.blocks(path), 1):
        parsed = parser.parse(block)
        rows = [(line, row) for line, row in zip(parsed.lines, parsed.rows, strict=True) if row != [""]][:LOOKED_AT]
        return Head(rows[0][0] if rows else 1, [row for _, row in rows])
    return Head(1, [])


def names_no_columns(parser: Parser) -> bool:
    """Return whether a parser reads the first line as a row, i.e. has no header and skips no lines."""
    known = parser.parameters
    return isinstance(parser, LineParser) and not getattr(known, "fields", None) and not known.start_line


def header(path: str, head: Head, parser: Parser, *, labelled: bool, labels: Collection[str] = ()) -> Iterator[Finding]:
    """Yield a finding if the first row contains the names of columns.

    Args:
        path: the raw file.
        head: its first rows.
        parser: of the file.
        labelled: whether the last column is a label.
        labels: all labels, if known; that of the first row is not among them, or occurs nowhere else.
    """
    if not head.rows or not names_no_columns(parser):
        return
    first = [folded(cell.strip("\"'")) for cell in head.rows[0]]
    known = {folded(label) for label in labels}
    others = known - {folded(head.rows[0][-1])}
    named = all(map(is_column_name, first))
    is_word = number_of(first[-1]) is None
    word_among_numbers = is_word and all(number_of(other) is not None for other in others)
    unlike_labels = is_word and first[-1] not in known and is_column_name(first[0])
    numbered = numbers_columns(first, head.rows[1:])
    label = labelled and bool(others)
    label &= first[-1] in LABEL_NAMES or word_among_numbers or unlike_labels or numbered
    if named or label:
        problem = f"the first row looks like the names of columns: {', '.join(map(repr, head.rows[0]))[:80]}."
        remedy = "Skip it: start_line: 1"
        if isinstance(parser, CSVParser):
            remedy += f"; or take the columns by name: fields: {json.dumps(_by_name(head.rows[0]), ensure_ascii=False)}"
        yield Finding("header", "fault", f"{path}:{head.first_line}", problem, f"{remedy}.")


def _by_name(names: Row) -> Row:
    """Return names of columns in the order of the key `fields`: texts, then others, the label last; without row ids."""

    def rank(name: str) -> int:
        name = folded(name)
        return 2 if name in LABEL_NAMES else int(not is_column_name(name))

    return sorted((name for name in names if folded(name) not in _ROW_IDS), key=rank) or names


def encoding(path: str, parser: Parser) -> Iterator[Finding]:
    """Yield a finding if a file is likely written in another encoding than the given one, in which it is valid too."""
    known = parser.parameters
    if not isinstance(known, TextParameters) or known.encoding == UTF8:
        return
    with open_raw(path) as stream:
        start = stream.read(SAMPLE_BYTES)
    likely = "" if marked(start) else better(start, known.encoding)
    if likely:
        problem = f"is read as {known.encoding}, but is likely {likely}: its characters would be other ones."
        yield Finding("encoding", "warning", path, problem, f"Set encoding: {likely}.")


def quotes(path: str, head: Head, parser: Parser) -> Iterator[Finding]:
    """Yield a finding if quotes around cells, as written by spreadsheets and pandas, are read as text."""
    if not isinstance(parser, CSVParser) or len(head.rows) < FEWEST:
        return
    rows = [row for row in head.rows if len(row) == len(head.rows[-1])]
    remedy = "Strip them: quotechar: '\"'."
    if parser.quotechar is not None:  # a cell that is still wrapped has a blank in front, or quotes of its own
        rows = [[cell.strip() if cell[:1] == " " else "" for cell in row] for row in rows]
        remedy = "A cell in quotes begins right behind the delimiter: take out the blank in front of it."
    wrapped = [
        all(len(cell) > 1 and cell[0] == cell[-1] == '"' for cell in column) for column in zip(*rows, strict=True)
    ]
    place = f"{path}:{head.first_line}"
    if any(wrapped):
        column = wrapped.index(True) + 1
        problem = f"quotes wrap every cell of column {column}, and are read as part of it: {rows[0][column - 1]!r:.40}."
        yield Finding("quotes", "warning", place, problem, remedy)
    elif escaped := _escaped(rows):
        problem = f"quotes wrap {len(escaped):,} cells of the first {len(rows):,} rows, and are doubled within, as csv"
        problem += f" writers do, but are read as text: {escaped[0]!r:.40}."
        yield Finding("quotes", "warning", place, problem, remedy)


def _escaped(rows: Sequence[Row]) -> list[str]:
    """Return the cells wrapped by the rules of csv with quotes inside; [] if a cell begins with a quote otherwise."""
    quoted = [cell for row in rows for cell in row if cell[:1] == '"']
    return [cell for cell in quoted if '""' in cell[1:-1]] if all(map(_QUOTED.fullmatch, quoted)) else []


def another_reading(
    path: str, head: Head, parser: Parser, loader: Loader, labels: Collection[str] = ()
) -> Iterator[Finding]:
    """Yield a finding if another delimiter or parser would split the lines into texts and labels.

    Args:
        path: the raw file.
        head: its first rows.
        parser: of the file.
        loader: of the run.
        labels: known to a trained model, folded; empty before training.
    """
    if type(parser) not in {CSVParser, LineParser} or not head.rows:
        return
    given = parser.delimiter if isinstance(parser, CSVParser) else ""
    remedy = how_to_cut([given.join(row) for row in head.rows], loader, given=given, labels=labels)
    if remedy is not None:
        yield Finding("delimiter", "fault", f"{path}:{head.first_line}", *remedy)


def columns(path: str, head: Head, loader: Loader, *, labelled: bool, labels: Collection[str]) -> Iterator[Finding]:
    """Yield a finding if labels are read as texts, or texts as labels, for a model with known labels.

    Args:
        path: the raw file.
        head: its first rows.
        loader: of the model, which knows how several labels are written.
        labelled: whether the last column is read as a label.
        labels: of the model, folded.
    """
    last = [folded(label) for row in head.rows for label in loader.labels_of(row[-1])]
    if len(head.rows) < FEWEST or not last or not labels:
        return
    place = f"{path}:{head.first_line}"
    if not labelled and len(head.rows[0]) > 1 and set(last) <= set(labels):
        problem = f"the last column, read as a text, holds labels, such as {head.rows[0][-1]!r}: a text is missing."
        yield Finding("columns", "fault", place, problem, "Give a file with the texts that the model was trained on.")
    if labelled and are_no_labels(last, labels):
        problem = f"the last column, read as a label, has no label of training, such as {head.rows[0][-1]!r:.60}."
        yield Finding("columns", "fault", place, problem, "Give texts alone, or with labels in the last column.")


def are_no_labels(cells: Sequence[str], labels: Collection[str]) -> bool:
    """Return whether cells, folded, are texts: none is a label of the model, and few of them repeat as labels do."""
    found = set(cells)
    return not _are_numbers(found, labels) and found.isdisjoint(labels) and not repeats(found, len(cells))


def _are_numbers(cells: Collection[str], labels: Collection[str]) -> bool:
    """Return whether labels are numbers, as in a regression, and most cells are, too, of whatever value."""
    numbers = sum(number_of(cell) is not None for cell in cells)
    return 2 * numbers > len(cells) and all(number_of(label) is not None for label in labels)


def unknown_labels(
    path: str, head: Head, loader: Loader, *, labelled: bool, labels: Collection[str]
) -> Iterator[Finding]:
    """Yield a finding if no row has a label of a model, so that its predictions cannot be compared with them.

    Args:
        path: the raw file.
        head: its first rows.
        loader: of the model, which knows how several labels are written.
        labelled: whether the last column is read as a label.
        labels: of the model.
    """
    last = {folded(label): label for row in head.rows for label in loader.labels_of(row[-1])}
    if labelled and labels and last and not _are_numbers(last, labels) and last.keys().isdisjoint(map(folded, labels)):
        shown, known = (", ".join(map(repr, [*names][:3])) for names in (last.values(), labels))
        problem = f"no label of the first {len(head.rows):,} rows is one of training ({known}), but {shown:.60}."
        remedy = "They cannot be compared with predictions: write them as in training, or leave them out."
        yield Finding("unseen_label", "warning", f"{path}:{head.first_line}", problem, remedy)


def first_row_left_out(path: str, parser: LineParser, loader: Loader, labels: Collection[str]) -> Iterator[Finding]:
    """Yield a finding if `start_line: 1`, as in training, skips a first line that is a row with known labels."""
    known = parser.parameters
    if known.start_line != 1:
        return
    head = head_of(path, type(parser)(known.model_copy(update={"start_line": 0, "fields": None})))
    first = {folded(label) for label in loader.labels_of(head.rows[0][-1])} if head.rows else set()
    if head.first_line == 1 and first and first <= set(labels):
        problem = f"start_line: 1 leaves out a row that is not a header: {', '.join(map(repr, head.rows[0]))[:80]}."
        yield Finding("header", "fault", f"{path}:1", problem, "start_line: 0 reads it.")


def first_row_as_names(path: str, parser: Parser, labels: Collection[str]) -> Iterator[Finding]:
    """Yield a finding if the names of columns, as in the first row of a sheet, end with a known label."""
    names = None if isinstance(parser, LineParser) else parser.header(path)
    if names and folded(names[-1]) in labels and getattr(parser.parameters, "fields", None) is None:
        shown = ", ".join(map(repr, names))[:80]
        problem = f"the first row, taken for the names of columns, is a row with a label: {shown}."
        yield Finding("header", "fault", f"{path}:1", problem, "Put a row with the names of the columns above it.")


def how_to_cut(
    lines: Sequence[str], loader: Loader, *, given: str, labels: Collection[str] = ()
) -> tuple[str, str] | None:
    """Return (problem, remedy) for lines without a label that could be parsed otherwise; None if they seem plain text.

    Args:
        lines: of a raw file, all that are examined.
        loader: of the run.
        given: the delimiter that was used; '' for none.
        labels: known to a trained model, folded; empty before training.
    """
    if all(line.lstrip()[:1] == "{" for line in lines) and all(map(_is_object, lines[:3])):
        keys = ", ".join(json.loads(lines[0]))
        return "every line is a JSON object, read as text.", f"Use parser: jsonl, fields: [...] of: {keys[:80]}."
    if not loader.num_targets or len(lines) < FEWEST:
        return None
    fewest = loader.num_sections + len(loader.before) + loader.num_targets
    for delimiter, shown in DELIMITERS.items():
        rows = [] if delimiter == given else cut(lines, delimiter)
        width = len(rows[0]) if rows else 0
        named = any(map(is_column_name, map(folded, rows[0] if rows else [])))
        even = all(len(row) == width for row in rows)
        if width >= max(fewest, 2) and even and _few_values(rows[named:], width):
            how = f"delimiter: {shown}, parser: csv"
            if width > fewest or named:
                how += f", and fields: [...] with {fewest} of the names in the first line, the label last"
            return f"no line has a label, but {shown} cuts each into {width} columns.", f"Set {how}."
    return blank_before_label(lines, fewest - loader.num_targets, labels)


def blank_before_label(lines: Sequence[str], texts: int, labels: Collection[str] = ()) -> tuple[str, str] | None:
    """Return (problem, remedy) for lines that end in a space and a label; None if they do not."""
    if len(lines) < FEWEST_FOR_BLANKS or not _ends_in_labels(lines, texts, labels):
        return None
    words = sorted({line.split()[-1] for line in lines})
    problem = f"no line has a label, but each ends in a blank and one of {', '.join(words[:3])}."
    return problem, "Put a tab in front of it: sed -E 's/ +([^ ]+)$/\\t\\1/'."


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), Mapping)
    except ValueError:
        return False


def cut(lines: Sequence[str], delimiter: str) -> list[Row]:
    """Return lines split at a delimiter; at commas and semicolons by the rules of quotes, [] if these are violated."""
    if delimiter not in QUOTED_BY_CUSTOM:
        return [line.split(delimiter) for line in lines]
    rows: list[Row] = []
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        rows.extend(reader)
    except csv.Error:
        return rows if reader.line_num == len(lines) else []  # a quoted cell may continue after the last line here
    return rows


def _few_values(rows: Sequence[Row], width: int) -> bool:
    """Return whether some column looks like labels."""
    return any(repeats({row[column] for row in rows}, len(rows)) for column in range(width))


def repeats(values: Collection[str], rows: int) -> bool:
    """Return whether the distinct values of a column with `rows` rows are few and short, like labels."""
    return len(values) <= min(max(3, rows // 5), rows // 2) and all(0 < len(value) <= 40 for value in values)


def _ends_in_labels(lines: Sequence[str], texts: int, labels: Collection[str]) -> bool:
    """Return whether the last words of lines are few enough to be labels.

    Unless they are numbers or two spaces precede them, they must be fewer, and among the known labels if there are any.
    """
    words = [line.split() for line in lines]
    last = {each[-1] for each in words if each}
    apart = all("  " in line.strip() for line in lines) or all(number_of(word) is not None for word in last)
    return (
        1 < len(last) <= max(2, len(words) // (10 if apart else 50))
        and (apart or not labels or set(map(folded, last)) <= set(labels))
        and all(len(each) > texts for each in words)
        and all(word.isalnum() for word in last)
    )
