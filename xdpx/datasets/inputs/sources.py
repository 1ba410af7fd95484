"""Sources of examples, with random access to any of them.

A source opens its files on first use, so that an experiment can be described on a machine without its data.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from xdpx.config.faults import ConfigError, Fault, refusal
from xdpx.config.hparams import BaseHParams, Configurable
from xdpx.datasets.store import Store
from xdpx.loaders.parsers import parsers
from xdpx.loaders.parsers.files import open_raw
from xdpx.processors.samples import Ragged, Samples, offsets_of
from xdpx.utils import io

Column = Ragged | NDArray[Any] | list[str]
Columns = dict[str, Column]
"""Column name -> rows of numbers, one number per example, or one text per example."""

Rows = NDArray[np.int64]

VALUES_COMPARED = 512
"""Number of values of a column of numbers in the digest of a source. Each may be read from another page of a disk."""


class Source(Configurable):
    """Random access to examples by index."""

    class HParams(BaseHParams):
        """Fields of every source."""

    @property
    @abstractmethod
    def num_examples(self) -> int:
        """Number of examples."""

    @abstractmethod
    def take(self, rows: Rows) -> Columns:
        """Return the examples with these indices, in this order."""

    def whole(self) -> Columns | None:
        """Return all columns if they are in memory or memory-mapped; None if they would have to be read."""
        return None

    @cached_property
    def digest(self) -> str | None:
        """A digest of the examples, by which changed ones are noticed; None if they would have to be read.

        All texts count; of numbers, `VALUES_COMPARED` that are evenly spread over a column.
        """
        columns = self.whole()
        if columns is None:
            return None
        found = hashlib.blake2b(digest_size=8)
        for name, column in sorted(columns.items()):
            found.update(f"{name} {len(column)} ".encode())
            for part in _contents(column):
                found.update(part)
        return found.hexdigest()


class InMemory(Source):
    """A source whose columns are in memory or memory-mapped."""

    @property
    @abstractmethod
    def columns(self) -> Columns:
        """All columns."""

    @property
    def num_examples(self) -> int:
        """Number of examples."""
        return max((len(column) for column in self.columns.values()), default=0)

    def whole(self) -> Columns:
        """Return all columns."""
        return self.columns

    def take(self, rows: Rows) -> Columns:
        """Return examples, with one vectorised gather per column of numbers."""
        return {name: take(column, rows) for name, column in self.columns.items()}


class Arrays(InMemory):
    """Arrays, or lists of rows of different lengths, given in Python."""

    class HParams(Source.HParams):
        """Fields of the source.

        Attributes:
            columns: column name -> an array of rows, a list of rows, of numbers or of texts.
        """

        columns: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def columns(self) -> Columns:
        """All columns. Raises ConfigError if their lengths differ."""
        columns = {name: as_column(values) for name, values in self.hparams.columns.items()}
        counts = {name: len(column) for name, column in columns.items()}
        if len(set(counts.values())) > 1:
            problem = f"have different numbers of examples: {counts}."
            raise refusal("columns", problem, "Give every column for every example.")
        return columns


class NumpyFiles(InMemory):
    """`.npy` files at any path, memory-mapped: an array of rows, or one long row that a task splits into chunks.

    A remote file is first copied into the read cache of each machine.
    """

    class HParams(Source.HParams):
        """Fields of the source.

        Attributes:
            paths: column name -> path.
        """

        paths: dict[str, str] = field(default_factory=dict)

    @cached_property
    def columns(self) -> Columns:
        """All columns. Raises ConfigError for a file that is not an array of numbers."""
        return {name: as_column(_map_npy(path)) for name, path in self.hparams.paths.items()}


class StoreFile(InMemory):
    """A split made by x-prepro: `train.pt`, memory-mapped, or `train.jsonl`."""

    class HParams(Source.HParams):
        """Fields of the source.

        Attributes:
            path: the file, at any path.
        """

        path: str = ""

    @cached_property
    def _store(self) -> Store:
        return Store.open(self.hparams.path)

    @property
    def columns(self) -> Columns:
        """All columns."""
        return dict(self._store.columns)

    @property
    def num_examples(self) -> int:
        """Number of samples of the split."""
        return self._store.num_samples

    def take(self, rows: Rows) -> Columns:
        """Return the samples with these indices, in this order."""
        taken: Samples = self._store.take(rows)
        return dict(taken.columns)


class TextFiles(InMemory):
    """Raw text files, plain or compressed, at any path: one example per line, by any of our parsers, or per file.

    All texts are read into memory; for larger data, use a store (`x-prepro`) or array records.
    """

    class HParams(Source.HParams):
        """Fields of the source.

        Attributes:
            paths: one or several paths; `*` is allowed.
            parser: registered name of the parser of lines; with 'none', each line is one column.
            columns: the names of the columns, in order.
            options: further parameters of the parser.
            whole_files: make one text of each file, including line ends.
        """

        paths: str | tuple[str, ...] = ()
        parser: str = "none"
        columns: tuple[str, ...] = ("text",)
        options: dict[str, Any] = field(default_factory=dict)
        whole_files: bool = False

    @cached_property
    def columns(self) -> Columns:
        """All columns. Raises ConfigError for a line that cannot be used, or has too few columns."""
        names = tuple(self.hparams.columns)
        rows = list(chain.from_iterable(map(self._rows, files_of(self.hparams.paths))))
        return {name: [row[place] for row in rows] for place, name in enumerate(names)}

    def _rows(self, path: str) -> Iterator[Sequence[str]]:
        if self.hparams.whole_files:
            with open_raw(path) as file:
                yield [file.read().decode()]
            return
        made = parsers[self.hparams.parser]
        parser = made(made.Parameters(**self.hparams.options))
        names = self.hparams.columns
        for block in parser.blocks(path):
            parsed = parser.parse(block)
            for bad in parsed.bad:
                raise _bad_line(path, bad.line, bad.problem)
            for line, row in zip(parsed.lines, parsed.rows, strict=True):
                if len(row) < len(names):
                    raise _bad_line(path, line, f"has {len(row)} columns, not {len(names)} ({', '.join(names)})")
                yield row


def files_of(paths: str | Sequence[str]) -> list[str]:
    """Return the files given by paths and patterns with `*`, those of a pattern sorted.

    Raises:
        ConfigError: there is no path, and no pattern matches a file.
    """
    named = [paths] if isinstance(paths, str) else paths
    found = [path for pattern in named for path in (io.glob(pattern) if "*" in pattern else [pattern])]
    if not found:
        problem = f"is {paths!r}, but there is no such file."
        raise refusal("paths", problem, "Name a file, or a pattern that matches one.")
    return found


def _contents(column: Column) -> Iterator[bytes]:
    """Yield what the digest of a column is made of."""
    if isinstance(column, list):
        for text in column:
            yield f"{len(text)} {text}".encode("utf-8", "surrogatepass")
        return
    for array in (column.values, column.offsets) if isinstance(column, Ragged) else (column,):
        places = np.linspace(0, len(array) - 1, min(len(array), VALUES_COMPARED)).astype(np.int64)
        yield f"{array.dtype} {array.shape} ".encode()
        yield array[places].tobytes()


def take(column: Column, rows: Rows) -> Column:
    """Return the rows of a column with these indices."""
    if isinstance(column, Ragged):
        return column.take(rows)
    if isinstance(column, list):
        return [column[row] for row in rows.tolist()]
    taken: NDArray[Any] = column[rows]
    return taken


def as_column(values: Any) -> Column:
    """Return values as a column: texts, one number per example, or rows of numbers.

    Raises:
        ConfigError: they are none of these.
    """
    if isinstance(values, Ragged):
        return values
    if not isinstance(values, np.ndarray):
        rows = list(values)
        if rows and all(isinstance(row, str) for row in rows):
            return rows
        if any(np.ndim(row) for row in rows):
            lengths = np.fromiter(map(len, rows), np.int64, len(rows))
            flat = np.concatenate([np.asarray(row) for row in rows])
            return Ragged(flat.astype(np.int32) if flat.dtype.kind in "iu" else flat, offsets_of(lengths))
        values = np.asarray(rows)
    if values.ndim not in {1, 2} or values.dtype.kind not in "biuf":
        problem = f"has shape {values.shape} and type {values.dtype}."
        raise refusal("columns", problem, "Give numbers of shape (N,) or (N, T).")
    array: NDArray[Any] = values
    if array.ndim == 1:
        return array
    count, width = array.shape
    return Ragged(array.reshape(-1), np.arange(count + 1) * width)


def _map_npy(path: str) -> NDArray[Any]:
    """Return a `.npy` file memory-mapped. Raises ConfigError for files of objects, which are never unpickled."""
    local = io.local(path)
    try:
        with io.open(local, "rb") as file:
            version = npy.read_magic(file)
            header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, fortran, dtype = header(file)
            offset = file.tell()
    except ValueError as error:
        raise ConfigError(path, [Fault("paths", f"is not a .npy file ({error}).", "Write it by np.save.")]) from error
    if dtype.hasobject or fortran:
        what = "Python objects" if dtype.hasobject else "columns stored one after the other (Fortran order)"
        raise ConfigError(path, [Fault("paths", f"holds {what}.", "Save np.ascontiguousarray(array) of numbers.")])
    if 0 in shape:
        return np.zeros(shape, dtype)
    return np.asarray(np.memmap(local, dtype, "r", offset, shape))


def _bad_line(path: str, line: int, problem: str) -> ConfigError:
    fault = Fault(f"line {line}", f"{problem}.", "Fix the line, or name another parser and its columns.")
    return ConfigError(path, [fault])


def named(columns: Mapping[str, Any]) -> str:
    """Return the names of columns, for messages."""
    return ", ".join(columns) or "none"
