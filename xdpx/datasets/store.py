"""Open the samples of a split: `<split>.pt`, mapped into memory, or `<split>.jsonl`, read line by line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from xdpx.datasets.archive import FORMAT, StoreError, map_archive
from xdpx.logger import log
from xdpx.processors.samples import Column, Integers, Ragged, Samples, concatenate, offsets_of
from xdpx.utils import commit, io
from xdpx.utils.verified import RESOURCES, has_damaged_manifest, trouble_of

__all__ = ["AGAIN", "FORMAT", "SUFFIXES", "SplitFormat", "Store", "StoreError", "digest", "split_name"]

SplitFormat = Literal["torch", "jsonl"]

SUFFIXES: dict[SplitFormat, str] = {"torch": ".pt", "jsonl": ".jsonl"}
"""Suffix of the file of a split, by its format."""


class Store(Samples):
    """All samples of one split, memory-mapped: opening a `.pt` file makes no object per sample.

    Attributes:
        path: of the file, local or remote.
    """

    __slots__ = ("path",)

    def __init__(self, path: str, columns: Mapping[str, Column], *, first_id: int = 0) -> None:
        super().__init__(columns, first_id=first_id)
        self.path = path

    @classmethod
    def open(cls, path: str, *, first_id: int = 0) -> Store:
        """Open the file of a split. The first time, its bytes are checked against its manifest.

        Args:
            path: ends in `.pt` (mapped; a remote one is first copied into the read cache) or `.jsonl` (read).
            first_id: id of the first sample, different for each shard.

        Raises:
            FileNotFoundError: the file does not exist.
            StoreError: the file is truncated or altered, is not a store, contradicts its manifest, or was encoded
                with another vocabulary or other labels than those in its folder.
        """
        if not io.isfile(path):
            raise FileNotFoundError(f"{path} does not exist. Run x-prepro to make it.")
        manifest = commit.read_manifest(io.parent(path), split_name(path))
        if manifest is not None:
            trouble = trouble_of(path, split_name(path))
            if trouble:
                raise StoreError(f"{path} {trouble}. {AGAIN}")
            _refuse_other_resources(path, manifest.facts)
        elif path.endswith(".pt"):  # lines of JSON may come from elsewhere
            _warn_unverified(path)
        columns = _read_jsonl(path) if path.endswith(".jsonl") else _map(path)
        store = cls(path, columns, first_id=first_id)
        promised = manifest.facts.get("num_samples") if manifest is not None else None
        if promised is not None and promised != store.num_samples:
            raise StoreError(f"{path} holds {store.num_samples} samples, its manifest says {promised}. {AGAIN}")
        return store

    def take(self, rows: Integers) -> Samples:
        """Return the given samples in the given order. Raises StoreError if the stored offsets are out of range."""
        try:
            return super().take(rows)
        except (IndexError, ValueError) as error:
            why = f"{self.path}: its rows point beyond its end ({error})"
            raise StoreError(f"{why}. `x-script verify` checks whether it is damaged.") from error

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.path, self.first_id)


def _refuse_other_resources(path: str, facts: Mapping[str, Any]) -> None:
    """Raise StoreError if a split came from another folder: its numbers would mean other words and labels."""
    resources = commit.read_manifest(io.parent(path), RESOURCES)
    if resources is None:
        return
    for name, digest_here in resources.facts.items():
        if name in resources.files and facts.get(name, digest_here) != digest_here:
            what = f"{path} was encoded with another {name} than the one beside it: it comes from another data_dir."
            raise StoreError(f"{what} Preprocess it here, with the vocab_file and target_map_file of this folder.")


AGAIN = "Copy it again from its source, or run x-prepro again."


class JoinedStores:
    """Several stores concatenated: rows are numbered over all of them, and each sample keeps its id.

    Raises:
        StoreError: the stores have different columns.
    """

    def __init__(self, stores: Sequence[Store]) -> None:
        self.stores = list(stores)
        self._starts = offsets_of(np.array([len(store) for store in stores]))
        first = self.stores[0]
        for store in self.stores[1:]:
            if set(store.columns) != set(first.columns):
                here, there = ", ".join(store.columns), ", ".join(first.columns)
                raise StoreError(
                    f"{store.path} has the columns {here}, but {first.path} has {there}. Preprocess them alike."
                )

    def __len__(self) -> int:
        return int(self._starts[-1])

    @cached_property
    def lengths(self) -> Integers:
        """Length of each sample, (N,); reads a whole column, and is used only to batch by length."""
        return np.concatenate([store.lengths for store in self.stores])

    def numbers(self, name: str) -> NDArray[Any]:
        """Return a column of one number per sample, (N,)."""
        return np.concatenate([store.numbers(name) for store in self.stores])

    def __contains__(self, name: object) -> bool:
        return name in self.stores[0]

    def take(self, rows: Integers) -> Samples:
        """Return the given samples of all stores, in the given order."""
        owners = np.searchsorted(self._starts, rows, side="right") - 1
        order = np.argsort(owners, kind="stable")
        owned = owners[order]
        pieces = [
            self.stores[owner].take(rows[order[owned == owner]] - self._starts[owner]) for owner in np.unique(owned)
        ]
        together = pieces[0] if len(pieces) == 1 else concatenate(pieces)
        back = np.empty(len(rows), np.int64)
        back[order] = np.arange(len(rows))
        return together.take(back)


def _warn_unverified(path: str) -> None:
    """Warn that a store has no manifest: never the result of a killed run, but maybe of a manual copy."""
    name = f"{split_name(path)}.manifest.json"
    if has_damaged_manifest(path, split_name(path)):
        what = f"its {name} is damaged, so the store cannot be checked. Copy it again, or run x-prepro."
    else:
        what = f"there is no {name} beside it, so it cannot be checked. Copy that too."
    log.warning(f"{path}: {what}", once=True)


def digest(path: str) -> str | None:
    """Return the SHA-256 of a split's file from its manifest; None if it has none."""
    manifest = commit.read_manifest(io.parent(path), split_name(path))
    facts = manifest.files.get(io.name(path)) if manifest is not None else None
    return facts.sha256 if facts is not None else None


