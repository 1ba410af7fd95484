"""The base class of loaders: from rows of columns to records of named texts, with or without a label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xdpx.config.faults import wrong_return
from xdpx.config.parameters import Parameters as BaseParameters
from xdpx.config.parameters import param
from xdpx.loaders.parsers.base import BadLine, Row, Rows, wrong_width

Record = Mapping[str, str]
"""The texts of one record by field name, and `target` with the label if it has one."""


class Answer(NamedTuple):
    """The answers to a question about a text.

    Attributes:
        begin, end: characters of the text that are the answer to learn, `text[begin:end]`; both 0 if there is none.
        right: all right answers, one per line; '' if there are none.
        moved: whether the answer was not found where the file says it begins.
    """

    begin: int = 0
    end: int = 0
    right: str = ""
    moved: bool = False


class Records(NamedTuple):
    """Records of a block, column by column.

    Attributes:
        fields: field name -> the text of each record.
        targets: the label of each record; None if the file is unlabelled.
        lines: line (from 1) where each record begins.
        bad: lines that could not be used.
        logits: the teacher's logits for each record, empty if missing; None if there is no such column.
        queries: name of the query that each record is a candidate for; None if there are no queries.
        answers: the answers in the last text of each record; None unless the loader has `has_answers`.
    """

    fields: dict[str, list[str]]
    targets: list[str] | None
    lines: Sequence[int]
    bad: list[BadLine]
    logits: list[list[float]] | None = None
    queries: list[str] | None = None
    answers: list[Answer] | None = None


class Blocks(NamedTuple):
    """Concatenated rows of token ids, like the tokenizers' `Encoded`: row i is values[offsets[i]:offsets[i + 1]]."""

    values: NDArray[np.int32]
    offsets: NDArray[np.int64]


class Merger:
    """Joins encoded texts into blocks. Texts are fed in file order, so the result does not depend on workers."""

    def feed(self, texts: Blocks, borders: NDArray[np.bool_]) -> Blocks:
        """Add texts, and return the blocks that are complete. `borders` (N,) marks texts that separate documents."""
        raise NotImplementedError

    def finish(self) -> Blocks:
        """Return the remaining blocks at the end of the file."""
        raise NotImplementedError

    def wanted(self, texts: Blocks, num_special: int) -> NDArray[np.int64]:
        """Return the smallest `max_len` at which each text is not cut, (N,); 0 for texts that may be cut anywhere.

        Args:
            texts: as they are fed, before anything is cut.
            num_special: tokens of `max_len` that the processor reserves for special ones.
        """
        return np.diff(texts.offsets) + num_special


