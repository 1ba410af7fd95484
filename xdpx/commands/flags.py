"""Normalise `--batch_size 32`, `--batch-size=32` and `batch-size=32` on a command line to `batch_size=32`."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from xdpx.config import catalogue
from xdpx.config.catalogue import declarations_by_key, reachable_entries
from xdpx.config.faults import ConfigError, Fault, nearest
from xdpx.config.synonyms import KEYS

_FLAG = re.compile(r"--([A-Za-z_][\w.-]*)(=.*)?", re.DOTALL)
_OVERRIDE = re.compile(r"([A-Za-z_][\w.-]*)(=.*)", re.DOTALL)
_TRUTH = frozenset({"true", "false"})
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\uff0d"
"""Dashes that word processors and web pages print in place of hyphens."""


def with_hyphens(word: str) -> str:
    """Return a word that begins with a printed dash as the flag that it stands for; '' for any other word."""
    name = word.lstrip(_DASHES + "-")
    return f"--{name}" if name and word[0] in _DASHES else ""


def as_override(word: str) -> str:
    """Return `key=value` with `-` in the key replaced by `_`; '' for a word that is not of this form."""
    match = _OVERRIDE.fullmatch(word)
    return _key(match[1]) + match[2] if match else ""


def _key(name: str) -> str:
    first, *inner = name.split(".")
    return ".".join([first.replace("-", "_"), *inner])


def take_setting(word: str, rest: list[str], *, flags: Collection[str], command: str = "") -> str:
    """Read `--key value`, `--key=value` or, for a key that is true or false, `--key`.

    Args:
        word: begins with `--`, and is not in `flags`.
        rest: the words after it; a value is removed from its front.
        flags: flags of the command line besides keys; a word similar to one of them is a misspelt flag, not a key.
        command: the command whose keys are looked up; '' for the keys of all commands.

    Returns:
        `key=value`; '' for a word that is an unknown key without a value, or a misspelt flag.

    Raises:
        ConfigError: a key without its value.
    """
    match = _FLAG.fullmatch(word)
    if not match:
        return ""
    key = _key(match[1])
    types = types_of(key, command)
    if not types and key not in KEYS and nearest(word.partition("=")[0], flags):
        return ""
    if match[2]:
        return key + match[2]
    if types and types <= {"bool", "bool | None"} and not (rest and rest[0].lower() in _TRUTH):
        return f"{key}=true"
    if rest and not rest[0].startswith("--"):
        return f"{key}={rest.pop(0)}"
    if types or key in KEYS:
        raise ConfigError("command line", [Fault(word, "has no value.", f"Write {key}=VALUE or --{key} VALUE.")])
    return ""


def with_settings(words: Sequence[str], *, flags: Collection[str], command: str = "") -> list[str]:
    """Return the words of a command that parses its own, with every key and its value written as `key=value`."""
    rest, found = list(words), []
    while rest:
        word = rest.pop(0)
        keyed = word.startswith("--") and word not in flags
        setting = take_setting(word, rest, flags=flags, command=command) if keyed else as_override(word)
        found.append(setting or word)
    return found


def types_of(key: str, command: str) -> set[str]:
    """Return the types that a key has in all its declarations; empty if no module declares it."""
    commands = [command] if command else [name for name in catalogue.names("command") if " " not in name]
    entries = (entry for name in commands for entry in reachable_entries(name))
    return {item.type for _, item in declarations_by_key(entries).get(key, ())}
