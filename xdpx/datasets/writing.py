"""Write a store in bounded memory: `PartWriter` writes parts, one column per file, and `assemble` concatenates them.

The bytes of a store depend only on its samples and their order, not on how they were split into parts.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, Self

import numpy as np

from xdpx.datasets.archive import FORMAT, StoreError, StoreLayout, TensorFacts, write_archive
from xdpx.datasets.store import split_name
from xdpx.processors.samples import ColumnKind, Ragged, Samples, Schema, offsets_of
from xdpx.utils import commit, io

_TYPECODES = {
    "bool": "B", "uint8": "B", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "float32": "f", "float64": "d",
}  # fmt: skip
_LENGTH = np.dtype(np.int32)
_SAMPLES_BETWEEN_FLUSHES = 8192
_BLOCK = 1 << 22
"""Size in bytes of the buffer with which parts are copied."""

OFFSETS = np.dtype(np.int64)


class PartWriter:
    """Writes samples to raw files `<path>.<column>`, one per column. A context manager.

    A part is complete only if its writer was closed without an exception: `<path>.part` is written last.

    Args:
        path: prefix of the names of the files, local.
        schema: columns of every sample, as returned by `Processor.columns`.
    """

    def __init__(self, path: str, schema: Schema) -> None:
        self.path = path
        self.num_samples = 0
        self._kinds = {name: ColumnKind.parse(kind) for name, kind in schema.items()}
        self._files: dict[str, IO[bytes]] = {}
        self._buffers: dict[str, array[Any]] = {}
        self._counts: dict[str, int] = {}
        for file_name, dtype in _file_names(self._kinds):
            self._files[file_name] = io.open(f"{path}.{file_name}", "wb")
            self._buffers[file_name] = array(_TYPECODES[dtype.name])
            self._counts[file_name] = 0
        self._appenders = [self._appender(name, kind) for name, kind in self._kinds.items()]

    def add(self, sample: Mapping[str, Any]) -> None:
        """Append a sample that `numerize` returned. Raises KeyError if a column is missing."""
        for append in self._appenders:
            append(sample)
        self.num_samples += 1
        if self.num_samples % _SAMPLES_BETWEEN_FLUSHES == 0:
            self._flush()

    def extend(self, samples: Samples) -> None:
        """Append many samples at once."""
        self._flush()
        for name, kind in self._kinds.items():
            column = samples.columns[name]
            if isinstance(column, Ragged):
                self._write(name, column.values.astype(kind.dtype, copy=False))
                self._write(f"{name}.lengths", column.lengths.astype(_LENGTH))
            else:
                self._write(name, column.astype(kind.dtype, copy=False))
        self.num_samples += len(samples)

    def close(self) -> None:
        """Write the buffered samples, and `<path>.part`, which marks the part as complete."""
        self._flush()
        for file in self._files.values():
            file.close()
        facts = {
            "num_samples": self.num_samples,
            "schema": {name: str(kind) for name, kind in self._kinds.items()},
            "counts": self._counts,
        }
        commit.write_text(f"{self.path}.part", json.dumps(facts))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
            return
        for file in self._files.values():
            file.close()

    def _appender(self, name: str, kind: ColumnKind) -> Callable[[Mapping[str, Any]], None]:
        values = self._buffers[name]
        if not kind.ragged:
            return lambda sample: values.append(sample[name])
        lengths = self._buffers[f"{name}.lengths"]

        def append(sample: Mapping[str, Any]) -> None:
            row = sample[name]
            values.extend(row)
            lengths.append(len(row))

        return append

    def _flush(self) -> None:
        for file_name, buffer in self._buffers.items():
            self._write(file_name, buffer)
            del buffer[:]

    def _write(self, file_name: str, values: array[Any] | np.ndarray[Any, Any]) -> None:
        self._counts[file_name] += len(values)
        self._files[file_name].write(np.ascontiguousarray(values).tobytes())


def assemble(parts: Sequence[str], out_path: str, schema: Schema, *, facts: Mapping[str, Any] | None = None) -> int:
    """Concatenate parts into one store, committed with the manifest `<split>.manifest.json`.

    Args:
        parts: the paths passed to `PartWriter`, in the order of their samples.
        out_path: `<folder>/<split>.pt`, or `.jsonl`; local or remote.
        schema: columns that each part must have.
        facts: further entries of the manifest, in addition to format, columns and num_samples.

    Returns:
        The number of samples.

    Raises:
        StoreError: a part is not complete, or has other columns.
        OSError: writing failed, such as on a full disk; an existing file at `out_path` is unchanged.
    """
    kinds = {name: ColumnKind.parse(kind) for name, kind in schema.items()}
    described = [_part_facts(part, kinds) for part in parts]
    num_samples: int = sum(part["num_samples"] for part in described)
    counts = {name: sum(part["counts"][name] for part in described) for name, _ in _file_names(kinds)}
    layout = _layout(kinds, counts, num_samples)
    size = sum(tensor.size for _, _, tensor in layout.tensors())
    known = {**(facts or {}), "format": FORMAT, "num_samples": num_samples, "columns": dict(schema)}
    committed = commit.Commit(io.parent(out_path), split_name(out_path), facts=known, needs_bytes=size)
    with committed as files, files.open(io.name(out_path)) as file:
        if out_path.endswith(".jsonl"):
            _write_lines(file, parts, kinds)
        else:
            write_archive(file, layout, (_pieces(parts, name, part) for name, part, _ in layout.tensors()))
    return num_samples


def read_part(path: str, schema: Schema) -> Samples:
    """Return the samples of a complete part, memory-mapped."""
    kinds = {name: ColumnKind.parse(kind) for name, kind in schema.items()}
    counts = _part_facts(path, kinds)["counts"]
    flat = {name: _map(f"{path}.{name}", dtype, counts[name]) for name, dtype in _file_names(kinds)}
    return Samples(
        {
            name: Ragged(flat[name], offsets_of(flat[f"{name}.lengths"])) if kind.ragged else flat[name]
            for name, kind in kinds.items()
        }
    )


def _file_names(kinds: Mapping[str, ColumnKind]) -> Iterator[tuple[str, np.dtype[Any]]]:
    for name, kind in kinds.items():
        yield name, kind.dtype
        if kind.ragged:
            yield f"{name}.lengths", _LENGTH


def _part_facts(path: str, kinds: Mapping[str, ColumnKind]) -> dict[str, Any]:
    try:
        with io.open(f"{path}.part") as file:
            facts: dict[str, Any] = json.loads(file.read())
    except FileNotFoundError as error:
        raise StoreError(f"{path} is not a complete part: its writer did not finish.") from error
    if facts["schema"] != {name: str(kind) for name, kind in kinds.items()}:
        raise StoreError(f"{path} has the columns {facts['schema']} instead of {kinds}.")
    for name, dtype in _file_names(kinds):
        size, expected = io.size(f"{path}.{name}"), facts["counts"][name] * dtype.itemsize
        if size != expected:
            raise StoreError(f"{path}.{name} has {size} bytes instead of {expected}.")
    return facts


def _layout(kinds: Mapping[str, ColumnKind], counts: Mapping[str, int], num_samples: int) -> StoreLayout:
    columns = {}
    for name, kind in kinds.items():
        columns[name] = {"values": TensorFacts(kind.dtype, counts[name])}
        if kind.ragged:
            columns[name]["offsets"] = TensorFacts(OFFSETS, num_samples + 1)
    return StoreLayout(num_samples, columns)


def _pieces(parts: Sequence[str], name: str, part: str) -> Iterator[bytes]:
    if part == "values":
        return (block for path in parts for block in _blocks(f"{path}.{name}"))
    return _offsets(parts, name)


def _offsets(parts: Sequence[str], name: str) -> Iterator[bytes]:
    end = np.zeros(1, OFFSETS)
    yield end.tobytes()
    for path in parts:
        for block in _blocks(f"{path}.{name}.lengths"):
            ends = np.cumsum(np.frombuffer(block, _LENGTH), dtype=OFFSETS) + end
            end = ends[-1:]
            yield ends.tobytes()


def _blocks(path: str) -> Iterator[bytes]:
    with io.open(path, "rb") as file:
        while block := file.read(_BLOCK):
            yield block


def _write_lines(file: IO[bytes], parts: Iterable[str], kinds: Mapping[str, ColumnKind]) -> None:
    schema = {name: str(kind) for name, kind in kinds.items()}
    for path in parts:
        samples = read_part(path, schema)
        for index in range(len(samples)):
            file.write(json.dumps(samples.sample(index)).encode() + b"\n")


def _map(path: str, dtype: np.dtype[Any], count: int) -> np.ndarray[Any, Any]:
    return np.asarray(np.memmap(path, dtype, "r", shape=(count,))) if count else np.empty(0, dtype)
