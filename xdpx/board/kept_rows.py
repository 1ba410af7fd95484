"""A cache file of the board's rows, so that after a restart only the runs that changed are read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields

import xdpx
from xdpx.board.summary import Summary, all_shown
from xdpx.logger import log
from xdpx.utils import commit, io

FOLDER = "boards"
FIELDS = [field.name for field in fields(Summary)]
FINAL = frozenset({"finished", "failed", "preempted"})
"""States that do not change with time alone."""

Kept = tuple[str, Summary]
"""A stamp, and the row that was made at that stamp."""


def file_of(root: str) -> str:
    """Return the path of the cached rows of the runs below `root`, in a folder that only this user can read."""
    name = hashlib.sha256(io.abspath(root).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return io.join(io.cache.root, FOLDER, f"{name}.json")


def mark(stamp: object) -> str:
    """Return a stamp as a short text that can be stored."""
    return hashlib.sha256(repr(stamp).encode("utf-8", "surrogateescape")).hexdigest()[:24]


def read(root: str) -> tuple[dict[str, Kept], dict[str, dict[str, str]]]:
    """Return path -> cached row, and the common settings of each program; both empty without a matching file.

    A file that is damaged or from another version of XDPX is ignored; it will be rewritten.
    """
    try:
        with io.open(file_of(root), encoding="utf-8") as file:
            saved = json.load(file)
        if [saved["version"], saved["root"], saved["fields"]] != [xdpx.__version__, io.abspath(root), FIELDS]:
            return {}, {}
        rows = {path: (stamp, Summary(*values)) for path, stamp, values in saved["rows"]}
        return rows, {str(door): dict(each) for door, each in saved["common"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}, {}


def write(root: str, rows: Iterable[tuple[str, object, Summary]], common: Mapping[str, Mapping[str, str]]) -> None:
    """Cache the rows of runs that have ended, with secrets hidden. A failure to write is only a warning."""
    kept = []
    for path, stamp, row in rows:
        if row.state in FINAL and not row.trouble:
            values = asdict(row) | {"settings": all_shown(row.settings)}
            kept.append([path, mark(stamp), [values[name] for name in FIELDS]])
    values = {
        "version": xdpx.__version__, "root": io.abspath(root), "fields": FIELDS, "rows": kept,
        "common": {door: all_shown(settings) for door, settings in common.items()},
    }  # fmt: skip
    path = file_of(root)
    try:
        if not io.isdir(io.parent(path)):
            io.local_files.make_private_folder(io.parent(path))
        commit.write_text(path, json.dumps(values, separators=(",", ":")))
    except (OSError, ValueError) as error:
        log.warning(f"{path}: the board's index was not saved for its next start: {error}")
