"""The rows of all splits, or a sample if there are too many, each with its line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from xdpx.datasets.examining.words import Words, words_of
from xdpx.datasets.findings.finding import Code, Example, Finding, Severity
from xdpx.datasets.findings.looking import is_trained_on
from xdpx.datasets.raw_data import RawFile
from xdpx.loaders.base import Loader, Records
from xdpx.loaders.parsers.base import BadLine

MANY = 0.01
"""Share of rows from which a finding is a warning instead of a note."""
SHOWN = 3
LONGEST_SHOWN = 160
LONGEST_LABEL = 40
"""Maximum length of a label to show; longer ones, such as the tags of all words, are omitted."""
_SEPARATOR = "\n"


@dataclass(frozen=True)
class Sample:
    """Rows of some splits.

    Attributes:
        fields: name of the field -> the text of every row.
        labels: the label of every row, '' if its file has none.
        splits: index into `names` of each row, (N,).
        lines: line where each row begins in its file, (N,).
        names: of the splits.
        paths: file of each split.
        labelled: whether the rows of each split have labels.
        rows_seen: number of rows of each split, of which these are a sample.
        bad: the first lines that could not be used, by split.
        num_bad: number of lines that could not be used, by split.
        queries: name of the query of every row; empty if rows have none.
    """

    fields: Mapping[str, Sequence[str]]
    labels: Sequence[str]
    splits: NDArray[np.int64]
    lines: NDArray[np.int64]
    names: Sequence[str]
    paths: Sequence[str]
    labelled: Sequence[bool]
    rows_seen: Mapping[str, int]
    bad: Mapping[str, list[BadLine]] = field(default_factory=dict)
    num_bad: Mapping[str, int] = field(default_factory=dict)
    queries: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def is_whole(self) -> bool:
        """Whether all rows are in the sample."""
        return len(self) == sum(self.rows_seen.values())

    @cached_property
    def texts(self) -> Sequence[str]:
        """The texts of each row, joined by line feeds if there are several."""
        columns = list(self.fields.values())
        return columns[0] if len(columns) == 1 else list(map(_SEPARATOR.join, zip(*columns, strict=True)))

    @cached_property
    def words(self) -> Words:
        """Words of `texts`."""
        return words_of(self.texts)

    @cached_property
    def trained(self) -> NDArray[np.bool_]:
        """Which rows are training data, judged by the name of the split; all if no name says so, (N,)."""
        of_split = np.array([is_trained_on(name) for name in self.names], np.bool_)
        return (of_split | (not of_split.any()))[self.splits]

    @cached_property
    def classes(self) -> tuple[list[str], NDArray[np.int64]]:
        """(All labels, index of the label of each row, -1 without one, (N,)). Case is ignored."""
        numbers: dict[str, int] = {}
        written: list[str] = []
        found = np.full(len(self), -1, np.int64)
        for index, label in enumerate(self.labels):
            if label:
                key = label.strip().lower()
                if key not in numbers:
                    numbers[key] = len(written)
                    written.append(label)
                found[index] = numbers[key]
        return written, found

    def place(self, row: int) -> str:
        """Return file and line of a row."""
        return f"{self.paths[int(self.splits[row])]}:{self.lines[row]}"

    def labelled_as(self, row: int) -> str:
        """Return a clause with the label of a row, '' if it has none or a very long one."""
        label = self.labels[row]
        return f"labelled {label}" if 0 < len(label) <= LONGEST_LABEL else ""

    def example(self, row: int, said: str = "", around: int | None = None) -> Example:
        """Return a row as an example: its place, its texts shortened, and a remark.

        Args:
            row: its index.
            said: the remark; by default its label.
            around: position in its text that must be visible.
        """
        text = self.texts[row]
        start = max(0, around - LONGEST_SHOWN // 2) if around is not None else 0
        cut = ("… " if start else "") + text[start : start + 2 * LONGEST_SHOWN].replace(_SEPARATOR, " | ")
        said = said or self.labelled_as(row)
        cut = " ".join(cut.split())
        return Example(self.place(row), f"{cut[:LONGEST_SHOWN]} …" if len(cut) > LONGEST_SHOWN else cut, said)

    def finding(
        self,
        code: Code,
        rows: NDArray[np.int64],
        problem: str,
        remedy: str,
        *,
        examples: Sequence[Example] | None = None,
        severity: Severity | None = None,
    ) -> Finding:
        """Return a finding about some rows.

        Args:
            code: its name.
            rows: indices of the rows.
            problem: sentence, in which `{rows}` is replaced by the number of rows.
            remedy: what to do.
            examples: by default the first rows.
            severity: by default a warning if the share of rows is at least `MANY`, else a note.
        """
        share = len(rows) / max(len(self), 1)
        problem = problem.replace("{rows}", f"{len(rows):,} of {len(self):,} rows ({share:.2%})")
        shown = [self.example(int(row)) for row in rows[:SHOWN]] if examples is None else examples
        place = self.place(int(rows[0])) if len(rows) else ", ".join(self.names)
        severity = severity or ("warning" if share >= MANY else "note")
        return Finding(code, severity, place, problem, remedy, share=share, examples=tuple(shown))


def read_sample(
    files: Mapping[str, RawFile],
    loader: Loader,
    *,
    most: int,
    first_blocks: int | None = None,
    tell: Callable[[str, Records], object] = lambda split, records: None,
) -> Sample:
    """Return the rows of all splits, or a uniform sample of them if there are more than `most`.

    Args:
        files: by split.
        loader: converts their rows to records.
        most: maximum number of rows to keep.
        first_blocks: read only this number of blocks of each file.
        tell: called with the split and the records of each block that is read.
    """
    sampler = _Sampler(most)
    seen: dict[str, int] = {}
    bad: dict[str, list[BadLine]] = {}
    num_bad: dict[str, int] = {}
    for index, (split, file) in enumerate(files.items()):
        seen[split], bad[split], num_bad[split] = 0, [], 0
        for number, block in enumerate(file.blocks()):
            if first_blocks is not None and number >= first_blocks:
                break
            records = loader.records(file.parser.parse(block), labelled=file.labelled)
            sampler.add(index, records)
            tell(split, records)
            seen[split] += len(records.lines)
            num_bad[split] += len(records.bad)
            bad[split] = [*bad[split], *records.bad][:SHOWN]
    columns, labels, splits, lines, queries = sampler.columns(loader.text_fields)
    return Sample(
        columns, labels, splits, lines, list(files), [file.path for file in files.values()],
        [file.labelled for file in files.values()], seen, bad, num_bad, queries,
    )  # fmt: skip


class _Sampler:
    """Keeps the rows whose hashed line number has some bits equal to zero, with as few bits as memory allows."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._mask = np.uint64(0)
        self._parts: list[tuple[int, Records, NDArray[np.int64]]] = []
        self._rows = 0

    def add(self, split: int, records: Records) -> None:
        self._parts.append((split, records, np.arange(len(records.lines))))
        self._thin(len(self._parts) - 1)
        while self._rows > self._most:
            self._mask = self._mask * np.uint64(2) + np.uint64(1)
            self._rows = 0
            for index in range(len(self._parts)):
                self._thin(index)

    def _thin(self, index: int) -> None:
        split, records, kept = self._parts[index]
        if self._mask:
            numbers = np.asarray(records.lines, np.uint64)[kept] * np.uint64(0x9E3779B97F4A7C15)
            kept = kept[(numbers >> np.uint64(32)) & self._mask == 0]
            records = _taken(records, kept)
            kept = np.arange(len(kept))
        self._parts[index] = (split, records, kept)
        self._rows += len(kept)

    def columns(
        self, names: Sequence[str]
    ) -> tuple[dict[str, list[str]], list[str], NDArray[np.int64], NDArray[np.int64], list[str]]:
        fields = {name: [text for _, each, _ in self._parts for text in each.fields[name]] for name in names}
        labels = [label for _, each, _ in self._parts for label in each.targets or [""] * len(each.lines)]
        sizes = [len(kept) for _, _, kept in self._parts]
        splits = np.repeat(np.array([split for split, _, _ in self._parts], np.int64), sizes)
        lines = np.fromiter((line for _, each, _ in self._parts for line in each.lines), np.int64, sum(sizes))
        queries = [name for _, each, _ in self._parts for name in each.queries or ()]
        return fields, labels, splits, lines, queries


def _taken(records: Records, kept: NDArray[np.int64]) -> Records:
    places = kept.tolist()
    fields = {name: [texts[index] for index in places] for name, texts in records.fields.items()}
    targets = None if records.targets is None else [records.targets[index] for index in places]
    queries = None if records.queries is None else [records.queries[index] for index in places]
    return Records(fields, targets, [records.lines[index] for index in places], [], queries=queries)
