"""Read a file or folder of unknown format into rows of train, dev and test, with the decisions made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from xdpx.config.faults import ConfigError, nearest
from xdpx.datasets.findings.labels import NOTHINGS
from xdpx.datasets.guessing.class_folders import class_folders, read_class_folders
from xdpx.datasets.guessing.columns import FEWEST_ROWS, Columns, columns_of, is_label, listed
from xdpx.datasets.guessing.decision import Decision, Wishes, question
from xdpx.datasets.guessing.reading import Table, ending, read_table, sheets_of
from xdpx.datasets.guessing.splitting import SPLITS, data_files, nearest_file, split_rows, splits_among
from xdpx.tokenizers.target_map import folded
from xdpx.utils import io

SHARE = 0.1
"""Default share of the texts for each of dev and test."""


@dataclass
class Found:
    """The result: rows of each split, the roles of columns, and the decisions made."""

    columns: Columns
    rows: dict[str, list[list[str]]]
    decisions: list[Decision]


def look_at(path: str, wishes: Wishes, shares: Mapping[str, float]) -> Found:
    """Return the rows of a file or folder, split into train, dev and test.

    Args:
        path: the file or folder.
        wishes: the user's settings.
        shares: of the texts for `dev` and `test`, if they have no file of their own.

    Raises:
        ConfigError: something cannot be guessed, and the message asks for it; or the data are not usable.
    """
    if not io.exists(path):
        near = nearest_file(path)
        raise question(path, "file", "does not exist.", f"Did you mean '{near}'?" if near else "Correct the path.")
    sources, of_files = _sources(path, wishes)
    first = "train" if "train" in sources else ""
    table, of_table = _read(*sources[first])
    columns, of_columns = columns_of(table, wishes)
    tables = {split: table if split == first else _other(*source, table) for split, source in sources.items()}
    rows = {split: _usable(each, columns) for split, each in tables.items()}
    split, how = _split(rows, columns, shares)
    _refuse_empty(path, split)
    for name, source in sources.items():
        _refuse_other_labels(source[0], split[name or "train"], split["train"], columns)
    decisions = [*of_files, *of_table, *_left_out(tables, rows, columns), *of_columns, how]
    return Found(columns, split, decisions)


def _sources(path: str, wishes: Wishes) -> tuple[dict[str, tuple[str, Wishes]], list[Decision]]:
    """Return (split -> (file or folder of texts, settings), decisions); one to be split has the key ''.

    A workbook may have one sheet per split.
    """
    if io.isdir(path):
        found, decisions = _inside(path)
        return {split: (each, wishes) for split, each in found.items()}, decisions
    sheets = splits_among(sheets_of(path)) if wishes.sheet is None else {}
    if not sheets:
        return {"": (path, wishes)}, []
    shown = ", ".join(f"'{sheet}' for {split}" for split, sheet in sheets.items())
    of_sheets = {split: (path, replace(wishes, sheet=sheet)) for split, sheet in sheets.items()}
    return of_sheets, [Decision("sheets", shown, "likely", "sheet=...")]


def _inside(folder: str) -> tuple[dict[str, str], list[Decision]]:
    """Return (split -> file or folder of texts, decisions) of a folder; one to be split has the key ''.

    A folder has one file per split, or a single one; or a folder of texts per label, which may be inside one per split.
    """
    files = data_files(folder)
    if found := splits_among(files):
        shown = ", ".join(f"{io.name(file)} for {split}" for split, file in found.items())
        others = [io.name(file) for file in files if file not in found.values()]
        rest = f"; not read: {listed(others, 8)}" if others else ""
        return found, [Decision("files", shown + rest, "likely" if others else "certain")]
    inner = [io.join(folder, name) for name in sorted(map(io.name, io.listdir(folder)))]
    if found := splits_among([each for each in inner if io.isdir(each) and class_folders(each)]):
        shown = ", ".join(f"{io.name(each)}/ for {split}" for split, each in found.items())
        return found, [Decision("folders", shown, "certain")]
    texts = sum(map(len, class_folders(folder).values()))
    if texts >= FEWEST_ROWS and all(ending(file) == ".txt" for file in files):  # such as a readme
        return {"": folder}, []
    if len(files) == 1:
        return {"": files[0]}, [Decision("file", f"{io.name(files[0])}, the only file in the folder", "certain")]
    names = ", ".join(io.name(file) for file in files[:4]) + (", ..." if len(files) > 4 else "")
    holds = f" It holds {names}." if files else ""
    remedy = f"Name a file, or call it train.csv; or give each label a folder of texts, as train/good/1.txt.{holds}"
    raise question(folder, "file", "is a folder without a file called train.", remedy)


def _read(path: str, wishes: Wishes) -> tuple[Table, list[Decision]]:
    return read_class_folders(path, wishes) if io.isdir(path) else read_table(path, wishes)


def _other(path: str, wishes: Wishes, first: Table) -> Table:
    """Return the table of another split, with its columns in the order of the first one's."""
    try:
        table = _read(path, wishes)[0]
    except ConfigError:
        if not first.delimiter or wishes.delimiter:
            raise
        table = read_table(path, replace(wishes, delimiter=first.delimiter))[0]  # one column, for instance
    if table.named and first.named and table.names != first.names:
        missing = [name for name in first.names if name not in table.names]
        if missing:
            near = nearest(missing[0], table.names)
            remedy = (
                f"Is it called '{near}' there?"
                if near
                else "Use the same columns in both; rows to predict go to x-pred."
            )
            raise question(table.path, "file", f"has no column '{missing[0]}', as {first.path} has.", remedy)
        order = [table.names.index(name) for name in first.names]
        return replace(table, names=first.names, rows=[[row[index] for index in order] for row in table.rows])
    if len(table.names) != len(first.names):
        problem = f"has {len(table.names)} columns, but {first.path} has {len(first.names)}."
        raise question(table.path, "file", problem, "Use the same columns in both; rows to predict go to x-pred.")
    return table


