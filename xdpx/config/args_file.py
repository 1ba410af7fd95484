"""Files that record the config of a run: args.py (all values, grouped) and starter_config.hjson (to edit and run)."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from xdpx.config.grouping import Group, grouped
from xdpx.config.stored_args import escaped
from xdpx.utils import commit, io

if TYPE_CHECKING:
    from xdpx.config.loading import Run

ARGS_FILE = "args.py"
PREPRO_ARGS = "prepro.args.py"
"""Name of the run's copy of the args.py of its data, which records how raw text was read."""
_MACHINE_KEYS = frozenset({"nproc", "distributed_world_size", "distributed_rank", "local_rank", "device_id"})
_PLAIN_KEY = re.compile(r"[A-Za-z_]\w*")


def args_text(run: Run) -> str:
    """Return all values of a run as a Python dict: groups as `(name)`, a `*` after keys not at their default."""
    header = f"# {run.command} {run.source}" + (f", run {run.index + 1} of {run.total}" if run.total > 1 else "")
    return "\n".join([header, "{", *_lines(grouped(run), run.changed, 1), "}", ""])


def _lines(group: Group, changed: frozenset[str], depth: int) -> Iterator[str]:
    indent = "    " * depth
    for key, value in group.values.items():
        star = "*" if key in changed else ""
        yield f"{indent}{key + star!r}: {value!r},"
    for name, inner in group.groups.items():
        yield f"{indent}{f'({name})'!r}: {{"
        yield from _lines(inner, changed, depth + 1)
        yield f"{indent}}},"


def write_args(run: Run, path: str) -> None:
    """Write the text of `args.py` to `path`, atomically, with mode 0600."""
    commit.write_text(path, args_text(run), private=True)


def starter_text(run: Run, meta_keys: Iterable[str]) -> str:
    """Return the non-default values of a run as a config to copy and edit, without keys of the machine.

    Args:
        run: the run.
        meta_keys: keys that come from the meta.hjson of its data; left out, because the config inherits from it.
    """
    left_out = {*meta_keys, *_MACHINE_KEYS}
    lines = ["{"]
    if "data_dir" in run.values and run.command == "x-train":
        lines.append("  __parent__: ${data_dir}/meta")
    for key, value in run.values.items():
        if key in run.changed and key not in left_out:
            name = key if _PLAIN_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False)
            lines.append(f"  {name}: {json.dumps(escaped(value), ensure_ascii=False)}")
    return "\n".join([*lines, "}", ""])


def write_starter_config(run: Run, path: str, meta_keys: Iterable[str]) -> None:
    """Write the text of `starter_config.hjson` to `path`, atomically, with mode 0600."""
    commit.write_text(path, starter_text(run, meta_keys), private=True)


def all_args(folder: str) -> list[tuple[int, str]]:
    """Return (step from which on they hold, path) of all parameters that a run has stored, in order."""
    names = io.listdir(folder) if io.isdir(folder) else []
    return [(step, io.join(folder, name)) for step, name in args_among(names)]


def args_among(names: Collection[str]) -> list[tuple[int, str]]:
    """Return (step from which on they hold, name) of the stored parameters among the files of a run, in order."""
    changed = [(int(found[1]), found[0]) for name in names if (found := re.fullmatch(r"args\.resume-(\d+)\.py", name))]
    begun = [(0, ARGS_FILE)] if ARGS_FILE in names else []
    return [*begun, *sorted(changed)]


def newest_args(folder: str) -> str | None:
    """Return the path of a run's newest stored parameters, `args.resume-<step>.py` or `args.py`; None if none exist."""
    found = all_args(folder)
    return found[-1][1] if found else None


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return a line for each key that differs: `--` only in `old`, `++` only in `new`, `+-` changed."""
    lines = [f"-- {key}: {old[key]!r}" for key in sorted(old.keys() - new.keys())]
    lines += [f"++ {key}: {new[key]!r}" for key in sorted(new.keys() - old.keys())]
    both = sorted(old.keys() & new.keys())
    return lines + [f"+- {key}: {old[key]!r} -> {new[key]!r}" for key in both if old[key] != new[key]]
