"""Streams of batches: one example per row, or rows packed window by window, with positions of one or two numbers.

Positions count over all hosts: a state saved on four hosts equals one saved on two, and any number of hosts can resume
from it, each taking its part of every global batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xdpx.config.faults import refusal
from xdpx.datasets.inputs.converters import FeatureConverter
from xdpx.datasets.inputs.examples import Pool
from xdpx.datasets.inputs.order import Blend, Order, Rows, part_of
from xdpx.datasets.inputs.packing import Packed, one_per_row
from xdpx.datasets.inputs.rows import PROVENANCE, SAMPLE_WEIGHTS
from xdpx.processors.samples import Ragged, offsets_of
from xdpx.utils.nested_map import NestedMap

Place = dict[str, int]


@dataclass(frozen=True)
class Recipe:
    """The settings of a stream, the same for both kinds.

    Attributes:
        pool: the examples.
        order: of the examples.
        converter: makes arrays of them.
        limits: width of a row in tokens, by array.
        batch_size: rows per host.
        num_hosts: number of hosts that share the data.
        host: index of this host.
        pad: whether an incomplete last batch is padded; otherwise it is dropped.
        provenance: whether batches contain the origin of every row.
    """

    pool: Pool
    order: Order | Blend
    converter: FeatureConverter
    limits: tuple[int, ...]
    batch_size: int
    num_hosts: int
    host: int
    pad: bool
    provenance: bool

    @property
    def rows_per_step(self) -> int:
        """Number of rows of a global batch."""
        return self.batch_size * self.num_hosts

    def at(self, places: Rows) -> tuple[Rows, Rows]:
        """Return (the task at each position, the index of its example)."""
        if isinstance(self.order, Blend):
            return self.order.at(places)
        return np.zeros_like(places), self.order.at(places)


class Stream(ABC):
    """The batches of one host."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe

    @abstractmethod
    def next_batch(self) -> NestedMap:
        """Return this host's rows of the next batch. Raises StopIteration at the end."""

    @abstractmethod
    def place(self) -> Place:
        """Return the position of the stream, over all hosts."""

    @abstractmethod
    def go_to(self, place: Mapping[str, int]) -> None:
        """Restore a position."""

    @abstractmethod
    def skip(self, count: int) -> None:
        """Skip `count` batches."""