class Loader:
    """Converts the columns of a file to records.

    Attributes:
        text_fields: names of the texts of a record, in the order of the columns.
        before: names of columns before the texts.
        between: names of optional columns between the texts and the label.
        num_targets: number of label columns after the texts: 1, or 0 if there is never one.
        marks_words: whether words are separated by spaces, so that the first token of each is marked.
        has_answers: whether records have answers, i.e. parts of their last text, in place of a label.
        keeps_words: whether a word for which the tokenizer returns nothing becomes an unknown token, to keep it.
    """

    text_fields: ClassVar[tuple[str, ...]] = ("text",)
    num_targets: ClassVar[int] = 1
    before: ClassVar[tuple[str, ...]] = ()
    between: ClassVar[tuple[str, ...]] = ()
    marks_words: ClassVar[bool] = False
    has_answers: ClassVar[bool] = False
    keeps_words: ClassVar[bool] = False

    class Parameters(BaseParameters):
        """Keys of every loader."""

        lower: bool = param(True, doc="Convert texts to lower case; labels are kept as written.")
        remove_duplicate: bool = param(False, doc="Drop lines that occurred before in the same file.")
        skip_bad_lines: bool = param(False, doc="Skip and count unusable lines; else stop at the first.")
        tokenizer: str = param(doc="How texts are split into tokens.", registry="tokenizer")
        label_separator: str | None = param(
            None, doc="Separator of labels, if a row may have several or none; null: one label per row."
        )
        parser: str = param("csv", doc="How files are split into columns.", registry="parser")

    def __init__(self, parameters: Parameters) -> None:
        self.parameters: Any = parameters

    @property
    def gives_words(self) -> bool:
        """Whether samples also contain the words of texts, as ids of a separate vocabulary."""
        return False

    @property
    def several_labels(self) -> bool:
        """Whether a row may have several labels, or none."""
        return bool(self.parameters.label_separator)

    def labels_of(self, target: str) -> list[str]:
        """Return the labels in a cell, in order, without duplicates (case is ignored)."""
        separator = self.parameters.label_separator
        if not separator:
            return [target]
        labels = (label.strip() for label in target.split(separator))
        return list({label.lower(): label for label in labels if label}.values())

    @property
    def num_sections(self) -> int:
        """Number of columns of an unlabelled line, without those in `before` and `between`."""
        return len(self.text_fields)

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of these columns: the text fields, unless a record has more or fewer texts than a line columns."""
        if len(self.text_fields) == self.num_sections:
            return self.text_fields
        return tuple(f"text{number}" for number in range(1, self.num_sections + 1))

    def is_labelled(self, row: Row) -> bool | None:
        """Return whether a file is labelled, judged by its first row; None if the number of columns fits neither."""
        if len(row) == self.num_sections:
            return False
        return True if self.num_targets and len(row) == self.num_sections + self.num_targets else None

    def are_answered(self, rows: Sequence[Row]) -> bool:
        """Return whether all rows have answers to score predictions by, which are not labels."""
        del rows
        return False

    def expected(self) -> str:
        """Return a description of the columns of a line, for messages."""
        names = ", ".join(self.column_names)
        return f"{names} and a label, or {names} alone" if self.num_targets else names

    def parse(self, columns: Row, labelled: bool) -> Record:
        """Return one record. Override this in your own loader.

        Raises:
            ValueError: the columns are invalid; the message says why and is shown in the report.
        """
        record = dict(zip(self.text_fields, columns, strict=False))
        if labelled:
            record["target"] = columns[self.num_sections]
        return record

    def records(self, rows: Rows, *, labelled: bool) -> Records:
        """Return the records of a block: column by column, or row by row if a subclass overrides `parse`."""
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
        """Return the records without those whose label is empty, unless a row may have several labels or none."""
        return records if self.several_labels else _drop_empty_labels(records)

    def _one_by_one(self, rows: Rows, labelled: bool) -> Records:
        parsed: list[Record] = []
        lines: list[int] = []
        bad = list(rows.bad)
        for line, row in zip(rows.lines, rows.rows, strict=True):
            try:
                record = self.parse(row, labelled)
            except ValueError as error:
                bad.append(BadLine(line, str(error)))
                continue
            self._refuse_other_record(record, line, labelled=labelled)
            parsed.append(record)
            lines.append(line)
        fields = {name: [record[name] for record in parsed] for name in self.text_fields}
        targets = plain_labels([record["target"] for record in parsed]) if labelled else None
        return self._labelled(Records(fields, targets, lines, sorted(bad)))

    def _refuse_other_record(self, record: object, line: int, *, labelled: bool) -> None:
        """Raise ConfigError if a user's `parse` returns no record, or one without a text or label."""
        wanted = [*self.text_fields, *["target"] * labelled]
        found = f"{type(record).__name__}"
        if isinstance(record, Mapping):
            values = {name: record.get(name) for name in wanted}
            if all(isinstance(value, str) for value in values.values()):
                return
            found = f"{values}"
        remedy = f"Return a dict with texts for {', '.join(wanted)}; raise ValueError for a line that yields none."
        raise wrong_return("loader", self, "parse", f"{found:.80} for line {line}", remedy)

    def meta(self, labels: Sequence[str]) -> dict[str, Any]:
        """Return entries of meta.hjson that training needs. `labels` are in the order of their class numbers."""
        del labels
        return {"several_labels": True} if self.several_labels else {}

    def merger(self, max_len: int) -> Merger | None:
        """Return a merger that joins records into blocks of at most `max_len` tokens; None if each is a sample."""
        del max_len
        return None


def plain_labels(labels: Sequence[str]) -> list[str]:
    """Return labels without white space around them; their case is not changed."""
    plain = {label: label.strip() for label in set(labels)}
    return [plain[label] for label in labels]


def _of_width(rows: Rows, width: int) -> Rows:
    """Return the rows with `width` columns, and the others as bad. If `width` is not 1, blank lines are skipped."""
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
