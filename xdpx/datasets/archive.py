"""The file format of a store: a torch zip that is written in one pass without torch, and mapped without unpickling.

`torch.load(path, weights_only=True, mmap=True)` returns

    {"format": "xdpx-store-1", "num_samples": n, "columns": {name: {"values": Tensor, "offsets": Tensor}}}

(`offsets` only for columns of rows). The same metadata is in the record `xdpx.json`, so that opening a store never runs
a pickle and does not import torch. Records are uncompressed and aligned to 64 bytes, so that numpy can map them.
The bytes depend only on the content: they include no dates, no file names, no version of torch.

Source: torch 2.13, torch/serialization.py `_save`, `_load` and caffe2/serialize/inline_container.cc; PKWARE APPNOTE.
"""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from xdpx.datasets.pickling import TensorPickle
from xdpx.processors.samples import DTYPES
from xdpx.utils import io

FORMAT = "xdpx-store-1"
INDEX = "xdpx.json"
ROOT = "archive"
ALIGNMENT = 64
_LOCAL_HEADER = 30
_ZIP64_EXTRA = 20
_LARGEST_INDEX = 1 << 20


class StoreError(OSError):
    """A file is not a valid store: it is truncated, damaged, or something else."""


@dataclass(frozen=True)
class TensorFacts:
    """Number type and length of one flat tensor."""

    dtype: np.dtype[Any]
    count: int

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self.count * self.dtype.itemsize


@dataclass(frozen=True)
class StoreLayout:
    """The structure of a store: `columns` is column name -> part ("values", "offsets") -> facts, in file order."""

    num_samples: int
    columns: Mapping[str, Mapping[str, TensorFacts]]

    def tensors(self) -> Iterator[tuple[str, str, TensorFacts]]:
        """Yield (column, part, facts) of all tensors; the n-th of them is the record `data/n`."""
        for name, parts in self.columns.items():
            for part, facts in parts.items():
                yield name, part, facts

    def to_json(self) -> bytes:
        """Return the content of the record `xdpx.json`."""
        columns = {
            name: {part: [facts.dtype.name, facts.count] for part, facts in parts.items()}
            for name, parts in self.columns.items()
        }
        return json.dumps({"format": FORMAT, "num_samples": self.num_samples, "columns": columns}).encode()

    @classmethod
    def from_json(cls, data: bytes) -> StoreLayout:
        """Return the layout that `to_json` wrote. Raises ValueError, KeyError or TypeError for anything else."""
        body = json.loads(data)
        if body["format"] != FORMAT:
            raise ValueError(f"its format is '{body['format']}', and this version reads '{FORMAT}'")
        columns = {
            name: {part: _facts(dtype, count) for part, (dtype, count) in parts.items()}
            for name, parts in body["columns"].items()
        }
        return cls(int(body["num_samples"]), columns)

    def to_pickle(self) -> bytes:
        """Return the content of the record `data.pkl`, from which torch builds a dict of tensors."""
        pickle = TensorPickle()
        columns: dict[str, dict[str, Any]] = {name: {} for name in self.columns}
        for index, (name, part, facts) in enumerate(self.tensors()):
            columns[name][part] = pickle.tensor(index, facts.dtype.name, facts.count)
        return pickle.dumps({"format": FORMAT, "num_samples": self.num_samples, "columns": columns})


def write_archive(file: IO[bytes], layout: StoreLayout, contents: Iterable[Iterable[bytes]]) -> None:
    """Write a store in one pass.

    Args:
        file: open for writing; need not be seekable.
        layout: of the store.
        contents: the little-endian bytes of each tensor of `layout.tensors()`, in pieces of any size.

    Raises:
        StoreError: the number of bytes of a tensor differs from the layout.
    """
    with zipfile.ZipFile(_Forward(file), "w", zipfile.ZIP_STORED) as archive:
        _write(archive, "data.pkl", [layout.to_pickle()])
        _write(archive, INDEX, [layout.to_json()])
        _write(archive, "byteorder", [b"little"])
        for index, ((name, part, facts), pieces) in enumerate(zip(layout.tensors(), contents, strict=True)):
            written = _write(archive, f"data/{index}", pieces)
            if written != facts.size:
                raise StoreError(f"Column '{name}': {written} bytes of {part} came instead of {facts.size}.")
        _write(archive, "version", [b"3\n"])


