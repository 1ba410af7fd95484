"""Guess which columns of a table are texts, which one is the label, and the kind of task."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from xdpx.config.faults import did_you_mean
from xdpx.datasets.findings.labels import NOTHINGS
from xdpx.datasets.findings.raw_files import LABEL_NAMES, repeats
from xdpx.datasets.guessing.decimals import are_decimals, with_point
from xdpx.datasets.guessing.decision import Decision, Wishes, question
from xdpx.datasets.guessing.lists import LISTED
from xdpx.datasets.guessing.reading import Table
from xdpx.datasets.guessing.tagging import are_tags
from xdpx.tokenizers.characters import IDEOGRAPHS
from xdpx.tokenizers.target_map import by_writing, folded, number_of

TASKS = ("class", "number", "several", "tags")
ID_NAMES = frozenset({"id", "idx", "index", "uid", "no", "key", "guid", "qid", "#1 id", "#2 id", "编号", "序号"})
BAR = "|"
SEPARATORS = (BAR, ";", ",", "/", "、", "；", "，")
_MOMENT = re.compile(
    r"(?:\d{4}[-/.年]\d{1,2}[-/.月]\d{1,2}日?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})(?:[ T]\d{1,2}:\d{2}\S*(?: ?[AP]M)?)?"
    r"|\d{1,2}:\d{2}(?::\d{2})?"
)
"""A date, optionally with a time, or only a time."""
_WITHOUT_BLANKS = re.compile(rf"[{IDEOGRAPHS}\u3040-\u30ff]")

FEWEST_ROWS = 20
"""Minimum number of rows for training and evaluation."""

MOST_CLASSES = 20
"""Maximum number of distinct whole numbers that are classes; more are regression targets."""


@dataclass(frozen=True)
class Columns:
    """The roles of the columns of a table.

    Attributes:
        texts: positions of one or two columns.
        label: position of the label.
        task: one of TASKS.
        separator: of the labels of a row, for the task `several`.
        characters: whether texts are split into characters, because their language has no spaces between words.
        commas: whether labels are numbers with a decimal comma.
    """

    texts: tuple[int, ...]
    label: int
    task: str
    separator: str = ""
    characters: bool = False
    commas: bool = False

    def texts_of(self, row: Sequence[str]) -> list[str]:
        """Return the texts of a row; the words of a list with blanks between them."""
        return [row[column].replace(LISTED, " ").strip() for column in self.texts]

    def label_of(self, row: Sequence[str]) -> str:
        """Return the label of a row; several of a list with a bar between them, a number with a point."""
        cell = row[self.label].replace(LISTED, BAR).strip()
        return with_point(cell) if self.commas else cell


def columns_of(table: Table, wishes: Wishes) -> tuple[Columns, list[Decision]]:
    """Return the roles of the columns, and the decisions about texts, label, task and language.

    Raises:
        ConfigError: something cannot be guessed, and the message asks for it; or the data are not usable.
    """
    if len(table.rows) < FEWEST_ROWS:
        problem = f"holds {len(table.rows)} rows with labels; {FEWEST_ROWS} are the minimum to train and evaluate on."
        raise question(table.path, "file", problem, "Provide more rows, or write your own configs: x-init --list.")
    if table.tagged:
        if len(tags := _tags(table)) < 2:
            problem = f"is {tags[0]!r:.40} for every word: there is nothing to find."
            raise question(table.path, "label", problem, "Is it the right column, and the whole file?")
        columns = Columns((0,), 1, "tags", characters=False)
        return columns, [Decision("task", f"tags: {listed(tags)}", "certain")]
    if wishes.task is None:
        _refuse_tags(table)
    label, label_sure = _label(table, wishes)
    if not any(map(is_label, _cells(table, label))):
        problem = f"column '{table.names[label]}' holds no label in any row."
        remedy = "Fill it; formulas of a workbook have no values until a spreadsheet program has saved it."
        raise question(table.path, "label", problem, remedy)
    texts, texts_sure = _texts(table, label, wishes)
    cells = _cells(table, label)
    commas = not wishes.label_separator and are_decimals(cells) and not _separator(list(filter(None, cells)))
    if commas:
        rows = [
            [with_point(cell) if column == label else cell for column, cell in enumerate(row)] for row in table.rows
        ]
        table = replace(table, rows=rows)
    task, separator, task_sure = _task(table, label, wishes)
    if task == "class":
        _refuse_one_class(table, label)
    sample = [row[column] for row in table.rows[:1000] for column in texts]
    characters = is_without_blanks(sample)
    language = "cut into characters (Chinese, Japanese)" if characters else "words separated by spaces"
    named = " and ".join(f"'{table.names[column]}'" for column in texts)
    columns = Columns(texts, label, task, separator, characters, commas)
    unused = [f"'{name}'" for column, name in enumerate(table.names) if column not in {*texts, label}]
    return columns, [
        *([Decision("unused", listed(unused, 8), "likely")] if unused else []),
        Decision("text" if len(texts) == 1 else "pair", named, texts_sure, f"text={','.join(_key(table, texts))}"),
        Decision("label", f"'{table.names[label]}'", label_sure, f"label={_key(table, [label])[0]}"),
        *([Decision("numbers", "3,5 is read as 3.5", "likely", "label_separator=','")] if commas else []),
        Decision("task", _task_shown(table, columns), task_sure, f"task={'|'.join(TASKS[:3])}"),
        Decision("language", language, "certain", "tokenizer=..."),
    ]


def _key(table: Table, columns: Sequence[int]) -> list[str]:
    return [table.names[column] if table.named else str(column + 1) for column in columns]


def _position(table: Table, key: str, wish: str) -> int:
    """Return the position of a column given by name, or by number from 1."""
    if wish in table.names:
        return table.names.index(wish)
    if wish.isdecimal() and 1 <= int(wish) <= len(table.names):
        return int(wish) - 1
    remedy = did_you_mean(wish, table.names, f"There are: {', '.join(table.names)}.")
    raise question(table.path, key, f"there is no column '{wish}'.", remedy)


def _cells(table: Table, column: int) -> list[str]:
    return [row[column].replace(LISTED, BAR).strip() for row in table.rows]


def _label(table: Table, wishes: Wishes) -> tuple[int, Any]:
    """Return (position of the label, how sure): by its name, else the only column with few distinct values."""
    if wishes.label is not None:
        return _position(table, "label", wishes.label), "given"
    wished = _wished_texts(table, wishes)
    free = [column for column in range(len(table.names)) if column not in wished]
    named = [column for column in free if _bare(table.names[column]) in LABEL_NAMES] if table.named else []
    free = [column for column in free if not _is_id(table, column)]
    good = [column for column in free if _is_like_labels(table, column)]
    if len(named) > 1:
        named = [column for column in named if column in good] or named
    if len(named) == 1:
        return named[0], "certain"
    found = named or good or [column for column in free if _are_numbers(table, column)]
    if len(found) == 1:
        return found[0], "likely" if len(table.names) > 2 else "certain"
    if not found:
        raise question(
            table.path, "label", f"no column looks like labels, of {listed(table.names)}.",
            "Name it: label=NAME. A classifier cannot be trained without labels.",
        )  # fmt: skip
    shown = " or ".join(f"label={key}" for key in _key(table, found))
    examples = "; ".join(f"{table.names[column]}: {listed(_few(table, column))}" for column in found)
    raise question(table.path, "label", f"could be one of {len(found)} columns ({examples}).", f"Choose: {shown}.")


def _wished_texts(table: Table, wishes: Wishes) -> list[int]:
    return [] if wishes.text is None else [_position(table, "text", name.strip()) for name in wishes.text.split(",")]


def _bare(name: str) -> str:
    """Return a name without numbers: quality for `#1 Quality`, label for `label_1`."""
    return folded(name).lstrip("#0123456789 ").rstrip("_0123456789 ")


def _is_id(table: Table, column: int) -> bool:
    """Return whether a column contains numbers, keys or dates of the rows."""
    name = folded(table.names[column])
    if table.named and (name in ID_NAMES or name.endswith(("_id", " id"))):
        return True
    cells = _cells(table, column)
    if any(cells) and all(_MOMENT.fullmatch(cell) for cell in cells if cell):
        return True
    if len(set(cells)) < len(cells):
        return False
    if all(cell.isdecimal() for cell in cells):
        numbers = [int(cell) for cell in cells]
        return sorted(numbers) == list(range(min(numbers), min(numbers) + len(numbers)))
    if all(number_of(cell) is not None for cell in cells):
        return False
    return all(cell.isascii() and " " not in cell and any(map(str.isdigit, cell)) and len(cell) <= 40 for cell in cells)


def _is_like_labels(table: Table, column: int) -> bool:
    cells = [cell for cell in _cells(table, column) if cell]
    return len(set(cells)) > 1 and (repeats(set(cells), len(cells)) or bool(_separator(cells)))


def _are_numbers(table: Table, column: int) -> bool:
    cells = [cell for cell in _cells(table, column) if cell]
    return bool(cells) and (all(number_of(cell) is not None for cell in cells) or are_decimals(cells))


def _few(table: Table, column: int) -> list[str]:
    return [value for value, _ in Counter(_cells(table, column)).most_common(3)]


def listed(values: Sequence[str], most: int = 4) -> str:
    """Return the first values, each cut to 30 characters, separated by commas."""
    return ", ".join(value if len(value) <= 30 else value[:27] + "..." for value in values[:most]) + (
        ", ..." if len(values) > most else ""
    )


def _tags(table: Table) -> list[str]:
    return sorted({tag for row in table.rows for tag in row[1].split()})


# ------------------------------------------------------------------------------------------------ texts


def _texts(table: Table, label: int, wishes: Wishes) -> tuple[tuple[int, ...], Any]:
    """Return (positions of the text, or of a pair, how sure): a pair has similar names, or is the only two columns."""
    wished = _wished_texts(table, wishes)
    if wished:
        if len(wished) > 2 or label in wished:
            raise question(
                table.path, "text", f"is {wishes.text}.", "Name one column, or two of a pair; not the label."
            )
        return tuple(wished), "given"
    there = [column for column in range(len(table.names)) if any(_cells(table, column))]
    free = [column for column in there if column != label and not _is_id(table, column)]
    texts = [column for column in free if not _is_like_labels(table, column) and not _are_numbers(table, column)]
    texts = texts or free
    if len(texts) == 1:
        return (texts[0],), "certain"
    pairs = [
        pair for pair in combinations(texts, 2) if table.named and _is_pair(table.names[pair[0]], table.names[pair[1]])
    ]
    if len(pairs) == 1:
        return pairs[0], "certain"
    if len(texts) == 2 and not table.named:
        return (texts[0], texts[1]), "likely"
    if not texts:
        raise question(table.path, "text", "no column is left for the text.", "Name it: text=NAME.")
    longest = max(texts, key=lambda column: sum(len(row[column]) for row in table.rows[:1000]))
    keys = _key(table, texts)
    problem = f"could be one of {listed([table.names[column] for column in texts], 8)}, or two of a pair."
    remedy = f"Choose: text={_key(table, [longest])[0]}, or text={keys[0]},{keys[1]} for a pair."
    raise question(table.path, "text", problem, remedy)


COUPLES = ({"premise", "hypothesis"}, {"question", "answer"}, {"question", "passage"}, {"query", "passage"},
           {"query", "document"}, {"query", "title"}, {"source", "target"}, {"question", "context"})  # fmt: skip


def _is_pair(one: str, other: str) -> bool:
    """Return whether two columns have names of a pair of texts: text1 and text2, sentence_a and sentence_b."""
    first, second = folded(one), folded(other)
    if {first, second} in COUPLES:
        return True
    stems = [name.strip("#0123456789_ -").removesuffix("_a").removesuffix("_b").strip() for name in (first, second)]
    return stems[0] == stems[1] and first != second


# ------------------------------------------------------------------------------------------------ task and language


def _task(table: Table, label: int, wishes: Wishes) -> tuple[str, str, Any]:
    """Return (task, separator of labels, how sure)."""
    cells = [cell for cell in _cells(table, label) if is_label(cell)]
    separator = wishes.label_separator or _separator(cells)
    if wishes.task is not None:
        if wishes.task not in TASKS[:3]:
            raise question(table.path, "task", f"is '{wishes.task}'.", f"Use one of {', '.join(TASKS[:3])}.")
        if wishes.task == "several" and not separator:
            raise question(table.path, "label_separator", "cannot be found.", "Give it: label_separator=',' .")
        return wishes.task, separator if wishes.task == "several" else "", "given"
    if wishes.label_separator:
        return "several", separator, "given"
    numbers = [number_of(cell) for cell in cells]
    if all(number is not None for number in numbers):
        values = set(numbers)
        whole = all(float(number).is_integer() for number in values if number is not None)
        if len(values) > MOST_CLASSES or not (whole or repeats(set(cells), len(cells))):
            return "number", "", "likely"
        return "class", "", "certain" if len(values) <= 3 else "likely"
    if separator:
        return "several", separator, "likely"
    signed = all(map(_WITH_SIGN.fullmatch, cells))
    if not repeats(set(cells), len(cells)) or (signed and len(set(cells)) > MOST_CLASSES):
        raise question(table.path, "label", *_why_no_labels(cells))
    return "class", "", "likely" if signed and len(set(cells)) > 3 else "certain"


_WITH_SIGN = re.compile(r"\W{0,3}\d[\d.,' ]*\W{0,3}")
"""A number with signs before or behind it, such as $5 or 40 %. Letters may be those of a code, such as C12."""
_WITH_UNIT = re.compile(r"\D{0,4}\d[\d.,' ]*\D{0,8}")
"""A number with a unit or separators of thousands: $1,200 or 5 kg."""


def _why_no_labels(cells: Sequence[str]) -> tuple[str, str]:
    """Return (problem, remedy) for a column of labels that has neither few different values nor numbers."""
    odd = [cell for cell in cells if number_of(cell) is None]
    problem = f"holds {len(set(cells)):,} different values in {len(cells):,} rows, such as {cells[0]!r:.40}."
    if 2 * len(odd) < len(cells):
        problem = f"holds numbers, except in {len(odd):,} of {len(cells):,} rows, such as {odd[0]!r:.40}."
        return problem, "Correct these rows, or leave them out. If it is another column: label=NAME."
    if all(map(_WITH_UNIT.fullmatch, odd)):
        return problem, "If these are numbers, write them plainly, such as 1234.5. If it is another column: label=NAME."
    return problem, "Is it the right column? Name another: label=NAME."


def _refuse_tags(table: Table) -> None:
    """Raise ConfigError if rows are words with a tag each, which would be learned without their sentence."""
    for column, name in enumerate(table.names):
        if are_tags(tags := {cell for cell in _cells(table, column) if cell}) and len(tags) > 1:
            shown = listed(sorted(tags, reverse=True), 3)
            problem = f"column '{name}' has the tag of a word in each row ({shown}), but rows are no sentences."
            remedy = "Write a word and its tag on each line, and a blank line between sentences; or give task=class."
            raise question(table.path, "file", problem, remedy)


def _refuse_one_class(table: Table, label: int) -> None:
    """Raise ConfigError if all rows have the same label, since any model would score 1."""
    classes = _classes(table, label)
    if len(classes) == 1:
        problem = f"is '{next(iter(classes))}' in every row: there is nothing to distinguish."
        raise question(table.path, "label", problem, "Is it the right column? Name another: label=NAME.")


def is_label(cell: str) -> bool:
    """Return whether a cell is a label, i.e. not empty and not a missing value as written by programs."""
    return bool(cell) and cell.lower() not in NOTHINGS


def _classes(table: Table, label: int) -> dict[str, int]:
    """Return the number of rows of each label, the most frequent first; case is ignored."""
    written = by_writing(Counter(cell for cell in _cells(table, label) if is_label(cell)))
    return dict(Counter({label: sum(writings.values()) for label, writings in written.items()}).most_common())


def _separator(cells: Sequence[str]) -> str:
    """Return the separator of several labels in a cell; '' if each cell is one label."""
    for separator in SEPARATORS:
        parts = [[part.strip() for part in cell.strip(separator).split(separator)] for cell in cells]
        several = sum(len(each) > 1 for each in parts)
        alone = {each[0] for each in parts if len(each) == 1}
        inside = {part for each in parts if len(each) > 1 for part in each}
        few = repeats({part for each in parts for part in each}, sum(map(len, parts)))
        as_lists = separator == BAR or len(inside & alone) >= len(inside) / 2
        if several >= len(cells) / 50 and few and as_lists:
            return separator
    return ""


def is_without_blanks(texts: Sequence[str]) -> bool:
    """Return whether over 30 % of the letters are Chinese characters or kana, languages without spaces."""
    letters = [letter for text in texts for letter in text[:200] if letter.isalpha()]
    return len(_WITHOUT_BLANKS.findall("".join(letters))) > 0.3 * len(letters)


def _task_shown(table: Table, columns: Columns) -> str:
    cells = [cell for cell in _cells(table, columns.label) if cell]
    if columns.task == "number":
        numbers = [float(number) for cell in cells if (number := number_of(cell)) is not None]
        return f"number, between {min(numbers, default=0):g} and {max(numbers, default=0):g}"
    if columns.task == "several":
        parts = Counter(part.strip() for cell in cells for part in cell.split(columns.separator) if part.strip())
        return f"several labels, separated by {columns.separator!r}, of {len(parts)}: {listed([*parts])}"
    classes = _classes(table, columns.label)
    return f"class, of {len(classes)}: " + listed([f"{label} ({count:,})" for label, count in classes.items()])
