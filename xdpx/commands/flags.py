"""`--batch_size 32`, `--batch-size=32` and `batch-size=32` on a command line: each is `batch_size=32` here."""

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


def as_override(word: str) -> str:
    """Return `key=value` with the key as configs spell it, `_` for `-`; '' for a word that is no such thing."""
    match = _OVERRIDE.fullmatch(word)
    return _key(match[1]) + match[2] if match else ""


def _key(name: str) -> str:
    first, *inner = name.split(".")
    return ".".join([first.replace("-", "_"), *inner])


def take_setting(word: str, rest: list[str], *, flags: Collection[str], command: str = "") -> str:
    """Read `--key value`, `--key=value` or, for a key that is true or false, `--key`.

    Args:
        word: begins with `--`, and is none of `flags`.
        rest: the words after it; a value is taken from its front.
        flags: what the command line takes beside keys; a word near to one of them is not taken for a key.
        command: whose keys are meant; '' for the keys of all commands.

    Returns:
        `key=value`; '' for a word that is no key and has no value, or is a misspelt flag.

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
    """Return the words of a command that reads its own, with every key and its value written as `key=value`."""
    rest, found = list(words), []
    while rest:
        word = rest.pop(0)
        keyed = word.startswith("--") and word not in flags
        setting = take_setting(word, rest, flags=flags, command=command) if keyed else as_override(word)
        found.append(setting or word)
    return found


def types_of(key: str, command: str) -> set[str]:
    """Return the types that a key has wherever it is declared; none when no module has it."""
    commands = [command] if command else [name for name in catalogue.names("command") if " " not in name]
    entries = (entry for name in commands for entry in reachable_entries(name))
    return {item.type for _, item in declarations_by_key(entries).get(key, ())}
