"""Read the values of a run from its args.py, which contains only literals; nothing is executed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from xdpx.config.faults import ConfigError, Fault, Origin
from xdpx.utils import io

_GROUP = re.compile(r"\(.+\)")
_LINE = re.compile(r"""^ +(['"])(.+?)\*?\1: (.*),$""")


def read_args(path: str) -> dict[str, Any]:
    """Return the flat values of an `args.py`. Only literals are parsed; nothing in the file is executed.

    Raises:
        ConfigError: the file is not one that `write_args` wrote.
        OSError: it cannot be read.
    """
    try:
        with io.open(path, encoding="utf-8") as file:
            text = file.read()
        tree = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        place = Origin(path, getattr(error, "lineno", 0) or 0)
        problem = "holds more than plain values."
        if isinstance(error, SyntaxError):
            problem = f"is not a Python literal: {error.msg}."
        elif isinstance(error, UnicodeDecodeError):
            problem = f"is not text: byte {error.start + 1} is not UTF-8."
        fault = Fault("args", problem, "Only a file written by xdpx can be read; nothing in it was executed.", place)
        raise ConfigError(path, [fault]) from error
    if not isinstance(tree, dict):
        raise ConfigError(
            path, [Fault("args", f"holds {type(tree).__name__}, not a dict.", "Name an args.py.", Origin(path))]
        )
    return dict(_flat(tree))


def read_prepro_args(path: str) -> dict[str, Any]:
    """Return the values of an `args.py` of x-prepro, as `read_args` does, with those of keys that are newer than it."""
    return {"space_before_words": False, **read_args(path)}


def texts_of(text: str) -> dict[str, str]:
    """Return key -> source text of its value, from the text of an `args.py`, without parsing values.

    For tables of thousands of runs: it takes 1/50 of the time of `read_args`. Lines in a format that `args_text` does
    not write are skipped.
    """
    return dict(filter(None, map(_pair_of, text.split("\n"))))


@lru_cache(maxsize=1 << 14)
def _pair_of(line: str) -> tuple[str, str] | None:
    """Return key and value of a line. Cached, because the runs of a search have nearly all lines in common."""
    found = _LINE.match(line)
    return (found[2], found[3]) if found and found[3] != "{" else None


def _flat(tree: dict[Any, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict) and isinstance(key, str) and _GROUP.fullmatch(key):
            yield from _flat(value)
        else:
            yield str(key).removesuffix("*"), value


def escaped(value: object) -> Any:
    """Return a value with `${` in texts escaped, so that it is not a reference when read as a config."""
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, dict):
        return {escaped(key): escaped(item) for key, item in value.items()}
    return [escaped(item) for item in value] if isinstance(value, list | tuple) else value
