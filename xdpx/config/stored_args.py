"""The values of a run, read back from the args.py that it left: plain literals, of which nothing is executed."""

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
    """Return the flat values of an `args.py`. Only literals are read; nothing in the file is executed.

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
            problem = f"is no Python literal: {error.msg}."
        elif isinstance(error, UnicodeDecodeError):
            problem = f"is no text: byte {error.start + 1} is not UTF-8."
        fault = Fault("args", problem, "Only a file written by xdpx can be read; nothing in it was executed.", place)
        raise ConfigError(path, [fault]) from error
    if not isinstance(tree, dict):
        raise ConfigError(
            path, [Fault("args", f"holds {type(tree).__name__}, not a dict.", "Name an args.py.", Origin(path))]
        )
    return dict(_flat(tree))


def texts_of(text: str) -> dict[str, str]:
    """Return key -> value as it is written in the text of an `args.py`, of which nothing is evaluated.

    This is for tables of thousands of runs: it takes a fiftieth of the time of `read_args`. Lines that `args_text` does
    not write are passed over.
    """
    return dict(filter(None, map(_pair_of, text.split("\n"))))


@lru_cache(maxsize=1 << 14)
def _pair_of(line: str) -> tuple[str, str] | None:
    """Return key and value of a line. The runs of a search share nearly all of theirs, which are matched once."""
    found = _LINE.match(line)
    return (found[2], found[3]) if found and found[3] != "{" else None


def _flat(tree: dict[Any, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict) and isinstance(key, str) and _GROUP.fullmatch(key):
            yield from _flat(value)
        else:
            yield str(key).removesuffix("*"), value


def escaped(value: object) -> Any:
    """Return a value as a config holds it: `${` in text is protected, which would be a reference when it is read."""
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, dict):
        return {escaped(key): escaped(item) for key, item in value.items()}
    return [escaped(item) for item in value] if isinstance(value, list | tuple) else value
