"""Samples in columnar form: the content of a store, from which `take` selects batches that `collate` pads.

A column has either one number per sample, or one row of numbers per sample (`Ragged`). No sample is a Python object, so
opening ten million of them takes no longer than ten.

Shape letters: N samples, V values of all rows together, T width after padding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.integer[Any]]
Schema = Mapping[str, str]
"""Column name -> kind, such as "ragged int32" (one row per sample) or "int64" (one number per sample)."""

DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float32", "float64")


class ColumnKind(NamedTuple):
    """How one column is stored."""

    dtype: np.dtype[Any]
    ragged: bool

    @classmethod
    def parse(cls, text: str) -> ColumnKind:
        """Return the kind for a text such as "ragged int32" or "int64". Raises ValueError for other texts."""
        ragged = text.startswith("ragged ")
        name = text.removeprefix("ragged ")
        if name not in DTYPES:
            raise ValueError(
                f"'{text}' is not a kind of column. Use one of {', '.join(DTYPES)}, 'ragged ' before it for rows."
            )
        return cls(np.dtype(name), ragged)

    def __str__(self) -> str:
        return f"ragged {self.dtype.name}" if self.ragged else self.dtype.name


@dataclass(frozen=True, slots=True)
class Ragged:
    """Concatenated rows of different lengths.

    Attributes:
        values: all rows together, shape (V,).
        offsets: int64, shape (N + 1,); row i is values[offsets[i]:offsets[i + 1]].
    """

    values: NDArray[Any]
    offsets: Integers

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Integers:
        """Length of each row, shape (N,)."""
        return np.diff(self.offsets)

    def row(self, index: int) -> NDArray[Any]:
        """Return row `index`, as a view."""
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    def take(self, rows: Integers) -> Ragged:
        """Return copies of the rows with these indices, in this order."""
        starts = self.offsets[rows]
        return self._gather(starts, self.offsets[rows + 1] - starts)

    def cut(self, limits: Integers | int) -> Ragged:
        """Return the first `limits` values of each row; `limits` is one number or one per row, (N,)."""
        lengths = self.lengths
        kept = np.minimum(lengths, limits)
        return self if np.array_equal(kept, lengths) else self._gather(self.offsets[:-1], kept)

    def parts(self, rows: Integers, starts: Integers, lengths: Integers) -> Ragged:
        """Return parts of rows: `lengths[i]` values of row `rows[i]`, from its position `starts[i]` on."""
        return self._gather(self.offsets[rows] + starts, lengths)

    def places(self, starts: Integers) -> NDArray[np.int64]:
        """Return the index of each value if row i is placed at starts[i] of another array, shape (V,)."""
        return np.arange(len(self.values)) + np.repeat(starts - self.offsets[:-1], self.lengths)

    def not_shorter_than(self, least: int) -> tuple[Ragged, NDArray[np.int64]]:
        """Return the rows of at least `least` values, and their indices."""
        kept = np.flatnonzero(self.lengths >= least)
        return self if len(kept) == len(self) else self.take(kept), kept

    def mask(self, width: int) -> NDArray[np.bool_]:
        """Return the mask of rows padded to `width`: true except at padding, shape (N, T)."""
        return np.arange(width) < self.lengths[:, None]

    def _gather(self, starts: Integers, lengths: Integers) -> Ragged:
        offsets = offsets_of(lengths)
        return Ragged(self.values[np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)], offsets)


Column = Ragged | NDArray[Any]


def offsets_of(lengths: Integers) -> NDArray[np.int64]:
    """Return the starts of rows with these lengths (N,), followed by the end of the last one, int64 (N + 1,)."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def joined(columns: Sequence[Ragged]) -> Ragged:
    """Return the rows of several columns concatenated: row i consists of row i of the first, of the second, ..."""
    offsets = offsets_of(np.sum([each.lengths for each in columns], axis=0))
    values = np.empty(offsets[-1], columns[0].values.dtype)
    place = offsets[:-1].copy()
    for each in columns:
        values[each.places(place)] = each.values
        place += each.lengths
    return Ragged(values, offsets)


