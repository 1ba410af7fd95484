"""Token and label counts of the tasks: each writes its own, and each reads the sum of all."""

from __future__ import annotations

import json
from collections.abc import Sequence

from xdpx.config.faults import ConfigError, Fault
from xdpx.datasets.counting import RawCounts
from xdpx.datasets.sharded.folder import COUNTS, ShardFolder
from xdpx.datasets.sharded.parts import RawPart
from xdpx.utils import commit, io


def write_counts(folder: ShardFolder, number: int, index: int, seen: RawCounts, parts: Sequence[RawPart]) -> None:
    """Write the counts of one task.

    Args:
        folder: shared by the tasks.
        number: of the pass over the raw files, from 1.
        index: the task.
        seen: its counts.
        parts: the parts of raw files that were counted.
    """
    name = folder.name(str(number), index)
    traces = {part.path: part.facts().get("trace") for part in parts if part.mode == "blocks"}
    facts = {**folder.facts, "traces": traces}
    text = json.dumps({"tokens": seen.tokens, "labels": seen.labels, "lines": seen.lines})
    written = commit.Commit(io.join(folder.path, COUNTS), name, facts=facts)
    with written, written.open(f"{name}.json") as file:
        file.write(text.encode())


def read_counts(folder: ShardFolder, number: int) -> RawCounts:
    """Return the sum of the counts of all tasks.

    Raises:
        ConfigError: the counts of a task are missing, damaged, or of another config, or the tasks split a raw file
            differently.
    """
    total, place = RawCounts(), io.join(folder.path, COUNTS)
    traces: dict[str, set[str]] = {}
    for index in range(folder.count):
        name = folder.name(str(number), index)
        manifest = commit.read_manifest(place, name)
        troubles = commit.problems(place, name, hashes=True)
        if manifest is None or troubles or any(manifest.facts.get(key) != folder.facts[key] for key in folder.facts):
            problem = troubles[0] if troubles else "it belongs to another config."
            remedy = f"Remove {io.join(place, name)}.* and run the tasks again."
            raise ConfigError(folder.path, [Fault(f"shard {index}", f"its counts: {problem}", remedy)])
        with io.open(io.join(place, f"{name}.json"), "rb") as file:
            found = json.loads(file.read())
        total.tokens.update(found["tokens"])
        total.labels.update(found["labels"])
        total.lines.update(found["lines"])
        for path, trace in manifest.facts["traces"].items():
            traces.setdefault(path, set()).add(trace)
    torn = [path for path, found_traces in traces.items() if len(found_traces) > 1]
    if torn:
        raise torn_error(folder, torn[0])
    ordered = {label: total.labels[label] for label in sorted(total.labels)}
    total.labels.clear()
    total.labels.update(ordered)
    return total


def torn_error(folder: ShardFolder, path: str) -> ConfigError:
    """Return the error for a file that tasks split differently, so that rows would be lost or taken twice."""
    problem = f"{path} was not divided alike by all tasks: it was changed, or versions of xdpx or its packages differ."
    return ConfigError(folder.path, [Fault("data_files", problem, f"Remove {folder.path} and run all tasks again.")])
