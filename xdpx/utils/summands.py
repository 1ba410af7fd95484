"""Numbers that are added up over many updates, while they may still be on a device. Needs no torch."""

from __future__ import annotations

from typing import Any


def summand(value: Any) -> Any:
    """Return a number, or a tensor without its graph, as it may be added to a sum: half precision as float32.

    A sum in bfloat16 stops growing at 256 times what is added, one in float16 at 2048 times, or overflows. Nothing is
    read from the device.
    """
    value = value.detach() if getattr(value, "requires_grad", False) else value
    kind = getattr(value, "dtype", None)
    if kind is None or kind.itemsize != 2 or "float" not in str(kind):
        return value
    return value.float() if hasattr(value, "float") else value.astype("float32")
