"""A trace of updates names modules, tells phases apart and is kept, on both engines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from xdpx.engines.pytorch.profiling import traced
from xdpx.reports.profile_pictures import Part
from xdpx.training.callbacks.profiling import Profiling, table_of
from xdpx.training.loop import Session, Step
from xdpx.training.progress import Progress


class Engine:
    """Traces a network."""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 2))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def traced(self, state: object, folder: str) -> Any:
        return traced(self.model, folder)

    def update(self) -> None:
        self.model(torch.ones(32, 64)).sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def test_a_profile_of_a_training_leaves_trace_table_and_pictures(tmp_path: Path) -> None:
    engine, profiling = Engine(), Profiling(str(tmp_path), updates=3)
    session = Session(engine, None, Progress(), 12, 12)
    profiling.on_start(session)
    for number in range(1, 13):
        engine.update()
        session.progress.num_updates = number
        profiling.on_step(session, Step(number, None, {}, None))  # type: ignore[arg-type]
    profiling.close()
    folder = tmp_path / "profile"
    assert {path.name for path in folder.iterdir()} == {"trace.json", "table.txt", "flame.png", "memory.png"}
    table = (folder / "table.txt").read_text()
    assert table.startswith("updates 6 to 8\n")
    assert "ms per batch  forward of Sequential" in table
    names = {event.get("name") for event in json.loads((folder / "trace.json").read_text())["traceEvents"]}
    assert {"forward of Sequential", "0", "2"} <= names


def test_phases_are_told_apart_and_parts_stand_in_their_wholes(tmp_path: Path) -> None:
    engine = Engine()
    with traced(engine.model, str(tmp_path)) as found:
        engine.update()
    assert {"forward", "backward", "optimizer"} <= found.seconds.keys()
    assert ("forward of Sequential", "0") in found.modules
    assert ("optimizer",) in found.modules
    root = Part()
    for path, seconds in found.modules.items():
        root.add(path, seconds)
    assert {"forward of Sequential", "backward", "optimizer"} <= root.parts.keys()
    assert found.memory[-1][0] >= 0.0
    lines = table_of({"data": 1.0, "update": 3.0}, found, 2)
    assert lines[1].split() == ["data", "wait", "500.000", "25.0%"]


def test_a_run_that_is_too_short_is_traced_as_far_as_it_goes(tmp_path: Path) -> None:
    engine, profiling = Engine(), Profiling(str(tmp_path))
    session = Session(engine, None, Progress(), 2, 2)
    profiling.on_start(session)
    for number in (1, 2):
        engine.update()
        profiling.on_step(session, Step(number, None, {}, None))  # type: ignore[arg-type]
    profiling.close()
    assert (tmp_path / "profile" / "table.txt").read_text().startswith("updates 2 to 2\n")
