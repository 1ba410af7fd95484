"""What every loader does: rows of columns -> records of named texts, with a label or without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xdpx.config.parameters import Parameters as BaseParameters
from xdpx.config.parameters import param
from xdpx.loaders.parsers.base import BadLine, Row, Rows, wrong_width

Record = Mapping[str, str]
"""The texts of one record by field name, and `target`, the label, where there is one."""


class Records(NamedTuple):
    """Records of a block, column by column.

    Attributes:
        fields: field name -> the text of each record.
        targets: the label of each record; None when the file is unlabelled.
        lines: 1-based line where each record begins.
        bad: lines that gave no record.
        logits: what a teacher thinks of each record, empty where it said nothing; None when there is no such column.
        queries: name of the query that each record is a candidate of; None when there are no queries.
    """

    fields: dict[str, list[str]]
    targets: list[str] | None
    lines: Sequence[int]
    bad: list[BadLine]
    logits: list[list[float]] | None = None
    queries: list[str] | None = None


class Blocks(NamedTuple):
    """Rows of token ids laid end to end, like the tokenizers' `Encoded`: row i is values[offsets[i]:offsets[i + 1]]."""

    values: NDArray[np.int32]
    offsets: NDArray[np.int64]


class Merger:
    """Joins encoded texts that belong together. Fed in file order, so the result does not depend on workers."""

    def feed(self, texts: Blocks, borders: NDArray[np.bool_]) -> Blocks:
        """Add texts; return the blocks that are complete. `borders` marks texts that separate documents."""
        raise NotImplementedError

    def finish(self) -> Blocks:
        """Return what is left at the end of the file."""
        raise NotImplementedError

    def wanted(self, texts: Blocks, num_special: int) -> NDArray[np.int64]:
        """Return the `max_len` at which each text stays whole, (N,); 0 for texts that may be cut anywhere.

        Args:
            texts: as they are fed, before anything is cut.
            num_special: tokens of `max_len` that the processor takes for special ones.
        """
        return np.diff(texts.offsets) + num_special


