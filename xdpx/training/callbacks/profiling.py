"""Profile some updates: where their time and memory go (`profile: true`, in every door)."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack

from xdpx.engines.base import Traced
from xdpx.logger import log
from xdpx.training.loop import Callback, Session, Step, Stop
from xdpx.training.spending import DATA, EXPECTED, UPDATE, shares
from xdpx.utils import commit, io
from xdpx.utils.pulse import LONG, WAITING, pulse

FOLDER = "profile"
WARM_UP = 5
"""First updates, which are not traced: they compile, open files and fill caches."""
UPDATES = 5
"""Few, because reading a trace takes as long as the updates themselves."""
MODULES_SHOWN = 20


class Profiling(Callback):
    """Traces some updates; writes trace, table, flame graph and memory over time into `profile` of the run's folder.

    Args:
        folder: of the run.
        figext: format of the pictures.
        updates: number of updates to trace.
    """

    def __init__(self, folder: str, figext: str = "png", *, updates: int = UPDATES) -> None:
        self._folder, self._figext, self._updates = io.join(folder, FOLDER), figext, updates
        self._tracing, self._place = ExitStack(), ExitStack()
        self._local = ""
        self._found: Traced | None = None
        self._begin = 0
        self._before: Mapping[str, float] = {}

    def on_start(self, session: Session) -> None:
        """Choose the updates to trace: after `WARM_UP`, and before training ends."""
        left = session.until - session.number
        self._updates = max(1, min(self._updates, left - 1))
        self._begin = session.number + max(1, min(WARM_UP, left - self._updates))

    def on_step(self, session: Session, step: Step) -> Stop | None:
        """Begin or end the trace."""
        if step.number == self._begin and step.number < session.until:
            self._local = self._place.enter_context(tempfile.TemporaryDirectory(prefix="xdpx-profile-"))
            with pulse.doing("profiling", LONG):
                self._found = self._tracing.enter_context(session.engine.traced(session.state, self._local))
            self._before = dict(pulse.spent)
        elif self._found is not None and step.number >= self._begin + self._updates:
            self._finish(step.number)
        return None

    def on_end(self, session: Session, stop: Stop) -> None:
        """End a running trace, and write the profile."""
        if self._found is not None:
            self._finish(session.number)

    def close(self) -> None:
        """End the trace, and remove its temporary files."""
        self._tracing.close()
        self._place.close()

    def _finish(self, number: int) -> None:
        """Write the profile. A failure is only a warning."""
        found, self._found = self._found, None
        seconds = {name: spent - self._before.get(name, 0.0) for name, spent in pulse.spent.items()}
        try:
            with pulse.doing("profiling", LONG):
                self._tracing.close()
                if found is not None:
                    self._write(found, seconds, number - self._begin)
        except Exception as error:  # whatever is wrong with a profile, training is worth more
            log.warning(f"the profile was not written: {type(error).__name__}: {error}")
        finally:
            self._place.close()

    def _write(self, found: Traced, seconds: Mapping[str, float], updates: int) -> None:
        io.copytree(self._local, self._folder)
        lines = table_of(seconds, found, updates)
        told = f"updates {self._begin + 1} to {self._begin + updates}"
        commit.write_text(io.join(self._folder, "table.txt"), "\n".join([told, "", *lines]) + "\n")
        write_pictures(found, self._folder, self._figext, title=told)
        log.info(f"profile of {told}: {shares(seconds)}")
        for line in lines[: lines.index("") if "" in lines else None]:
            log.info(line)
        log.info(f"profile: {self._folder} has a trace for https://ui.perfetto.dev, a table and pictures")


def write_pictures(found: Traced, folder: str, figext: str, *, title: str) -> None:
    """Draw the flame graph, and memory over time; each only if the trace has it."""
    from xdpx.reports.profile_pictures import Part, draw_flame, draw_memory

    if found.modules:
        root = Part()
        for path, spent in found.modules.items():
            root.add(path, spent)
        draw_flame(root, io.join(folder, f"flame.{figext}"), title=f"seconds of the host, {title}")
    if found.memory:
        draw_memory(
            found.memory,
            io.join(folder, f"memory.{figext}"),
            title=f"memory beyond what was taken before, {title}",
        )


def table_of(seconds: Mapping[str, float], found: Traced, updates: int) -> list[str]:
    """Return the table of a profile, line by line: by phase of the host, then by module."""
    total = sum(seconds.values()) or 1.0
    inside = sum(found.seconds.values())
    rows: list[tuple[str, float]] = [("data wait", seconds.get(DATA, 0.0))]
    if found.seconds:
        rows += [(name, found.seconds.get(name, 0.0)) for name in ("forward", "backward", "optimizer", "communication")]
    rows += [("rest of the update" if inside else "update", max(0.0, seconds.get(UPDATE, 0.0) - inside))]
    rows += [("waiting for the device", seconds.get(WAITING, 0.0))]
    rows += [(name, spent) for name, spent in seconds.items() if name in EXPECTED and spent > 0]
    known = {DATA, UPDATE, WAITING, *EXPECTED}
    rows += [("logging and other callbacks", sum(spent for name, spent in seconds.items() if name not in known))]
    lines = [f"{'phase':<30}{'ms an update':>14}{'share':>8}"]
    lines += [f"{name:<30}{1000 * spent / updates:>14.3f}{spent / total:>8.1%}" for name, spent in rows]
    parts = module_lines(found, updates)
    told = "operations of the compiled program:" if found.operations else "modules, forward, with all of their parts:"
    return [*lines, "", told, *parts] if parts else lines


def module_lines(found: Traced, count: int, most: int = MODULES_SHOWN) -> list[str]:
    """Return a line for each of the `most` slowest modules or operations, in ms per batch of `count` batches."""
    spent: dict[str, float] = dict(found.operations)
    for path, seconds in found.modules.items():
        if path[:1] not in {("backward",), ("optimizer",)}:
            spent[path[-1]] = spent.get(path[-1], 0.0) + seconds
    longest = sorted(spent.items(), key=lambda row: -row[1])[:most]
    return [f"{1000 * seconds / count:10.3f} ms per batch  {name}" for name, seconds in longest]
