"""The words after `x-script <name>`: paths, keywords (`-word`) and flags (`--flag`), none of them dropped silently."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from xdpx.config.faults import ConfigError, Fault, nearest


class ScriptArguments(NamedTuple):
    """The words of one call, sorted by kind."""

    paths: list[str]
    keywords: list[str]
    flags: frozenset[str]


def read_arguments(
    name: str, words: Sequence[str], *, flags: Sequence[str] = (), keywords: bool = False
) -> ScriptArguments:
    """Sort the words of a call. Raises ConfigError for a flag or a keyword that the script does not take."""
    given = [word for word in words if word.startswith("--")]
    short = [word for word in words if word.startswith("-") and not word.startswith("--") and len(word) > 1]
    unknown = [word for word in given if word not in flags] + ([] if keywords else short)
    if unknown:
        raise ConfigError(f"x-script {name}", [_unknown_flag(word, flags) for word in unknown])
    paths = [word for word in words if word not in given and word not in short]
    return ScriptArguments(paths, [word[1:] for word in short], frozenset(given))


def need_paths(name: str, arguments: ScriptArguments, usage: str, *, exactly: int | None = None) -> None:
    """Raise ConfigError with the usage unless there are `exactly` so many paths, or at least one."""
    count = len(arguments.paths)
    if count == exactly or (exactly is None and count):
        return
    wanted = f"exactly {exactly} paths" if exactly else "at least one path"
    raise ConfigError(f"x-script {name}", [Fault("arguments", f"{count} given, it takes {wanted}.", f"Usage: {usage}")])


def _unknown_flag(word: str, flags: Sequence[str]) -> Fault:
    near = nearest(word, flags)
    choices = f"It takes {', '.join(flags)}." if flags else "It takes no flags."
    return Fault(word, "no such flag.", f"Did you mean {near}?" if near else choices)
