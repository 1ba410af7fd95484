"""Texts that stand in several rows: in training and in a test, twice in training, or under two labels.

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
"""Rows that are remembered at most, in 20 bytes each: beyond, a part of all texts stands for all."""

MANY_SHARED = 0.01
"""Share of held-out rows in training from which scores are moved."""

FEW_DUPLICATES = 0.01
"""A smaller share of training rows that came before needs no word."""

FEW_CONTRADICTIONS = 0.001
"""Share of training rows below which texts with two labels are mere noise."""


class TextKeys(NamedTuple):
    """What is remembered of some rows.

    Attributes:
        texts: 64 bits of the hash of the texts of each, (N,).
        labels: 32 bits of that of its label, 0 where there is none, (N,).
        lines: where each begins, (N,).
    """

    texts: NDArray[np.uint64]
    labels: NDArray[np.uint32]
    lines: NDArray[np.int64]


def keys_of(records: Records) -> TextKeys:
    """Return what is remembered of some records. Blanks around texts and their case do not count."""
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
    """Rows of all splits by their texts, in bounded memory.

    When there are too many rows, only texts are kept whose hash ends in a zero bit, then in two, and so on: of a text
    that is kept every row is known, in every split, so that shares are those of the whole.
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
        """Tell which texts stand where they should not.

        Args:
            trained: whether each split is one to train on; where none is, each may be.
            paths: raw file of each split.
            dropped: whether rows that came before were dropped.
            classes: whether labels are classes, of which a text has one.
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
        """Compare each held-out split with all that are trained on; without any, each with those before it."""
        for index, split in enumerate(self._splits):
            if training[index]:
                continue
            where = "training" if training.any() else "a split before"
            known = training[table.splits] if training.any() else table.splits < index
            groups = np.unique(table.groups[known])
            mine = np.flatnonzero(table.splits == index)
            shared = mine[np.isin(table.groups[mine], groups)]
            if not len(shared):
                continue
            here = shared[0]
            there = np.flatnonzero(known & (table.groups == table.groups[here]))[0]
            share = len(shared) / len(mine)
            problem = f"{len(shared):,} of {len(mine):,} texts ({share:.2%}) stand in {where} too{self._of_what}"
            problem += f", such as {self._at(table, here, paths)} = {self._at(table, there, paths)}."
            severity: Severity = "warning" if share >= MANY_SHARED else "note"
            yield Finding("leakage", severity, split, problem, "Its scores say too much: take them out of one.")

    def _duplicates(self, table: _Table, training: NDArray[np.bool_], paths: Mapping[str, str]) -> Iterator[Finding]:
        for index, split in enumerate(self._splits):
            mine = np.flatnonzero(table.splits == index)
            order = mine[np.lexsort((table.labels[mine], table.groups[mine]))]
            again = (np.diff(table.groups[order]) == 0) & (np.diff(table.labels[order].astype(np.int64)) == 0)
            if not training[index] or again.sum() < max(FEW_DUPLICATES * len(mine), 1):
                continue
            second = order[1:][again][0]
            first = order[:-1][again][0]
            problem = f"{again.sum():,} of {len(mine):,} rows came before in the same split{self._of_what}"
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
        yield Finding("contradictions", severity, place, problem, "Decide which is right: nothing can learn both.")

    def _at(self, table: _Table, row: int, paths: Mapping[str, str]) -> str:
        return f"{paths[self._splits[int(table.splits[row])]]}:{table.lines[row]}"

    @property
    def _of_what(self) -> str:
        return f" (counted in one of {int(self._mask) + 1} texts)" if self._mask else ""


class _Table(NamedTuple):
    """All rows that are remembered: the number of the text of each, its split, label and line, (N,)."""

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