def _usable(table: Table, columns: Columns) -> list[list[str]]:
    """Return the texts and the label of all rows that have both; with several labels, the label may be empty."""
    rows = [[*columns.texts_of(row), columns.label_of(row)] for row in table.rows]
    return [row for row in rows if all(row[:-1]) and (is_label(row[-1]) or columns.task == "several")]


def _left_out(tables: Mapping[str, Table], rows: Mapping[str, Sequence[Any]], columns: Columns) -> list[Decision]:
    """Return a decision about rows that cannot be used, if there are any."""
    lines = [line for each in tables.values() for line in each.left_out]
    missing = sum(len(tables[split].rows) - len(rows[split]) for split in tables)
    if missing:
        labels = {row[columns.label].strip() for table in tables.values() for row in table.rows}
        nothings = sorted(label for label in labels if label.lower() in NOTHINGS)
        lines.append(f"{missing:,} rows without a text or a label" + (f" (or with {nothings[0]})" if nothings else ""))
    more = f", and {len(lines) - 2:,} more" if len(lines) > 2 else ""
    return [Decision("left out", "; ".join(lines[:2]) + more, "certain")] if lines else []


def _split(
    rows: Mapping[str, list[list[str]]], columns: Columns, shares: Mapping[str, float]
) -> tuple[dict[str, list[list[str]]], Decision]:
    """Return the three splits: a single file is split, and dev or test is taken from train if it has no file."""
    given = [split for split in SPLITS if split in rows]
    whole = rows[""] if "" in rows else rows["train"]
    wanted = {split: 0.0 if split in given else shares[split] for split in ("dev", "test")}
    classes = columns.task == "class"
    texts = ["\n".join(sorted(row[:-1])) for row in whole]  # a pair the other way round stays beside it
    parts = split_rows(texts, [row[-1] if classes else "" for row in whole], dev=wanted["dev"], test=wanted["test"])
    split = {name: [row for row, part in zip(whole, parts, strict=True) if part == name] for name in SPLITS}
    split |= {name: rows[name] for name in given if name != "train"}
    sizes = " / ".join(f"{len(split[name]):,}" for name in SPLITS)
    how = "as the files are" if len(given) == len(SPLITS) else "by a hash of the text, equal texts together"
    return split, Decision("split", f"train / dev / test = {sizes}, {how}", "certain", f"dev={SHARE} test={SHARE}")


def _refuse_other_labels(
    path: str, rows: Sequence[Sequence[str]], trained: Sequence[Sequence[str]], columns: Columns
) -> None:
    """Raise ConfigError if no label of a file is one of training, as if columns are in another order."""
    found, known = ({folded(row[-1]): row[-1] for row in each} for each in (rows, trained))
    if columns.task == "class" and not found.keys() & known.keys():
        shown, wanted = listed(sorted(found.values()), 3), listed(sorted(known.values()), 3)
        problem = f"has none of the labels of training ({wanted}), but {shown}."
        raise question(path, "label", problem, "Write them alike, with the columns in the same order.")


def _refuse_empty(path: str, split: Mapping[str, Sequence[Sequence[str]]]) -> None:
    """Raise ConfigError if a split has no rows."""
    empty = [name for name in SPLITS if not split[name]]
    if not empty:
        return
    rows = [row for each in split.values() for row in each]
    if len({tuple(row[:-1]) for row in rows}) == 1:
        problem = f"is {rows[0][0]!r:.40} in all {len(rows):,} rows."
        raise question(path, "text", problem, "Is it the right column? Name another: text=NAME.")
    problem = f"leaves no rows for {' and '.join(empty)}: no label has three different texts."
    raise question(path, "label", problem, "Is it the right column? Name another: label=NAME; or give more rows.")
