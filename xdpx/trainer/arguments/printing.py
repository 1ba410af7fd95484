"""Arguments as plain values: for JSON, trackers and text. Tokens are never included."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, is_dataclass
from enum import Enum
from typing import Any

from xdpx.trainer.arguments.fields import OwnFields


def plain(arguments: Any) -> dict[str, Any]:
    """Return {name: text, number, list or dict} of all arguments, in the order of the fields.

    Options that the original lacks are left out at their default, so that its class accepts the result.
    """
    values = {each.name: getattr(arguments, each.name) for each in fields(arguments) if each.init}
    usual = {each.name: each.default for each in fields(OwnFields)}
    return {name: _argument(name, value) for name, value in values.items() if name not in usual or value != usual[name]}


def _argument(name: str, value: Any) -> Any:
    if name.endswith("_token"):
        return f"<{name.upper()}>"
    return value.to_json() if name == "parallelism_config" and value is not None else _plain(value)


def _plain(value: object) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if type(value).__module__ == "torch" and type(value).__name__ == "dtype":
        return str(value).removeprefix("torch.")
    if hasattr(value, "to_dict"):
        return value.to_dict()
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def as_json(values: dict[str, Any]) -> str:
    """Return values as JSON; objects that JSON does not support, such as a tracker function, by their name."""
    return json.dumps(values, indent=2, default=_named)


def _named(value: object) -> str:
    return str(getattr(value, "__name__", value))


def flat(values: dict[str, Any]) -> dict[str, bool | int | float | str]:
    """Return values for a table of hyper-parameters: numbers and booleans unchanged, others as text."""
    return {name: value if type(value) in {bool, int, float, str} else str(value) for name, value in values.items()}


def _for_people(value: object, plain_value: object) -> Any:
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    return value if isinstance(value, list) else plain_value


def text(arguments: object) -> str:
    """Return the arguments as text, one to a line, sorted; words as the members of their enums."""
    values = {name: _for_people(getattr(arguments, name), value) for name, value in plain(arguments).items()}
    lines = "".join(f"{name}={value},\n" for name, value in sorted(values.items()))
    return f"{type(arguments).__name__}(\n{lines})"
