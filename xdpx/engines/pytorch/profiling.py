"""Trace some updates with torch.profiler, with the network's modules by name."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from xdpx.engines.base import Traced
from xdpx.utils import io

BACKWARD, OPTIMIZER = "autograd::engine::evaluate_function", "Optimizer.step#"
COMMUNICATION = ("gloo:", "nccl:", "c10d::", "record_param_comms")
TRACE = "trace.json"


@contextmanager
def traced(model: nn.Module, folder: str) -> Generator[Traced]:
    """Trace the block into a local folder: `trace.json`, for chrome://tracing or Perfetto.

    Yields the results, which are filled in when the context ends.
    """
    found = Traced({}, {}, [])
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    with named_modules(model), profile(activities=kinds, profile_memory=True) as profiler:
        yield found
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    path = io.join(folder, TRACE)
    profiler.export_chrome_trace(path)
    events = list(profiler.events() or [])
    names = {name for name, _ in model.named_modules() if name} | {_root(model)}
    found.seconds.update(_by_kind(events, _root(model)))
    found.modules.update(_by_path(events, names))
    found.memory.extend(_memory(path))


def _root(model: nn.Module) -> str:
    return f"forward of {type(model).__name__}"


def _by_kind(events: Iterable[Any], root: str) -> dict[str, float]:
    """Return the host's seconds in forward, backward, optimizer and communication."""
    found: dict[str, float] = defaultdict(float)
    for event in events:
        seconds = event.cpu_time_total / 1e6
        above = "" if event.cpu_parent is None else event.cpu_parent.name
        if event.name == root:
            found["forward"] += seconds
        elif event.name.startswith(BACKWARD) and not above.startswith(BACKWARD):
            found["backward"] += seconds
        elif event.name.startswith(OPTIMIZER):
            found["optimizer"] += seconds
        elif event.name.startswith(COMMUNICATION) and not above.startswith(COMMUNICATION):
            found["communication"] += seconds
    return dict(found)


def _by_path(events: Iterable[Any], names: set[str]) -> dict[tuple[str, ...], float]:
    """Return the seconds of modules, backward operations and optimizer, by path of nested events."""
    found: dict[tuple[str, ...], float] = defaultdict(float)
    paths: dict[int, tuple[str, ...]] = {}
    for event in events:
        path: list[str] = []
        above = event
        while above is not None:
            known = paths.get(id(above))
            if known is not None:
                path = [*known, *reversed(path)]
                break
            if above.name in names:
                path.append(above.name)
            elif above.name.startswith(BACKWARD):
                path += [above.name.removeprefix(f"{BACKWARD}: "), "backward"]
            elif above.name.startswith(OPTIMIZER):
                path.append("optimizer")
            above = above.cpu_parent
        else:
            path.reverse()
        paths[id(event)] = tuple(path)
        own = event.name in names or event.name.startswith((BACKWARD, OPTIMIZER))
        if own:
            found[tuple(path)] += event.cpu_time_total / 1e6
            if event.name.startswith(BACKWARD) and path[:1] == ["backward"]:
                found["backward",] += event.cpu_time_total / 1e6
    return dict(found)


def _memory(path: str) -> list[tuple[float, float]]:
    """Return (seconds, bytes allocated) over time, on the GPU if one was used, otherwise by tensors on the host."""
    with io.open(path) as file:
        events = json.load(file)["traceEvents"]
    taken = [event for event in events if event.get("name") == "[memory]" and "Total Allocated" in event["args"]]
    kinds = {event["args"].get("Device Type") for event in taken}
    wanted = max(kinds, default=None)
    chosen = sorted(
        (event["ts"], event["args"]["Total Allocated"]) for event in taken if event["args"].get("Device Type") == wanted
    )
    return [((at - chosen[0][0]) / 1e6, float(size)) for at, size in chosen]


@contextmanager
def named_modules(model: nn.Module) -> Generator[None]:
    """Record each module of a network by its name in profiles, while the context lasts."""
    open_: list[Any] = []

    def enter(name: str) -> None:
        open_.append(record_function(name))
        open_[-1].__enter__()

    def leave(*_: object) -> None:
        open_.pop().__exit__(None, None, None)

    hooks = []
    for name, module in model.named_modules():
        shown = name or _root(model)
        hooks.append(module.register_forward_pre_hook(lambda module, inputs, name=shown: enter(name)))
        hooks.append(module.register_forward_hook(leave, always_call=True))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
