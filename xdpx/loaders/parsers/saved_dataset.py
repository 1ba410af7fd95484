"""The parser `datasets`: data sets saved by the Hugging Face library `datasets`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from xdpx.config.faults import ConfigError, Fault
from xdpx.config.parameters import param
from xdpx.loaders.parsers.base import BadLine, Row, RowParser, missing_extra, picked, row_of
from xdpx.loaders.parsers.json import cell
from xdpx.utils import io
from xdpx.utils.raw_places import SAVED

INFO = "dataset_info.json"
HIDDEN = -1
"""Number of a class that is not told."""


class SavedDatasetParser(RowParser):
    """Reads the output of `Dataset.save_to_disk`, where a split is a folder. Needs `xdpx[data]`.

    Class numbers are replaced by the names in the data set. A list (tokens, tags) becomes one text, joined by spaces.
    A row whose class, in the last column, is -1 has no label, as in the test splits of benchmarks that hide it.
    """

    class Parameters(RowParser.Parameters):
        """Keys of the parser of saved data sets."""

        fields: list[str] | None = param(
            None, doc="Names of the columns to take, in this order, the label last; null takes all."
        )

    def read(self, path: str) -> Iterator[tuple[int, Row | BadLine]]:
        """Yield the selected cells of each row."""
        features = _json(path, INFO).get("features")
        features = features if isinstance(features, dict) else {}
        number = 0
        for table in _tables(path):
            names = table.schema.names
            chosen = [names[index] for index in picked(names, self.parameters.fields, path)]
            columns = [table.column(name).to_pylist() for name in chosen]
            may_hide = len(chosen) > 1 and _is_class(features.get(chosen[-1]))
            for values in zip(*columns, strict=True):
                number += 1
                width = len(chosen) - (may_hide and values[-1] == HIDDEN)
                kept, given = chosen[:width], values[:width]
                texts = [_text(value, features.get(name)) for name, value in zip(kept, given, strict=True)]
                yield number, row_of(number, kept, given, texts, wanted="text or a class")

    def header(self, path: str) -> Row | None:
        """Return the names of the columns."""
        names = list(next(iter(_tables(path))).schema.names)
        return [names[index] for index in picked(names, self.parameters.fields, path)]


def _tables(path: str) -> Iterator[Any]:
    """Yield the record batches of all files of a data set, in order."""
    try:
        import pyarrow
    except ImportError as error:
        raise missing_extra("datasets", "pyarrow", error) from error
    for file in _json(path, SAVED).get("_data_files", ()):
        with io.open(io.join(path, file["filename"]), "rb") as stream:
            try:
                yield from pyarrow.ipc.open_stream(stream)
            except (OSError, ValueError) as error:  # pyarrow's errors for damaged files
                fault = Fault("data_files", f"'{file['filename']}' is damaged ({error}).", "Save the data set again.")
                raise ConfigError(path, [fault]) from error


def _json(path: str, name: str) -> dict[str, Any]:
    file = io.join(path, name)
    if not io.isfile(file):
        if name == SAVED:
            problem = "is not a folder in which datasets saved a split."
            raise ConfigError(path, [Fault("data_files", problem, "Name the folder of a split.")])
        return {}
    with io.open(file, encoding="utf-8") as stream:
        found: dict[str, Any] = json.load(stream)
    return found


def _is_class(feature: Any) -> bool:
    """Return whether the numbers of a column stand for classes."""
    return isinstance(feature, dict) and feature.get("_type") == "ClassLabel"


def _text(value: object, feature: Any) -> str | None:
    """Return a cell as text: a class by its name, a list joined by spaces. None if it cannot be converted."""
    if _is_class(feature) and isinstance(value, int):
        names = feature.get("names") or []
        return str(names[value]) if 0 <= value < len(names) else None
    if isinstance(value, list):
        inner = feature[0] if isinstance(feature, list) and feature else feature
        inner = inner.get("feature") if isinstance(inner, dict) and "feature" in inner else inner
        parts = [_text(each, inner) for each in value]
        return None if None in parts else " ".join(part for part in parts if part is not None)
    return cell(value)