class Samples:
    """Columns of equal length, and an id for each sample.

    An id is `first_id` plus the row number unless `ids` is given. It is kept by `take`, and determines, together with
    only the seed and the epoch, the noise that a processor adds to the sample.
    """

    __slots__ = ("_ids", "columns", "first_id", "num_samples")

    def __init__(self, columns: Mapping[str, Column], *, first_id: int = 0, ids: Integers | None = None) -> None:
        counts = {name: len(column) for name, column in columns.items()}
        if len(set(counts.values())) > 1:
            raise ValueError(f"Columns differ in length: {counts}.")
        self.columns = dict(columns)
        self.num_samples = next(iter(counts.values()), 0)
        self.first_id = first_id
        self._ids = ids

    @classmethod
    def from_dicts(cls, samples: Sequence[Mapping[str, Any]], schema: Schema) -> Samples:
        """Return samples that `numerize` made, one dict per sample, as columns."""
        return cls({name: _column([sample[name] for sample in samples], kind) for name, kind in schema.items()})

    @property
    def ids(self) -> Integers:
        """Id of each sample, int64, shape (N,)."""
        return self._ids if self._ids is not None else np.arange(self.first_id, self.first_id + self.num_samples)

    @property
    def lengths(self) -> Integers:
        """Length of each sample in tokens, shape (N,), by which batches of similar lengths are formed."""
        return self.numbers("length")

    def __len__(self) -> int:
        return self.num_samples

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def ragged(self, name: str) -> Ragged:
        """Return a column of rows. Raises KeyError if there is none of that name."""
        column = self._get(name)
        if not isinstance(column, Ragged):
            raise KeyError(f"Column '{name}' holds one number per sample, not a row.")
        return column

    def numbers(self, name: str) -> NDArray[Any]:
        """Return a column of one number per sample. Raises KeyError if there is none of that name."""
        column = self._get(name)
        if isinstance(column, Ragged):
            raise KeyError(f"Column '{name}' holds a row per sample, not one number.")
        return column

    def take(self, rows: Integers) -> Samples:
        """Return the samples with these row numbers, in this order, with one vectorised gather per column."""
        ids = rows + self.first_id if self._ids is None else self._ids[rows]
        columns = {
            name: column.take(rows) if isinstance(column, Ragged) else column[rows]
            for name, column in self.columns.items()
        }
        return Samples(columns, ids=ids)

    def replaced(self, name: str, column: Column) -> Samples:
        """Return the samples with one column replaced."""
        return Samples({**self.columns, name: column}, ids=self.ids)

    def sample(self, index: int) -> dict[str, Any]:
        """Return one sample as a dict of Python numbers and lists."""
        return {
            name: column.row(index).tolist() if isinstance(column, Ragged) else column[index].item()
            for name, column in self.columns.items()
        }

    def _get(self, name: str) -> Column:
        if name not in self.columns:
            raise KeyError(f"There is no column '{name}' in these samples, only: {', '.join(self.columns)}.")
        return self.columns[name]


def multi_hot(rows: Ragged, num_classes: int) -> NDArray[np.float32]:
    """Return a multi-hot array: 1 for each class in a row, else 0; shape (N, num_classes)."""
    found = np.zeros((len(rows), num_classes), np.float32)
    found[np.repeat(np.arange(len(rows)), rows.lengths), rows.values] = 1.0
    return found


def concatenate(parts: Sequence[Samples]) -> Samples:
    """Return samples with the same columns concatenated; each keeps its id."""
    columns = {name: _concatenate([part.columns[name] for part in parts]) for name in parts[0].columns}
    return Samples(columns, ids=np.concatenate([part.ids for part in parts]))


def stored_as(column: Column, kind: ColumnKind) -> Column:
    """Return a column in the type in which it is stored.

    Raises:
        ValueError: that would change a number, such as 0.5 or 300 as uint8; or there are no numbers, one in each row.
    """
    if isinstance(column, Ragged) != kind.ragged:
        raise ValueError(
            f"it contains {'a row' if isinstance(column, Ragged) else 'one number'} per sample, not {kind}"
        )
    if isinstance(column, Ragged):
        return Ragged(_numbers_as(column.values, kind.dtype), column.offsets)
    return _numbers_as(column, kind.dtype)


def _numbers_as(found: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    if found.dtype == dtype and found.ndim == 1:
        return found
    if found.dtype.kind not in "biuf" or found.ndim != 1:
        raise ValueError(f"it contains an array of {found.dtype}, shape {found.shape}, not one {dtype} in each row")
    with np.errstate(invalid="ignore", over="ignore"):
        numbers = found.astype(dtype)
    if dtype.kind in "biu":  # floats are rounded without a word, as everywhere
        changed = np.flatnonzero(numbers != found)
        if len(changed):
            raise ValueError(
                f"it contains {found[changed[0]].item()!r}, which {dtype} would store as {numbers[changed[0]]}"
            )
    return numbers


def _column(values: list[Any], kind: str) -> Column:
    parsed = ColumnKind.parse(kind)
    if not parsed.ragged:
        return stored_as(_array(values, parsed), parsed)
    offsets = offsets_of(np.fromiter(map(len, values), np.int64, len(values)))
    return stored_as(Ragged(_array(list(chain.from_iterable(values)), parsed), offsets), parsed)


def _array(numbers: list[Any], kind: ColumnKind) -> NDArray[Any]:
    """Return numbers in the type that they have, which `kind` alone decides if there are none."""
    return np.array(numbers) if numbers else np.zeros(0, kind.dtype)


def _concatenate(columns: Sequence[Column]) -> Column:
    rows = [column for column in columns if isinstance(column, Ragged)]
    if not rows:
        return np.concatenate([column for column in columns if not isinstance(column, Ragged)])
    lengths = np.concatenate([column.lengths for column in rows])
    return Ragged(np.concatenate([column.values for column in rows]), offsets_of(lengths))
