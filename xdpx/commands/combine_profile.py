"""Combine all traces of a folder into one, stacked for comparison in chrome://tracing.

Usage: x-script combine_profile DIR

Writes DIR.json beside the folder. Each trace appears in it under its file's name, and all begin at time 0.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from xdpx.commands.script_arguments import need_paths, read_arguments
from xdpx.config.faults import ConfigError, Fault
from xdpx.utils import commit, io

NAME = "combine_profile"
USAGE = "x-script combine_profile DIR"
NAMES = frozenset({"process_name", "process_labels", "process_sort_index"})


def main(argv: Sequence[str]) -> int:
    """Combine the traces of one folder."""
    arguments = read_arguments(NAME, argv)
    need_paths(NAME, arguments, USAGE, exactly=1)
    folder = arguments.paths[0].rstrip("/")
    if not io.isdir(folder):
        raise ConfigError(f"x-script {NAME}", [Fault(folder, "is not a folder.", f"Usage: {USAGE}")])
    names = [name for name in io.listdir(folder) if name.endswith(".json")]
    if not names:
        problem = "contains no trace (.json)."
        raise ConfigError(f"x-script {NAME}", [Fault(folder, problem, "Write some: x-script run_profiling --help.")])
    combined: list[dict[str, Any]] = []
    for number, name in enumerate(names):
        combined += _placed(_events(io.join(folder, name)), name.removesuffix(".json"), number)
    path = f"{folder}.json"
    commit.write_text(path, json.dumps({"traceEvents": combined}))
    print(f"{path}: {len(names)} traces; open it in https://ui.perfetto.dev or chrome://tracing")
    return 0


def _events(path: str) -> list[dict[str, Any]]:
    """Return the events of a trace file, a list or an object with traceEvents. Raises ConfigError if it is neither."""
    try:
        with io.open(path, encoding="utf-8") as file:
            found = json.load(file)
        events = found["traceEvents"] if isinstance(found, dict) else found
        return [event for event in events if isinstance(event, dict)]
    except (ValueError, KeyError, TypeError) as error:
        fault = Fault(path, f"is not a trace ({type(error).__name__}: {error}).", "Move it away.")
        raise ConfigError(f"x-script {NAME}", [fault]) from error


def _placed(events: list[dict[str, Any]], name: str, number: int) -> list[dict[str, Any]]:
    """Return the events of a trace with unique process ids, named after its file, with times from 0 on."""
    first = min((event["ts"] for event in events if "ts" in event and event.get("ph") != "M"), default=0)
    processes = {process: 1000 * number + place for place, process in enumerate(sorted(_processes(events), key=str))}
    moved = []
    for event in events:
        if event.get("name") not in NAMES:
            beside: dict[str, object] = {"pid": processes[event["pid"]]} if "pid" in event else {}
            if "ts" in event:
                beside["ts"] = event["ts"] - first
            if "id" in event:
                beside["id"] = f"{number}.{event['id']}"  # flow arrows connect events by id, and only within one trace
            moved.append({**event, **beside})
    told = _told(events)
    titles = [
        {"ph": "M", "name": "process_name", "pid": new, "args": {"name": f"{name} {told.get(process, '')}".strip()}}
        for process, new in processes.items()
    ]
    order = [
        {"ph": "M", "name": "process_sort_index", "pid": new, "args": {"sort_index": new}} for new in processes.values()
    ]
    return [*titles, *order, *moved]


def _processes(events: list[dict[str, Any]]) -> set[Any]:
    return {event["pid"] for event in events if "pid" in event}


def _told(events: list[dict[str, Any]]) -> dict[Any, str]:
    """Return {process id: name} of a trace."""
    return {event["pid"]: str(event["args"]["name"]) for event in events if event.get("name") == "process_name"}
