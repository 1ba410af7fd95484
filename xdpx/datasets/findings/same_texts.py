"""Find texts that occur in several rows: in training and held-out data, twice in training, or with two labels.

Letters: N rows.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xdpx.datasets.findings.finding import Finding, Severity
from xdpx.loaders.base import Records

MOST_ROWS = 1 << 21
"""Maximum number of rows kept, at 20 bytes each; beyond that, a sample of texts is used."""

MANY_SHARED = 0.01
"""Share of held-out rows that are in training from which it is a warning, because scores are affected."""

FEW_DUPLICATES = 0.01
"""Share of duplicate training rows from which it is reported."""

FEW_CONTRADICTIONS = 0.001
"""Ratio of texts with two labels to training rows from which it is a warning; below, it is noise."""


class TextKeys(NamedTuple):
    """Hashes of rows, for comparing them.

    Attributes:
        texts: 64-bit hash of the texts of each row, (N,).
        labels: 32-bit hash of its label, 0 if there is none, (N,).
        lines: line where each row begins, (N,).
    """

    texts: NDArray[np.uint64]
    labels: NDArray[np.uint32]
    lines: NDArray[np.int64]


def keys_of(records: Records) -> TextKeys:
    """Return the keys of records. White space around texts and their case are ignored."""
    columns = list(records.fields.values())
    texts = columns[0] if len(columns) == 1 else map("\x1f".join, zip(*columns, strict=True))
    digest = hashlib.blake2b
    joined = b"".join(digest(text.strip().lower().encode(), digest_size=8).digest() for text in texts)
    labels = np.zeros(len(records.lines), np.uint32)
    if records.targets is not None:
        known = {label: zlib.crc32(label.lower().encode()) for label in set(records.targets)}
        labels = np.fromiter((known[label] for label in records.targets), np.uint32, len(records.targets))
    return TextKeys(np.frombuffer(joined, np.uint64), labels, np.asarray(records.lines, np.int64))


class SameTexts:
    """The keys of rows of all splits, in bounded memory.

    If there are too many rows, only texts whose hash ends in one zero bit are kept, then in two, and so on. All rows of
    a kept text are known, in every split, so that shares are representative.
    """

    def __init__(self) -> None:
        self._splits: list[str] = []
        self._parts: list[tuple[int, TextKeys]] = []
        self._rows = 0
        self._mask = np.uint64(0)

    def add(self, split: str, keys: TextKeys) -> None:
        """Add rows of a split."""
        if split not in self._splits:
            self._splits.append(split)
        keys = self._kept(keys)
        self._parts.append((self._splits.index(split), keys))
        self._rows += len(keys.texts)
        while self._rows > MOST_ROWS:
            self._mask = self._mask * np.uint64(2) + np.uint64(1)
            self._parts = [(index, self._kept(each)) for index, each in self._parts]
            self._rows = sum(len(each.texts) for _, each in self._parts)

    def _kept(self, keys: TextKeys) -> TextKeys:
        if not self._mask:
            return keys
        keep = keys.texts & self._mask == 0
        return TextKeys(keys.texts[keep], keys.labels[keep], keys.lines[keep])

    def findings(
        self, trained: Mapping[str, bool], paths: Mapping[str, str], *, dropped: bool, classes: bool
    ) -> Iterator[Finding]:
        """Yield findings about leaked, duplicate and contradictory texts.

        Args:
            trained: whether each split is training data; if none is, all count as such for the latter two.
            paths: raw file of each split.
            dropped: whether duplicate rows were dropped.
            classes: whether labels are classes, of which each text has one.
        """
        if not self._rows:
            return
        table = _Table.of(self._parts)
        training = np.array([trained[split] for split in self._splits])
        yield from self._leaks(table, training, paths)
        training |= not training.any()
        if not dropped:
            yield from self._duplicates(table, training, paths)
        if classes:
            yield from self._contradictions(table, training, paths)

    def _leaks(self, table: _Table, training: NDArray[np.bool_], paths: Mapping[str, str]) -> Iterator[Finding]:
        """Compare each held-out split with all training splits; without any, each split with those before it."""
        for index, split in enumerate(self._splits):
            if training[index]:
                continue
            where = "training" if training.any() else "an earlier split"
            known = training[table.splits] if training.any() else table.splits < index
            groups = np.unique(table.groups[known])
            mine = np.flatnonzero(table.splits == index)
            shared = mine[np.isin(table.groups[mine], groups)]
            if not len(shared):
                continue
            here = shared[0]
            there = np.flatnonzero(known & (table.groups == table.groups[here]))[0]
            share = len(shared) / len(mine)
            problem = f"{len(shared):,} of {len(mine):,} texts ({share:.2%}) also occur in {where}{self._of_what}"
            problem += f", such as {self._at(table, here, paths)} = {self._at(table, there, paths)}."
            severity: Severity = "warning" if share >= MANY_SHARED else "note"
            yield Finding("leakage", severity, split, problem, "Scores on it are too good: remove them from one side.")

    def _duplicates(self, table: _Table, training: NDArray[np.bool_], paths: Mapping[str, str]) -> Iterator[Finding]:
        for index, split in enumerate(self._splits):
            mine = np.flatnonzero(table.splits == index)
            order = mine[np.lexsort((table.labels[mine], table.groups[mine]))]
            again = (np.diff(table.groups[order]) == 0) & (np.diff(table.labels[order].astype(np.int64)) == 0)
            if not training[index] or again.sum() < max(FEW_DUPLICATES * len(mine), 1):
                continue
            second = order[1:][again][0]
            first = order[:-1][again][0]
            problem = f"{again.sum():,} of {len(mine):,} rows repeat an earlier row of the split{self._of_what}"
            problem += f", such as {self._at(table, second, paths)} = {self._at(table, first, paths)}."
            yield Finding("duplicates", "warning", split, problem, "remove_duplicate: true drops them.")

    def _contradictions(
        self, table: _Table, training: NDArray[np.bool_], paths: Mapping[str, str]
    ) -> Iterator[Finding]:
        mine = np.flatnonzero(training[table.splits] & (table.labels != 0))
        order = mine[np.lexsort((table.labels[mine], table.groups[mine]))]
        differ = (np.diff(table.groups[order]) == 0) & (np.diff(table.labels[order].astype(np.int64)) != 0)
        if not differ.any():
            return
        first, second = order[:-1][differ][0], order[1:][differ][0]
        texts = len(np.unique(table.groups[order[1:][differ]]))
        have = "1 text has" if texts == 1 else f"{texts:,} texts have"
        problem = f"{have} two labels or more{self._of_what}, such as {self._at(table, first, paths)} and"
        problem += f" {self._at(table, second, paths)}."
        place = self._splits[int(table.splits[first])]
        severity: Severity = "warning" if texts >= FEW_CONTRADICTIONS * len(mine) else "note"
        yield Finding("contradictions", severity, place, problem, "Decide which is right: no model can learn both.")

    def _at(self, table: _Table, row: int, paths: Mapping[str, str]) -> str:
        return f"{paths[self._splits[int(table.splits[row])]]}:{table.lines[row]}"

    @property
    def _of_what(self) -> str:
        return f" (counted in one of {int(self._mask) + 1} texts)" if self._mask else ""


class _Table(NamedTuple):
    """All rows that are kept: the index of the text of each, its split, label and line, (N,)."""

    groups: NDArray[np.int64]
    splits: NDArray[np.int64]
    labels: NDArray[np.uint32]
    lines: NDArray[np.int64]

    @classmethod
    def of(cls, parts: Sequence[tuple[int, TextKeys]]) -> _Table:
        texts = np.concatenate([each.texts for _, each in parts])
        splits = np.concatenate([np.full(len(each.texts), index) for index, each in parts])
        labels = np.concatenate([each.labels for _, each in parts])
        lines = np.concatenate([each.lines for _, each in parts])
        return cls(np.unique(texts, return_inverse=True)[1], splits, labels, lines)