class OnePerRow(Stream):
    """A stream with one example per row. Its position is the number of examples used."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        self._examples = 0

    def place(self) -> Place:
        """Return the number of examples used."""
        return {"examples": self._examples}

    def go_to(self, place: Mapping[str, int]) -> None:
        """Restore a position."""
        self._examples = place["examples"]

    def skip(self, count: int) -> None:
        """Skip `count` batches."""
        self._examples += count * self.recipe.rows_per_step

    def next_batch(self) -> NestedMap:
        """Return the next batch; padding rows repeat the first example of the data, without weight."""
        r = self.recipe
        left = None if r.order.length is None else r.order.length - self._examples
        if left is not None and left < (1 if r.pad else r.rows_per_step):
            raise StopIteration
        places = part_of(r.batch_size, r.num_hosts, r.host, first=self._examples)
        real = np.ones(len(places), np.bool_) if r.order.length is None else places < r.order.length
        which, rows = r.at(np.where(real, places, 0))
        features = r.pool.take(which, rows)
        batch = r.converter.convert(features, one_per_row(len(rows), len(r.limits)), r.limits)
        batch[SAMPLE_WEIGHTS] = real.astype(np.float32)
        if r.provenance:
            batch[PROVENANCE] = provenance(rows, real, r.batch_size, r.num_hosts)
        self._examples += r.rows_per_step
        return batch


def provenance(rows: Rows, real: NDArray[np.bool_], batch_size: int, num_hosts: int) -> NestedMap:
    """Return shard, number of shards and index in the shard of each example; -1 for rows without weight.

    A shard consists of the examples of one host in an epoch without shuffling.
    """
    numbers = {
        "index_within_shard": rows // (batch_size * num_hosts) * batch_size + rows % batch_size,
        "num_shards": np.full(len(rows), num_hosts),
        "shard_index": rows // batch_size % num_hosts,
    }
    return NestedMap({name: np.where(real, values, -1).astype(np.int32) for name, values in numbers.items()})


def packed_provenance(sources: Rows, where: Packed, width: int) -> NestedMap:
    """Return the examples of packed rows: entry k - 1 is that of segment k of the row; -1 for no segment.

    With packing, the source is the only shard, and an index is that of the example in its source.

    Args:
        sources: index of each example in its source, shape (N,).
        where: the assignment of examples to rows.
        width: maximum number of segments of a row.
    """
    ones = np.ones_like(sources)
    numbers = {"index_within_shard": sources, "num_shards": ones, "shard_index": ones - 1}
    laid = {name: np.full((where.num_rows, width), -1, np.int32) for name in numbers}
    for name, values in numbers.items():
        laid[name][where.rows, where.segments - 1] = values
    return NestedMap(laid)


def source_row(shard_index: int, num_shards: int, index_within_shard: int, *, batch_size: int) -> int:
    """Return the index in the source of the example with this provenance."""
    batch, row = divmod(index_within_shard, batch_size)
    return (batch * num_shards + shard_index) * batch_size + row


class _Window(NamedTuple):
    """A packed window of examples.

    Attributes:
        packed: the assignment of examples to rows.
        features: of all examples, if they had to be read to know their lengths; else None.
    """

    packed: Packed
    features: dict[str, Ragged] | None


class _Part(NamedTuple):
    """The examples of a window that are in a host's batch.

    Attributes:
        features: of the examples; empty if there are none.
        where: their assignment to rows of this host's batch.
        sources: index of each example in its source.
    """

    features: dict[str, Ragged]
    where: Packed
    sources: Rows


class PackedRows(Stream):
    """A stream of packed rows. Examples are packed window by window; a position is a window and a row of it.

    Every host packs all rows of a window, which needs only lengths, and reads only the examples of its own rows. If a
    source must be read to know lengths (array records, saved datasets), each host reads and encodes the whole window
    once, and keeps it while it is in use.
    """

    def __init__(self, recipe: Recipe, window: int) -> None:
        super().__init__(recipe)
        self._examples_per_window = window
        self._window, self._row = 0, 0
        self._windows: dict[int, _Window] = {}

    def place(self) -> Place:
        """Return the window, and the number of its rows that are used."""
        return {"window": self._window, "row": self._row}

    def go_to(self, place: Mapping[str, int]) -> None:
        """Restore a position."""
        self._window, self._row = place["window"], place["row"]

    def skip(self, count: int) -> None:
        """Skip `count` batches."""
        for _ in range(count):
            self._stretches()

    def next_batch(self) -> NestedMap:
        """Return the next batch; padding rows are empty and have no weight."""
        r = self.recipe
        before = self.place()
        stretches = self._stretches()
        found = sum(count for _, _, count in stretches)
        if not found or (found < r.rows_per_step and not r.pad):
            self.go_to(before)
            raise StopIteration
        parts, first = [], 0
        for window, row, count in stretches:
            parts.append(self._part(window, row, count, first))
            first += count
        batch = self._laid(parts)
        mine = np.arange(r.host * r.batch_size, (r.host + 1) * r.batch_size)
        batch[SAMPLE_WEIGHTS] = (mine < found).astype(np.float32)
        return batch

    def _stretches(self) -> list[tuple[int, int, int]]:
        """Advance by one batch, and return (window, first row, number of rows) of each window that it uses."""
        self._windows = {number: kept for number, kept in self._windows.items() if number == self._window}
        wanted, found, empty = self.recipe.rows_per_step, list[tuple[int, int, int]](), 0
        while wanted and self._places(self._window) is not None:
            available = self._plan(self._window).packed.num_rows - self._row
            if available <= 0:
                empty += 1
                self._refuse_emptiness(empty)
                if not found or found[-1][0] != self._window:
                    del self._windows[self._window]  # this batch has no row of it
                self._window, self._row = self._window + 1, 0
                continue
            empty = 0
            count = min(wanted, available)
            found.append((self._window, self._row, count))
            self._row += count
            wanted -= count
        return found

    def _refuse_emptiness(self, windows: int) -> None:
        """Raise ConfigError if no example has a token, instead of searching for ever."""
        if windows * self._examples_per_window > 2 * sum(self.recipe.pool.sizes) + 2 * self._examples_per_window:
            problem = "No example has a single token, so there is nothing to pack."
            raise refusal("task_feature_lengths", problem, "Check features and source.")

    def _places(self, window: int) -> Rows | None:
        """Return the positions of a window; None after the end."""
        first = window * self._examples_per_window
        last = first + self._examples_per_window
        length = self.recipe.order.length
        last = last if length is None else min(last, length)
        return np.arange(first, last) if first < last else None

    def _plan(self, window: int) -> _Window:
        """Return a packed window; those of the current batch are cached."""
        if window not in self._windows:
            places = self._places(window)
            r = self.recipe
            lengths, features = r.pool.measured(*r.at(np.zeros(0, np.int64) if places is None else places))
            self._windows[window] = _Window(r.converter.pack(lengths, r.limits), features)
        return self._windows[window]

    def _part(self, window: int, row: int, count: int, first: int) -> _Part:
        """Return this host's examples of rows of a window, the first of which is row `first` of the global batch."""
        r, plan = self.recipe, self._plan(window)
        low = max(r.host * r.batch_size, first)
        high = min((r.host + 1) * r.batch_size, first + count)
        which, where = plan.packed.of(row + low - first, max(high - low, 0))
        task, sources = r.at(which + window * self._examples_per_window)
        if not len(which):
            features = {}
        elif plan.features is not None:
            features = {name: column.take(which) for name, column in plan.features.items()}
        else:
            features = r.pool.take(task, sources)
        return _Part(features, where._replace(rows=where.rows + low - r.host * r.batch_size), sources)

    def _laid(self, parts: list[_Part]) -> NestedMap:
        r = self.recipe
        full = [part for part in parts if part.features]
        columns = range(len(r.limits))
        where = Packed(
            np.concatenate([np.zeros(0, np.int64), *(part.where.rows for part in full)]),
            np.concatenate([np.zeros((0, len(columns)), np.int64), *(part.where.starts for part in full)]),
            np.concatenate([np.zeros(0, np.int64), *(part.where.segments for part in full)]),
            r.batch_size,
        )
        names = r.converter.feature_names
        batch = r.converter.convert({n: _end_to_end([p.features[n] for p in full]) for n in names}, where, r.limits)
        if r.provenance:
            sources = np.concatenate([np.zeros(0, np.int64), *(part.sources for part in full)])
            batch[PROVENANCE] = packed_provenance(sources, where, max(r.limits))
        return batch


def _end_to_end(columns: list[Ragged]) -> Ragged:
    """Return columns concatenated."""
    values = [np.zeros(0, np.int32), *(column.values for column in columns)]
    lengths = [np.zeros(0, np.int64), *(column.lengths for column in columns)]
    return Ragged(np.concatenate(values), offsets_of(np.concatenate(lengths)))
