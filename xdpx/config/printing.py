"""The output of `--dry` and `--dry --json`: the values of all runs of a config."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from xdpx.config.grouping import Group, grouped
from xdpx.config.hints import shown

if TYPE_CHECKING:
    from xdpx.config.loading import Run


def tree_text(run: Run) -> str:
    """Return all values of a run under their headings, with `*` after each key that is not at its default."""
    return "\n".join(_lines(grouped(run), run, 0))


def _lines(group: Group, run: Run, depth: int) -> Iterator[str]:
    indent = "  " * depth
    for key, value in group.values.items():
        star = "*" if key in run.changed else ""
        relative = f"   ({run.relative[key]})" if key in run.relative else ""
        yield f"{indent}{key}{star}: {_value(value)}{relative}"
    for name, inner in group.groups.items():
        yield f"{indent}({name})"
        yield from _lines(inner, run, depth + 1)


def _value(value: object) -> str:
    """Return a value in config syntax; printable text without quotes."""
    if isinstance(value, str) and value and value.isprintable() and value == value.strip():
        return value
    return json.dumps(value, ensure_ascii=False)


def runs_text(runs: Sequence[Run]) -> str:
    """Return the text for all runs of a config: the first in full, then the values that vary, one line per run."""
    first = runs[0]
    count = f"{len(runs)} runs" if len(runs) > 1 else "1 run"
    parts = [f"{first.command} {first.source}: {count}", tree_text(first), *_difference_from_stored(first)]
    if len(runs) > 1:
        parts.append("\nruns")
        parts.extend(f"  {run.index + 1}  {what_varies(run, runs)}" for run in runs)
    return "\n".join(parts)


def varying_keys(runs: Sequence[Run]) -> list[str]:
    """Return the keys whose values differ between runs, in the order of declaration."""
    keys = dict.fromkeys(key for run in runs for key in run.values)
    return [key for key in keys if any(run.values.get(key) != runs[0].values.get(key) for run in runs)]


def what_varies(run: Run, runs: Sequence[Run]) -> str:
    """Return the values that distinguish one run from the others: `learning_rate=1e-05 batch_size=32`."""
    keys = varying_keys(runs)
    telling = [key for key in keys if key != "save_dir"] or keys
    return " ".join(f"{key}={_short(run.values[key])}" for key in telling if key in run.values)


def _short(value: object) -> str:
    return value if isinstance(value, str) and " " not in value else shown(value)


def _difference_from_stored(run: Run) -> list[str]:
    """Return lines with the differences from the values that the run was last started with; [] without `resume`."""
    folder = run.values.get("save_dir")
    if not run.values.get("resume") or not isinstance(folder, str):
        return []
    from xdpx.config.args_file import differences, newest_args
    from xdpx.config.stored_args import read_args
    from xdpx.utils import io

    path = newest_args(folder)
    if path is None:
        if io.isdir(folder) and io.listdir(folder):  # of another command, which says itself what it finds there
            return []
        return [f"\nresume: nothing is stored in {folder} yet"]
    lines = differences(read_args(path), dict(run.values))
    title = f"\ndifferences from {path}" if lines else f"\nno difference from {path}"
    return [title, *(f"  {line}" for line in lines)]


def json_text(runs: Sequence[Run]) -> str:
    """Return a JSON array with one flat object of values per run."""
    return json.dumps([dict(run.values) for run in runs], ensure_ascii=False, indent=2)
