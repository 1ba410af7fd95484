"""File format of the samples of blocks: per block a line of JSON that describes its arrays, then their bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from xdpx.datasets.findings.same_texts import TextKeys
from xdpx.datasets.sample_making import Counts, Made
from xdpx.loaders.parsers.base import BadLine
from xdpx.processors.samples import Column, Ragged, Samples
from xdpx.tokenizers.encoder import Encoded

Array = NDArray[Any]
COLUMN = "samples."


def write_made(file: IO[bytes], made: Made) -> None:
    """Append the samples of a block to a file. The unprocessed rows are not written."""
    arrays = {name: np.ascontiguousarray(array) for name, array in _arrays(made).items()}
    described = [[name, array.dtype.str, list(array.shape)] for name, array in arrays.items()]
    head = {"counts": asdict(made.counts), "arrays": described, "samples": made.samples is not None}
    file.write(json.dumps(head).encode() + b"\n")
    for array in arrays.values():
        file.write(array.tobytes())


def read_made(file: IO[bytes], *, lines_before: int = 0) -> Iterator[Made]:
    """Yield the samples of each block.

    Args:
        file: written by `write_made`.
        lines_before: number of lines of the raw file before the part of these blocks.
    """
    while line := file.readline():
        head = json.loads(line)
        arrays = {name: _read(file, dtype, shape) for name, dtype, shape in head["arrays"]}
        counts = Counts(**head["counts"])
        counts.bad = [BadLine(line + lines_before, problem) for line, problem in counts.bad]
        keys = _together(TextKeys, arrays, "keys", ("texts", "labels", "lines"))
        keys = keys and keys._replace(lines=keys.lines + lines_before)
        yield Made(
            _samples(arrays) if head["samples"] else None,
            arrays["kept"],
            _together(Encoded, arrays, "encoded", ("values", "offsets")),
            arrays.get("borders"),
            arrays.get("hashes"),
            counts,
            [],
            keys,
        )


def _arrays(made: Made) -> dict[str, Array]:
    found: dict[str, Array] = {"kept": made.kept}
    for name, column in (made.samples.columns if made.samples is not None else {}).items():
        if isinstance(column, Ragged):
            found |= {f"{COLUMN}{name}.values": column.values, f"{COLUMN}{name}.offsets": column.offsets}
        else:
            found[f"{COLUMN}{name}"] = column
    single = {"borders": made.borders, "hashes": made.hashes}
    found |= {name: array for name, array in single.items() if array is not None}
    for name, group in (("encoded", made.encoded), ("keys", made.keys)):
        found |= {} if group is None else {f"{name}.{each}": array for each, array in group._asdict().items()}
    return found


def _read(file: IO[bytes], dtype: str, shape: list[int]) -> Array:
    kind = np.dtype(dtype)
    data = file.read(int(np.prod(shape)) * kind.itemsize)
    return np.frombuffer(data, kind).reshape(shape)


def _together(kind: Any, arrays: Mapping[str, Array], group: str, names: tuple[str, ...]) -> Any:
    if f"{group}.{names[0]}" not in arrays:
        return None
    return kind(**{name: arrays[f"{group}.{name}"] for name in names})


def _samples(arrays: Mapping[str, Array]) -> Samples:
    columns: dict[str, Column] = {}
    for name, array in arrays.items():
        plain = name.removeprefix(COLUMN)
        if plain == name or plain.endswith(".offsets"):
            continue
        if plain.endswith(".values"):
            offsets = arrays[f"{name.removesuffix('.values')}.offsets"]
            columns[plain.removesuffix(".values")] = Ragged(array, offsets)
        else:
            columns[plain] = array
    return Samples(columns)
