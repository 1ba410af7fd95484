"""Turn a field of a dataclass into an option of the command line."""

from __future__ import annotations

import dataclasses
from argparse import SUPPRESS, Action, ArgumentParser, ArgumentTypeError, Namespace, _ActionsContainer
from collections.abc import Callable, Collection, Sequence
from enum import Enum
from typing import Any, Literal, get_args, get_origin

from xdpx.trainer.arguments.values import FALSE_WORDS, alternatives, read_dict, truth
from xdpx.utils.decisions import TRUE_WORDS


class Flag(Action):
    """Action for `--x`, `--x true`, `--x false`, and `--no_x`."""

    def __call__(
        self, parser: ArgumentParser, namespace: Namespace, values: object, option_string: str | None = None
    ) -> None:
        """Store the value; `--no_x` stores its opposite."""
        del parser
        denied = option_string in self.option_strings[1:] and (option_string or "").startswith("--no_")
        setattr(namespace, self.dest, values != denied)


class OneOrMore(Action):
    """Action that stores one word as `str`, several as a list, for a field that accepts either."""

    def __call__(
        self, parser: ArgumentParser, namespace: Namespace, values: Any, option_string: str | None = None
    ) -> None:
        """Store the words."""
        del parser, option_string
        setattr(namespace, self.dest, values[0] if len(values) == 1 else values)


def add_option(
    group: _ActionsContainer,
    field: dataclasses.Field[Any],
    hint: object,
    taken: Collection[str],
    *,
    told_apart: bool = False,
) -> None:
    """Add one field to a parser or one of its groups.

    Args:
        group: the parser or group.
        field: its default, and its metadata, which are passed to argparse; `aliases` are further names.
        hint: its type, resolved.
        taken: names of all fields; `--no_x` is not added if a field has that name.
        told_apart: whether the namespace contains the value only if the command line does, even if it is the default.
    """
    metadata = dict(field.metadata)
    aliases = metadata.pop("aliases", [])
    names = [f"--{field.name}", *([aliases] if isinstance(aliases, str) else aliases)]
    default = {"default": SUPPRESS} if told_apart else _default(field, hint)
    settings = option_settings(hint) | default | metadata
    if settings.get("action") is Flag and f"no_{field.name}" not in taken:
        names.append(f"--no_{field.name}")
    group.add_argument(*names, **settings)


def option_settings(hint: object) -> dict[str, Any]:
    """Return the settings of argparse for a value of a type."""
    parts = alternatives(hint)
    if parts == [bool]:
        return {"action": Flag, "nargs": "?", "const": True, "type": _truth, "metavar": "true|false"}
    if bool in parts:
        return {"nargs": "?", "const": True, "type": _truth_or_text}
    lists = [part for part in parts if get_origin(part) is list or part is list]
    if lists:
        words = _one_word((get_args(lists[0]) or (str,))[0])
        return {"nargs": "+", **words, **({"action": OneOrMore} if str in parts else {})}
    # any text is accepted unchanged, unless there are words to choose from
    if str in parts and (int in parts or float in parts):
        return {"type": _number_or_text}
    named = [part for part in parts if isinstance(part, type) and issubclass(part, Enum)]
    return _one_word(named[0] if named else str if str in parts else parts[0])


def _one_word(kind: object) -> dict[str, Any]:
    if get_origin(kind) is Literal:
        return _choice(get_args(kind))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _choice([word.value for word in kind])
    if kind is dict or get_origin(kind) is dict:
        return {"type": _dict, "metavar": "JSON"}
    return {"type": kind if isinstance(kind, type) and kind is not Any and kind is not object else str}


def _choice(values: Sequence[Any]) -> dict[str, Any]:
    spelled = {str(value): value for value in values}
    read: Callable[[str], Any] = lambda text: spelled.get(text, text)  # noqa: E731  # argparse does not show its name
    return {"choices": list(values), "type": read}


def _default(field: dataclasses.Field[Any], hint: object) -> dict[str, Any]:
    if field.default is not dataclasses.MISSING:
        return {"default": field.default}
    if field.default_factory is not dataclasses.MISSING:
        return {"default": field.default_factory()}
    return {"default": False} if hint is bool else {"required": True}


def _truth(text: str) -> bool:
    try:
        return truth(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error


def _truth_or_text(text: str) -> bool | str:
    word = text.lower()
    return truth(word) if word in {"true", "false"} or word in (TRUE_WORDS | FALSE_WORDS) - {"no", "yes"} else text


def _number_or_text(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _dict(text: str) -> dict[str, Any]:
    try:
        return read_dict(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error
