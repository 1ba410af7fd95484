"""Arguments that are dicts: given as a dict, as JSON on the command line, or as the path of a JSON file."""

from __future__ import annotations

import json
from typing import Any

from xdpx.utils import io


def read_dict(value: Any) -> dict[str, Any]:
    """Give the dict that `value` stands for: itself (copied), its JSON, or the content of a JSON file.

    Raises:
        ValueError: when it is neither; the message begins after the name of the argument.
    """
    if isinstance(value, dict):
        return dict(value)
    if not isinstance(value, str):
        raise ValueError(f"is {value!r}. Give a dict, JSON text that begins with '{{', or the path of a JSON file.")
    text = value if value.lstrip().startswith("{") else _file(value)
    try:
        read = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{_shortened(value)} is not JSON: {error}. Keys and texts stand in double quotes.") from error
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
    """Turn texts that are numbers or true/false into those, as quoting on a command line hides their type."""
    return {key: typed(value) if isinstance(value, dict) else _typed_text(value) for key, value in values.items()}


def _typed_text(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value.lower() in {"true", "false"}:
        return value.lower() == "true"
    if value.isdigit():
        return int(value)
    return float(value) if value.replace(".", "", 1).isdigit() else value


TRUE_WORDS = frozenset({"yes", "true", "t", "y", "1", "on"})
FALSE_WORDS = frozenset({"no", "false", "f", "n", "0", "off"})


def truth(value: Any) -> bool:
    """Give what a flag means: a truth value, a number, or one of the usual words.

    Raises:
        ValueError: when it is another word; the message begins after the name of the flag.
    """
    word = str(value).strip().lower()
    if isinstance(value, str) and word not in TRUE_WORDS | FALSE_WORDS:
        raise ValueError(f"is '{value}'. Use true or false.")
    return word in TRUE_WORDS if isinstance(value, str) else bool(value)
