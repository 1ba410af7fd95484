"""The binary format of columns sent to the page: a JSON header, then doubles that a browser can map directly."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence

import numpy as np

from xdpx.reports.run_logs import Floats

ALIGNED = 8


def packed(answers: Sequence[tuple[Mapping[str, object], Mapping[str, Floats]]]) -> bytes:
    """Return (facts, columns) of some logs as bytes.

    The first four bytes are the length of the JSON header, an array with the facts, column names and row count of each
    log. It is padded with blanks so that the columns start at a multiple of eight; they are little-endian float64.
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
