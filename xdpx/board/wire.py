"""Columns of numbers on their way to the page: JSON, then doubles, which a browser maps without reading them."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence

import numpy as np

from xdpx.reports.run_logs import Floats

ALIGNED = 8


def packed(answers: Sequence[tuple[Mapping[str, object], Mapping[str, Floats]]]) -> bytes:
    """Return (facts, columns) of some logs as bytes.

    Four bytes say how long the JSON is that follows: an array, for each log its facts, the names of its columns and the
    number of its rows. Blanks fill it up to a multiple of eight. Then come the columns, each as little-endian float64.
    """
    heads = []
    bodies = []
    for facts, columns in answers:
        length = len(next(iter(columns.values()), ()))
        heads.append({**facts, "columns": list(columns), "length": length})
        bodies += [np.ascontiguousarray(values, "<f8").tobytes() for values in columns.values()]
    text = json.dumps(heads, allow_nan=False).encode()
    text += b" " * (-(len(text) + 4) % ALIGNED)
    return b"".join([struct.pack("<I", len(text)), text, *bodies])
