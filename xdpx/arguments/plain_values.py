"""Numbers and truth values that come as text, from YAML, environments or command lines, or from NumPy."""

from __future__ import annotations

import types
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from xdpx.arguments.structured import truth

EXAMPLES = {int: "a whole number, e.g. 8", float: "a number, e.g. 5e-5", bool: "true or false"}


def alternatives(hint: Any) -> list[Any]:
    """Give the types that a hint allows, None left out."""
    united = get_origin(hint) in {Union, types.UnionType}
    return [part for part in get_args(hint) if part is not type(None)] if united else [hint]


@cache
def plain_kinds(owner: type) -> dict[str, type]:
    """Give the fields of a class that hold nothing but a whole number, a number or a truth value (or None), by name.

    Empty when its hints cannot be resolved, as those of a class that was made inside a function.
    """
    try:
        hints = get_type_hints(owner)
    except NameError:
        return {}
    found = {name: alternatives(hint) for name, hint in hints.items()}
    return {name: parts[0] for name, parts in found.items() if len(parts) == 1 and parts[0] in {int, float, bool}}


def plain(value: Any, kind: type) -> Any:
    """Give a value as a plain one of its kind; a whole number stays one where any number may stand.

    Raises:
        ValueError: when it means no such value; the message begins after the name of the field.
    """
    fits = (int, bool) if kind is int else (int, float, bool)
    if value is None or type(value) in fits:
        return value
    try:
        return _converted(value.item() if hasattr(value, "item") else value, kind)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise ValueError(f"is {value!r}. Use {EXAMPLES[kind]}.") from error


def _converted(value: Any, kind: type) -> Any:
    if kind is bool:
        return truth(value)
    if kind is float:
        return value if isinstance(value, int) else float(value)
    number = float(value)
    if not number.is_integer():
        raise ValueError(value)
    return int(value) if isinstance(value, int) else int(number)
