"""Write the pickle instructions from which `torch.load` builds a dict of flat tensors; nothing is ever unpickled.

They are written directly so that preprocessing does not need torch, and the bytes do not depend on its version.

Source: the instructions as in CPython's pickletools, protocol 2; torch/_utils.py `_rebuild_tensor_v2`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_STORAGES = {
    "bool": "BoolStorage",
    "uint8": "ByteStorage",
    "int8": "CharStorage",
    "int16": "ShortStorage",
    "int32": "IntStorage",
    "int64": "LongStorage",
    "float32": "FloatStorage",
    "float64": "DoubleStorage",
}


@dataclass(frozen=True)
class _Tensor:
    instructions: bytes


class TensorPickle:
    """Builds the content of `data.pkl`."""

    def tensor(self, record: int, dtype: str, count: int) -> _Tensor:
        """Return a reference to a flat tensor of `count` numbers whose bytes are the record `data/<record>`."""
        storage = b"".join((
            b"(", _text("storage"), f"ctorch\n{_STORAGES[dtype]}\n".encode(), _text(str(record)), _text("cpu"),
            _integer(count), b"tQ",
        ))  # fmt: skip
        shape, stride = _integer(count) + b"\x85", _integer(1) + b"\x85"
        no_hooks = b"ccollections\nOrderedDict\n)R"
        arguments = b"(" + storage + _integer(0) + shape + stride + b"\x89" + no_hooks + b"t"
        return _Tensor(b"ctorch._utils\n_rebuild_tensor_v2\n" + arguments + b"R")

    def dumps(self, value: Mapping[str, Any]) -> bytes:
        """Return the pickle of a dict of texts, integers, dicts and results of `tensor`."""
        return b"\x80\x02" + _value(value) + b"."


def _value(value: _Tensor | str | int | Mapping[str, Any]) -> bytes:
    if isinstance(value, _Tensor):
        return value.instructions
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        return _integer(value)
    items = b"".join(_text(key) + _value(item) for key, item in value.items())
    return b"}(" + items + b"u"


def _text(text: str) -> bytes:
    data = text.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def _integer(number: int) -> bytes:
    if 0 <= number < 2**31:
        return b"J" + struct.pack("<i", number)
    return b"\x8a\x08" + struct.pack("<q", number)
