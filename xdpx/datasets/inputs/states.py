"""Convert states of iterators to JSON and back: numbers, texts, bytes, arrays, and lists, tuples, dicts of them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

_BYTES, _ARRAY, _TUPLE = "__bytes__", "__array__", "__tuple__"


def to_json(value: object, path: str = "") -> Any:
    """Return a state in JSON-serialisable form.

    Args:
        value: the state.
        path: of the value, for messages.

    Raises:
        TypeError: it contains another type, whose path is in the message.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes | bytearray):
        return {_BYTES: base64.b64encode(value).decode()}
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufcSU":
        array = np.asarray(value)
        return {_ARRAY: [array.dtype.str, list(array.shape), base64.b64encode(array.tobytes()).decode()]}
    if isinstance(value, list | tuple):
        items = [to_json(item, f"{path}[{index}]") for index, item in enumerate(value)]
        return items if isinstance(value, list) else {_TUPLE: items}
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {name: to_json(item, f"{path}.{name}" if path else name) for name, item in value.items()}
    what = "a dict whose keys are not all texts" if isinstance(value, Mapping) else f"a {type(value).__name__}"
    raise TypeError(f"{path or 'the state'} is {what}")


def copied(value: Any) -> Any:
    """Return a state with lists, dicts and arrays of its own: the iterator goes on changing those that it returned."""
    if isinstance(value, np.ndarray | bytearray):
        return value.copy()
    if isinstance(value, Mapping):
        return {name: copied(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        items = [copied(item) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return value


def from_json(value: object) -> Any:
    """Return the state that `to_json` converted."""
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    if _BYTES in value:
        return base64.b64decode(value[_BYTES])
    if _ARRAY in value:
        kind, shape, content = value[_ARRAY]
        return np.frombuffer(base64.b64decode(content), np.dtype(kind)).reshape(shape).copy()
    if _TUPLE in value:
        return tuple(from_json(item) for item in value[_TUPLE])
    return {name: from_json(item) for name, item in value.items()}