def rebuilt(data_dir: str, before: Mapping[str, str]) -> list[str]:
    """Return the names of files of data_dir that have other digests than `before`; those that are gone do not count."""
    return [name for name, known in before.items() if digest(io.join(data_dir, name)) not in {known, None}]


def split_name(path: str) -> str:
    """Return the name of the split of a file: `data/train.pt` -> `train`."""
    return io.name(path).removesuffix(".pt").removesuffix(".jsonl")


def _reopen(path: str, first_id: int) -> Store:
    return Store.open(path, first_id=first_id)


def _map(path: str) -> dict[str, Column]:
    layout, arrays = map_archive(io.local(path))
    columns: dict[str, Column] = {}
    for name, parts in arrays.items():
        values, offsets = parts["values"], parts.get("offsets")
        columns[name] = values if offsets is None else Ragged(values, offsets)
        rows = len(columns[name])
        if rows != layout.num_samples:
            raise StoreError(f"{path}: column '{name}' has {rows} rows instead of {layout.num_samples}. {AGAIN}")
        if offsets is not None and (offsets[0] != 0 or offsets[-1] != len(values)):
            raise StoreError(f"{path}: the rows of column '{name}' do not add up to its size. {AGAIN}")
    return columns


def _read_jsonl(path: str) -> dict[str, Column]:
    with io.open(path) as lines:
        samples = [_parse(line, number, path) for number, line in enumerate(lines, 1)]
    names = list(samples[0]) if samples else []
    for number, sample in enumerate(samples, 1):
        if list(sample) != names:
            raise StoreError(
                f"{path}:{number} has the keys {', '.join(sample)}; the first line has {', '.join(names)}."
            )
    return {name: _typed([sample[name] for sample in samples], name, path) for name in names}


def _parse(line: str, number: int, path: str) -> dict[str, Any]:
    try:
        sample = json.loads(line)
    except json.JSONDecodeError as error:
        raise StoreError(f"{path}:{number} is not JSON: {error}. {AGAIN}") from error
    if not isinstance(sample, dict):
        raise StoreError(f"{path}:{number} is not a JSON object with the columns of a sample. {AGAIN}")
    return sample


def _typed(values: list[Any], name: str, path: str) -> Column:
    """Return parsed JSON values as a column: rows of integers as int32, single ones as int64, floats as float32."""
    try:
        if not isinstance(values[0], list):
            numbers = np.array(values)
            return numbers.astype(_dtype_of(numbers, np.int64))
        flat = np.array([number for row in values for number in row])
        return Ragged(flat.astype(_dtype_of(flat, np.int32)), offsets_of(np.array([len(row) for row in values])))
    except (TypeError, ValueError, OverflowError) as error:
        raise StoreError(f"{path}: column '{name}' is not made of numbers or rows of numbers ({error}).") from error


def _dtype_of(numbers: np.ndarray[Any, Any], integer: type[np.integer[Any]]) -> type[np.generic]:
    if not len(numbers) or numbers.dtype.kind in "iub":
        return integer
    if numbers.dtype.kind != "f":
        raise TypeError(f"found {numbers.dtype}")
    return np.float32