class Loader:
    """Make records of the columns of a file.

    Attributes:
        text_fields: names of the texts of a record, in the order of the columns.
        before: names of the columns that stand in front of the texts.
        between: names of the columns that may stand between the texts and the label.
        num_targets: how many columns behind the texts are labels: 1, or 0 when there is never one.
        marks_words: whether a space in a text ends a word, so that the first token of each can be marked.
        listed_fields: names of texts that hold several, one per line, so that the first token of each can be marked.
        keeps_words: whether a word that the tokenizer makes nothing of is an unknown token, so that none is lost.
    """

    text_fields: ClassVar[tuple[str, ...]] = ("text",)
    num_targets: ClassVar[int] = 1
    before: ClassVar[tuple[str, ...]] = ()
    between: ClassVar[tuple[str, ...]] = ()
    marks_words: ClassVar[bool] = False
    listed_fields: ClassVar[tuple[str, ...]] = ()
    keeps_words: ClassVar[bool] = False

    class Parameters(BaseParameters):
        """What every loader can be told."""

        lower: bool = param(True, doc="Turn texts into lower case; labels stay as they are written.")
        remove_duplicate: bool = param(False, doc="Drop lines that came before in the same file.")
        skip_bad_lines: bool = param(
            False, doc="Skip lines that cannot be used, and count them; else stop at the first."
        )
        tokenizer: str = param(doc="How texts are cut into tokens.", registry="tokenizer")
        label_separator: str | None = param(
            None, doc="What stands between labels where a row may have several, or none; null: one label per row."
        )
        parser: str = param("csv", doc="How files are cut into columns.", registry="parser")

    def __init__(self, parameters: Parameters) -> None:
        self.parameters: Any = parameters

    @property
    def gives_words(self) -> bool:
        """Whether samples hold the words of texts, numbered by a vocabulary of their own, beside their tokens."""
        return False

    @property
    def several_labels(self) -> bool:
        """Whether a row may have several labels, or none."""
        return self.parameters.label_separator is not None

    def labels_of(self, target: str) -> list[str]:
        """Return the labels that a cell stands for: each once (case does not count), in its order."""
        separator = self.parameters.label_separator
        if separator is None:
            return [target]
        labels = (label.strip() for label in target.split(separator))
        return list({label.lower(): label for label in labels if label}.values())

    @property
    def num_sections(self) -> int:
        """How many columns an unlabelled line has."""
        return len(self.text_fields)

    def is_labelled(self, row: Row) -> bool | None:
        """Tell from a file's first row whether the file is labelled; None when it has neither number of columns."""
        if len(row) == self.num_sections:
            return False
        return True if self.num_targets and len(row) == self.num_sections + self.num_targets else None

    def expected(self) -> str:
        """Return in words which columns a line must have."""
        names = ", ".join(self.text_fields)
        return f"{names} and a label, or {names} alone" if self.num_targets else names

    def parse(self, columns: Row, labelled: bool) -> Record:
        """Make one record. Override this in a loader of your own.

        Raises:
            ValueError: the columns make no record; the text says why and ends up in the report.
        """
        record = dict(zip(self.text_fields, columns, strict=False))
        if labelled:
            record["target"] = columns[self.num_sections]
        return record

    def records(self, rows: Rows, *, labelled: bool) -> Records:
        """Make the records of a block. The shipped `parse` is done column by column, an own one row by row."""
        width = self.num_sections + (self.num_targets if labelled else 0)
        rows = _of_width(rows, width)
        if type(self).parse is not Loader.parse:
            return self._one_by_one(rows, labelled)
        columns = list(zip(*rows.rows, strict=True)) or [()] * width
        fields = {name: list(columns[index]) for index, name in enumerate(self.text_fields)}
        if not labelled:
            return Records(fields, None, rows.lines, rows.bad)
        return self._labelled(Records(fields, plain_labels(columns[width - 1]), rows.lines, rows.bad))

    def _labelled(self, records: Records) -> Records:
        """Sort out records without a label, unless a row may have none."""
        return records if self.several_labels else _drop_empty_labels(records)

    def _one_by_one(self, rows: Rows, labelled: bool) -> Records:
        parsed: list[Record] = []
        lines: list[int] = []
        bad = list(rows.bad)
        for line, row in zip(rows.lines, rows.rows, strict=True):
            try:
                parsed.append(self.parse(row, labelled))
                lines.append(line)
            except ValueError as error:
                bad.append(BadLine(line, str(error)))
        fields = {name: [record[name] for record in parsed] for name in self.text_fields}
        targets = plain_labels([record["target"] for record in parsed]) if labelled else None
        return self._labelled(Records(fields, targets, lines, sorted(bad)))

    def meta(self, labels: Sequence[str]) -> dict[str, Any]:
        """Return what training must know of the records, whose labels are these, in the order of their classes."""
        del labels
        return {"several_labels": True} if self.several_labels else {}

    def merger(self, max_len: int) -> Merger | None:
        """Return what joins records into blocks of at most `max_len` tokens, or None when each record is a sample."""
        del max_len
        return None


def plain_labels(labels: Sequence[str]) -> list[str]:
    """Strip white space around labels; their case is never changed."""
    plain = {label: label.strip() for label in set(labels)}
    return [plain[label] for label in labels]


def _of_width(rows: Rows, width: int) -> Rows:
    """Sort out rows with another number of columns. Blank lines are nothing where a line has several columns."""
    if set(map(len, rows.rows)) <= {width}:
        return rows
    good: list[Row] = []
    lines: list[int] = []
    bad = list(rows.bad)
    for line, row in zip(rows.lines, rows.rows, strict=True):
        if len(row) == width:
            good.append(row)
            lines.append(line)
        elif row != [""]:
            bad.append(BadLine(line, wrong_width(row, f"not {width}")))
    return Rows(good, lines, sorted(bad))


def _drop_empty_labels(records: Records) -> Records:
    if records.targets is None or all(records.targets):
        return records
    keep = [index for index, target in enumerate(records.targets) if target]
    bad = [
        BadLine(records.lines[index], "has an empty label")
        for index, target in enumerate(records.targets)
        if not target
    ]
    return Records(
        {name: [texts[index] for index in keep] for name, texts in records.fields.items()},
        [records.targets[index] for index in keep],
        [records.lines[index] for index in keep],
        sorted([*records.bad, *bad]),
    )
