"""Sources that need other packages: Hugging Face datasets on disk, and array records."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from xdpx.config.faults import THIS_RUN, ConfigError, Fault, refusal
from xdpx.datasets.inputs.sources import Column, Columns, Rows, Source, as_column, files_of
from xdpx.processors.samples import Ragged
from xdpx.utils import io


class SavedDataset(Source):
    """The output of `datasets.Dataset.save_to_disk`: lists of numbers, numbers and texts, memory-mapped.

    The folder is opened by the library, which copies a remote one to a local folder of its own.
    """

    class HParams(Source.HParams):
        """Fields of the source.

        Attributes:
            path: the folder.
            split: the split, if the folder contains several.
        """

        path: str = ""
        split: str | None = None

    @cached_property
    def _dataset(self) -> Any:
        datasets = _package("datasets", "datasets")
        p = self.hparams
        found = datasets.load_from_disk(p.path)
        if not isinstance(found, datasets.DatasetDict):
            return found.with_format("arrow")
        if p.split not in found:
            problem = f"is {p.split!r}; {p.path} holds {', '.join(found)}."
            raise refusal("split", problem, "Name one of them.")
        return found[p.split].with_format("arrow")

    @property
    def num_examples(self) -> int:
        """Number of rows of the dataset."""
        return len(self._dataset)

    def take(self, rows: Rows) -> Columns:
        """Return examples, gathered by Arrow without converting lists of numbers to Python objects."""
        table = self._dataset[rows]
        return {name: _from_arrow(table.column(name).combine_chunks()) for name in table.column_names}


def _from_arrow(array: Any) -> Column:
    import pyarrow as pa

    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        # If the array is a slice, `flatten` takes that into account, but its offsets do not.
        offsets = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
        return Ragged(array.flatten().to_numpy(zero_copy_only=False), offsets - offsets[0])
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        return [text or "" for text in array.to_pylist()]
    return as_column(array.to_numpy(zero_copy_only=False))


RecordFormat = Literal["json", "text", "int32"]


class ArrayRecords(Source):
    """ArrayRecord files: random access to billions of records. Each record is JSON, a text, or int32 tokens.

    The reader needs local files: all remote ones are first copied into the read cache of each machine
    (`XDPX_CACHE_PATH`, `XDPX_CACHE_LIMIT`). Use a mounted bucket for data larger than the disk.
    """

    class HParams(Source.HParams):
        """Fields of the source.

        Attributes:
            paths: one or several paths; `*` is allowed.
            record: the content of a record: a JSON object with the columns, a text (column `text`), or the bytes of
                little-endian int32 tokens (column `targets`).
        """

        paths: str | tuple[str, ...] = ()
        record: RecordFormat = "json"

    @cached_property
    def _records(self) -> Any:
        reader = _package("array_record.python.array_record_data_source", "array_record")
        return reader.ArrayRecordDataSource([io.local(path) for path in files_of(self.hparams.paths)])

    @property
    def num_examples(self) -> int:
        """Number of records of all files."""
        return len(self._records)

    def take(self, rows: Rows) -> Columns:
        """Return examples, read with a single call of the reader."""
        records = self._records.__getitems__(rows.tolist())
        return _DECODE[self.hparams.record](records)


def _objects(records: list[bytes]) -> Columns:
    rows = [json.loads(record) for record in records]
    names = rows[0] if rows else ()
    return {name: as_column([row[name] for row in rows]) for name in names}


def _texts(records: list[bytes]) -> Columns:
    return {"text": [record.decode() for record in records]}


def _tokens(records: list[bytes]) -> Columns:
    rows: list[NDArray[Any]] = [np.frombuffer(record, "<i4") for record in records]
    return {"targets": as_column(rows)}


_DECODE: dict[str, Callable[[list[bytes]], Columns]] = {"json": _objects, "text": _texts, "int32": _tokens}


def _package(module: str, package: str) -> Any:
    """Return a module that a source needs. Raises ConfigError with the package to install."""
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        fault = Fault("source", f"needs the package {package}.", f"Install it: pip install {package}.")
        raise ConfigError(THIS_RUN, [fault]) from error
