"""Check that the paths of a run exist or can be created, on any file system."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator

from xdpx.config.checking import Draft
from xdpx.config.declarations import texts_in
from xdpx.config.faults import Fault, nearest
from xdpx.config.hints import shown, swallowed_part
from xdpx.utils import io
from xdpx.utils.raw_places import is_table
from xdpx.utils.retries import causes

_IMPOSSIBLE = frozenset({errno.ENAMETOOLONG, errno.EINVAL, errno.ELOOP, errno.EILSEQ})

_MARKS = "，。；、：,;\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"
"""Punctuation, and characters that cannot be seen, which typing or pasting leaves behind a name."""

_QUOTES = frozenset('“”‘„「」『』`"')
"""Quotes that stand around a text where it is not read as quoted: in YAML, on a command line, or as one of a pair."""

_INVISIBLE = re.compile("[\u200b\u200e\u200f\u2060\ufeff]")
"""Those of them that belong into no name; joiners (U+200C, U+200D) do, in some scripts."""

_VARIABLE = re.compile(r"(?:^|/)\$([A-Za-z_]\w*)(?=/|$)")

_UNLIKE_A_REFERENCE = re.compile(r"(?:[$＄%]\(|[$＄]｛|＄\{|\{\{)\s*([A-Za-z_][\w.]*)\s*(?:\)s?|｝|\}\}|\})")
"""A name as other languages write one that is replaced, or as a Chinese keyboard writes `${name}`."""

PathFindings = dict[tuple[str, str], tuple[str, str]]
"""(check, path) -> (problem, remedy), so that a path shared by all runs of a loop is checked once."""


def check_paths(draft: Draft, seen: PathFindings) -> Iterator[Fault]:
    """Yield a fault for every path that does not meet its declaration. Null and switched-off keys pass.

    Raises:
        OSError: a file system could not be reached.
    """
    for key, _, declaration in draft.selection.declared():
        if not declaration.path or key not in draft.values or key in draft.faulty:
            continue
        for path in texts_in(draft.values[key]):
            question = (declaration.path, path)
            if question not in seen:
                seen[question] = _ask(*question)
            problem, remedy = seen[question]
            if problem:
                draft.faulty.add(key)
                yield Fault(key, problem, remedy, draft.origins.get(key), "missing_path")


def _ask(check: str, path: str) -> tuple[str, str]:
    """Return (problem, remedy) of a path; invalid paths are problems, failures of a file system raise OSError."""
    try:
        return _look(check, path)
    except ValueError as error:
        return f"{shown(path)}: {error}.", "Correct the path."
    except OSError as error:
        if error.errno in _IMPOSSIBLE or any(isinstance(cause, ValueError) for cause in causes(error)):
            return f"{shown(path)}: {error.strerror or error}.", "Correct the path."
        raise


def _look(check: str, path: str) -> tuple[str, str]:
    """Return (problem, remedy) of a path, both '' if it passes."""
    if not path.strip():
        return "is an empty path.", "Give a path, or null where that is allowed."
    if check == "new_directory":
        return _look_at_new(path)
    if check == "directory":
        # Many web servers do not show folders, only files; those named by data_files are checked instead. Tables of a
        # database are checked by name.
        if is_table(path) or path.lower().startswith(("http://", "https://")) or io.isdir(path):
            return "", ""
        return (f"'{path}' is a file.", "Name a directory.") if io.isfile(path) else _absent(path, "directory")
    if io.isfile(path):
        return "", ""
    return (f"'{path}' is a directory.", "Name a file.") if io.isdir(path) else _absent(path, "file")


def _look_at_new(path: str) -> tuple[str, str]:
    if io.isfile(path):
        return f"'{path}' is a file.", "Name a directory, new or existing."
    reason = io.why_not_writable(path)
    if reason and not io.islocal(path):
        return f"'{path}' cannot be written to: {reason.rstrip('.')}.", "Correct the path, or the access to it."
    if reason:
        return f"'{path}' cannot be written to.", "Choose a writable folder."
    return slip_in(path)


def slip_in(path: str) -> tuple[str, str]:
    """Return (problem, remedy) of a new output with a slip in its name, both '' if it passes.

    Slips are a mark of punctuation at its end, a quote around it, an invisible character, and a variable or reference
    that nothing replaces.
    """
    variable = _VARIABLE.search(path)
    if variable and variable[1] in os.environ and not io.exists(path):
        problem = f"'{path}' contains ${variable[1]}, which is not replaced: a folder of that name would be made."
        return problem, "Write the path in full, or with ~ for your home directory."
    if (unlike := _UNLIKE_A_REFERENCE.search(path)) and not io.exists(path):
        problem = f"'{path}' contains {unlike[0]}, which is not replaced: a folder of that name would be made."
        return problem, f"Write ${{{unlike[1]}}}; if it is part of the name, create that folder first."
    remedy = "Remove it; if it is part of the name, create that folder or file first."
    alone = path[-1:] in _QUOTES and sum(each in _QUOTES or each == "'" for each in path) == 1
    odd = "a blank" if path != path.strip() else "a quote" if path[:1] in _QUOTES or alone else ""
    if odd and not io.exists(path):
        return f"'{path}' has {odd} at one end, which would be part of the name.", remedy
    name = io.name(path)
    mark, hidden = name[len(name.rstrip(_MARKS)) :], _INVISIBLE.search(path)
    if not (mark or hidden) or io.exists(path):
        return "", ""
    if hidden and not mark:
        return _with_hidden(path, hidden[0]), remedy
    seen = f"'{mark}'" if mark.isprintable() else f"{ascii(mark)}, an invisible character"
    return f"'{path}' ends with {seen}.", remedy


def _with_hidden(path: str, hidden: str) -> str:
    return f"'{path}' holds the invisible character U+{ord(hidden):04X}."


def _absent(path: str, what: str) -> tuple[str, str]:
    if hidden := _INVISIBLE.search(path):
        return f"there is no {what} {_with_hidden(path, hidden[0])}", "Remove it."
    swallowed = swallowed_part(path)
    if swallowed:
        return f"there is no {what} '{path}'.", f"{swallowed}."
    above = io.parent(path) or "."
    if not io.islocal(path) or above == path:
        return f"there is no {what} '{path}'.", "Correct the path."
    if not io.isdir(above):
        return f"there is no {what} '{path}'; '{above}' does not exist either.", _relative_note(path)
    near = nearest(io.name(path), io.listdir(above))
    guess = io.join(above, near) if near and io.parent(path) else near
    return f"there is no {what} '{path}'.", f"Did you mean '{guess}'?" if guess else _relative_note(path)


def _relative_note(path: str) -> str:
    if path.startswith(("/", "~")):
        return "Correct the path."
    return f"Paths are relative to the working directory, {io.abspath('.')}."
