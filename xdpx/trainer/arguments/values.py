"""Convert arguments given as text (from YAML, environments or command lines) or NumPy values to plain types."""

from __future__ import annotations

import json
import os
import types
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from xdpx.utils import io
from xdpx.utils.decisions import TRUE_WORDS


def read_dict(value: object) -> dict[str, Any]:
    """Return the dict given as a dict (copied), as JSON text, or as the path of a JSON file.

    Raises:
        ValueError: the value is neither; the message is to follow the name of the argument.
    """
    if isinstance(value, dict):
        return dict(value)
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(value, str):
        raise ValueError(f"is {value!r}. Give a dict, JSON text that begins with '{{', or the path of a JSON file.")
    text = value if value.lstrip().startswith("{") else _file(value)
    try:
        read = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{_shortened(value)} is not JSON: {error}. Put keys and strings in double quotes.") from error
    if not isinstance(read, dict):
        raise ValueError(f'{_shortened(value)} holds {type(read).__name__}, not a dict. Put it as {{"key": value}}.')
    return typed(read) if text is value else read


def _file(path: str) -> str:
    try:
        with io.open(path) as file:
            return str(file.read())
    except OSError as error:
        raise ValueError(
            f"'{path}' cannot be read ({error}). Give the path of a JSON file, or JSON text that begins with '{{'."
        ) from error


def _shortened(text: str) -> str:
    return f"'{text[:60]}…'" if len(text) > 60 else f"'{text}'"


def typed(values: dict[str, Any]) -> dict[str, Any]:
    """Convert text values that are numbers or true/false, since quoting on a command line hides their type."""
    return {key: typed(value) if isinstance(value, dict) else _typed_text(value) for key, value in values.items()}


def _typed_text(value: object) -> Any:
    if not isinstance(value, str):
        return value
    if value.lower() in {"true", "false"}:
        return value.lower() == "true"
    if value.isdigit():
        return int(value)
    return float(value) if value.replace(".", "", 1).isdigit() else value


FALSE_WORDS = frozenset({"no", "false", "f", "n", "0", "off"})


def truth(value: object) -> bool:
    """Return the boolean of a flag given as a boolean, a number, or one of the usual words.

    Raises:
        ValueError: it is another word; the message is to follow the name of the flag.
    """
    word = str(value).strip().lower()
    if isinstance(value, str) and word not in TRUE_WORDS | FALSE_WORDS:
        raise ValueError(f"is '{value}'. Use true or false.")
    return word in TRUE_WORDS if isinstance(value, str) else bool(value)


EXAMPLES = {int: "a whole number, e.g. 8", float: "a number, e.g. 5e-5", bool: "true or false"}


def alternatives(hint: object) -> list[Any]:
    """Return the types that a hint allows, without None."""
    united = get_origin(hint) in {Union, types.UnionType}
    return [part for part in get_args(hint) if part is not type(None)] if united else [hint]


@cache
def plain_kinds(owner: type) -> dict[str, type]:
    """Return {name: type} of the fields of a class whose type is only int, float or bool (or None).

    Empty if its type hints cannot be resolved, as for a class defined inside a function.
    """
    try:
        hints = get_type_hints(owner)
    except NameError:
        return {}
    found = {name: alternatives(hint) for name, hint in hints.items()}
    return {name: parts[0] for name, parts in found.items() if len(parts) == 1 and parts[0] in {int, float, bool}}


@cache
def needed_numbers(owner: type) -> frozenset[str]:
    """Return the fields of a class that must hold a number, and not None."""
    kinds = plain_kinds(owner)
    hints = get_type_hints(owner) if kinds else {}
    return frozenset(name for name, kind in kinds.items() if kind is not bool and hints[name] is kind)


def plain(value: object, kind: type) -> Any:
    """Return a value as its plain type; an int is kept where a float is allowed.

    Raises:
        ValueError: it cannot be converted; the message is to follow the name of the field.
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