def map_archive(path: str) -> tuple[StoreLayout, dict[str, dict[str, np.ndarray[Any, Any]]]]:
    """Return a local store, memory-mapped; only its index is read.

    Returns:
        (layout, column name -> part -> flat read-only array).

    Raises:
        StoreError: the file is truncated or damaged, or is not a store.
    """
    try:
        with io.open(path, "rb") as file, zipfile.ZipFile(file) as archive:
            layout = _read_layout(archive, path)
            places = [
                _place(archive, f"{ROOT}/data/{index}", facts) for index, (_, _, facts) in enumerate(layout.tensors())
            ]
    except zipfile.BadZipFile as error:
        raise StoreError(f"{path} is cut short, or no store of samples ({error}). Run x-prepro again.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{path} is a damaged store of samples: {error}. Run x-prepro again.") from error
    memory = np.asarray(np.memmap(path, np.uint8, "r"))
    columns: dict[str, dict[str, np.ndarray[Any, Any]]] = {name: {} for name in layout.columns}
    for (name, part, facts), start in zip(layout.tensors(), places, strict=True):
        columns[name][part] = memory[start : start + facts.size].view(facts.dtype)
    return layout, columns


def _facts(dtype: str, count: int) -> TensorFacts:
    if dtype not in DTYPES:
        raise ValueError(f"'{dtype}' is not a type of numbers that a store may hold")
    return TensorFacts(np.dtype(dtype), int(count))


class _Forward:
    """A file that can only be appended to, so that the bytes of the zip do not depend on where it is written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, data: bytes, /) -> int:
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        """Do nothing: the caller closes the file."""


def _write(archive: zipfile.ZipFile, name: str, pieces: Iterable[bytes]) -> int:
    info = zipfile.ZipInfo(f"{ROOT}/{name}")
    info.create_system = 3  # so that the bytes do not depend on the operating system
    start = archive.start_dir + _LOCAL_HEADER + len(info.filename) + _ZIP64_EXTRA + 4
    padding = -start % ALIGNMENT
    info.extra = struct.pack("<2sH", b"FB", padding) + bytes(padding)
    written = 0
    with archive.open(info, "w", force_zip64=True) as record:
        for piece in pieces:
            written += record.write(piece)
    return written


def _read_layout(archive: zipfile.ZipFile, path: str) -> StoreLayout:
    try:
        info = archive.getinfo(f"{ROOT}/{INDEX}")
    except KeyError:
        what = "It was not written by this version of x-prepro; run it again"
        raise StoreError(f"{path} is not a store of samples: there is no {INDEX} in it. {what}.") from None
    if info.file_size > _LARGEST_INDEX:
        raise ValueError(f"its {INDEX} has {info.file_size} bytes")
    return StoreLayout.from_json(archive.read(info))


def _place(archive: zipfile.ZipFile, name: str, facts: TensorFacts) -> int:
    """Return the offset of the content of a record. Raises ValueError if it does not match `facts`."""
    info = archive.getinfo(name)
    if info.compress_type != zipfile.ZIP_STORED or info.file_size != facts.size:
        raise ValueError(f"its record {name} has {info.file_size} bytes instead of {facts.size}")
    file = archive.fp
    if file is None:
        raise ValueError("it is closed")
    file.seek(info.header_offset)
    header = file.read(_LOCAL_HEADER)
    if header[:4] != b"PK\3\4":
        raise ValueError(f"its record {name} is not where it should be")
    name_length, extra_length = struct.unpack_from("<HH", header, 26)
    start: int = info.header_offset + _LOCAL_HEADER + name_length + extra_length
    return start
