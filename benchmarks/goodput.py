"""Goodput: two processes, of which one is killed or frozen every minute, on either engine.

Goodput is the time that an undisturbed run without saving takes for the same updates, divided by the time of the
disturbed run. Repeated updates, fault detection, restarts, saving and copying count as lost. The undisturbed run is
made afterwards, when a shared machine may be slower or faster, so a second row compares shares of time: how much of
each run was spent in updates that count. The weights and optimizer states of both runs must be bit-identical.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import goodput_runs, goodput_stages
from benchmarks.report import Row, spread
from benchmarks.work import REPOSITORY, WORK, command

MINUTES = 3.0
SECONDS_BETWEEN = 60.0
LIMIT = 0.90
CPU_LIMIT = 10.0
"""CPU seconds of all processes together, from a restart to the end of the first update."""
SIGNALS = (signal.SIGKILL, signal.SIGSTOP)
PROCESSES = 2

Line = Callable[..., list[str]]
"""Returns the command line of a run in a folder: `(folder, *, steps, disturbed)`."""

ReadState = Callable[[Path, int], Mapping[str, bytes]]
"""Returns the state that a run saved at an update, as the bytes of each array."""


@dataclass
class Fault:
    """A process that was killed or frozen, the end of the first update after it, and the stages of the restart.

    Times are monotonic seconds.
    """

    name: str
    rank: int
    at: float
    again: float = 0.0
    stages: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass
class Outcome:
    """The duration of a run and how much of it counts; for a disturbed run, also its faults.

    Attributes:
        seconds: of the run.
        step: number of its last update.
        faults: processes that were killed or frozen.
        useful: seconds in updates that count.
        repeated: number of updates that were taken again.
        cpu_seconds: of all processes, from each restart to the end of the first update.
    """

    seconds: float
    step: int
    faults: list[Fault] = field(default_factory=list)
    useful: float = 0.0
    repeated: int = 0
    cpu_seconds: list[float] = field(default_factory=list)


def of_pytorch(minutes: float = MINUTES) -> Iterator[Row]:
    """Disturb x-train on PyTorch for `minutes`."""
    return _engine_rows("PyTorch", goodput_runs.x_train, _x_train_state, minutes)


def of_jax(minutes: float = MINUTES) -> Iterator[Row]:
    """Disturb an experiment on JAX for `minutes`."""
    return _engine_rows("JAX", goodput_runs.experiment, _jax_state, minutes)


def _engine_rows(engine: str, line: Line, read: ReadState, minutes: float) -> Iterator[Row]:
    """Disturb a run of one engine, repeat it undisturbed, and compare both."""
    folder = WORK / f"goodput-{engine.lower()}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    words = line(folder, steps=None, disturbed=True)
    if (folder / "prepro.json").exists():
        command("x-prepro", str(folder / "prepro.json"))
    told = disturb(words, folder, minutes)
    calm = folder / "calm"
    calm.mkdir()
    again = line(folder, steps=told.step, disturbed=False)
    around = _environment(folder, **{goodput_stages.TRACE: str(calm)})
    done = subprocess.run(again, cwd=REPOSITORY, env=around, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"the undisturbed run ended with {done.returncode}:\n{done.stderr[-4000:]}")
    yield from _rows(engine, told, _undisturbed(calm))
    equal = read(folder / "disturbed", told.step) == read(folder / "undisturbed", told.step)
    what = f"{engine}: weights and optimizer after update {told.step:,} beside an undisturbed run"
    yield Row(what, "equal" if equal else "DIFFERENT", "equal to the bit", equal)


def _rows(engine: str, told: Outcome, calm: Outcome) -> Iterator[Row]:
    kinds = ", ".join(f"{sum(fault.name == each.name for fault in told.faults)} {each.name}" for each in SIGNALS)
    goodput = calm.seconds / told.seconds
    what = f"{engine}: goodput over {told.seconds / 60:.1f} minutes, {kinds}, {told.step:,} updates"
    yield Row(what, f"{goodput:.1%}", f">= {LIMIT:.0%}", goodput >= LIMIT and bool(told.faults))
    share, calm_share = told.useful / told.seconds, calm.useful / calm.seconds
    what = f"{engine}: share of time within updates that count, over that of the undisturbed run"
    measured = f"{share / calm_share:.1%} ({share:.1%} of {calm_share:.1%})"
    yield Row(what, measured, f">= {LIMIT:.0%}", share / calm_share >= LIMIT)
    lost = sum(fault.again - fault.at for fault in told.faults if fault.again)
    yield Row(
        f"{engine}: of this time from a fault to the end of the next update", f"{lost / told.seconds:.1%}", "", True
    )
    for each in SIGNALS:
        alike = [fault for fault in told.faults if fault.name == each.name]
        seconds = [fault.again - fault.at for fault in alike if fault.again]
        if seconds:
            what = f"{engine}: seconds from {each.name} to the end of the next update that counts"
            yield Row(what, spread(seconds), "", True)
        restarts = [fault.stages for fault in alike if fault.stages]
        if restarts:
            yield Row(f"{engine}: of them, medians of {len(restarts)}", goodput_stages.told(restarts), "", True)
    if told.cpu_seconds:
        what = f"{engine}: CPU seconds of both processes from a restart to the end of the first update"
        yield Row(what, spread(told.cpu_seconds), f"<= {CPU_LIMIT:.0f}", max(told.cpu_seconds) <= CPU_LIMIT)
    yield Row(f"{engine}: updates taken twice, per fault", f"{told.repeated / max(1, len(told.faults)):.1f}", "", True)


def _environment(folder: Path, **more: str) -> dict[str, str]:
    paths = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    usual = {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    return {**os.environ, **usual, "XDPX_USER_MODULES": str(folder / "modules"), **more}


def disturb(line: list[str], folder: Path, minutes: float) -> Outcome:
    """Run a command for `minutes`, killing or freezing one of its processes every minute, and end it."""
    drawn = random.Random(1)
    faults: list[Fault] = []
    told_to = folder / "words.txt"
    with told_to.open("w") as words:
        began = time.monotonic()
        around = _environment(folder, **{goodput_stages.TRACE: str(folder)})
        running = subprocess.Popen(line, cwd=REPOSITORY, env=around, stdout=words, stderr=words)
        end, due = began + 60 * minutes, began + SECONDS_BETWEEN / 2
        while time.monotonic() < end and running.poll() is None:
            time.sleep(0.2)
            if time.monotonic() >= due and due < end - 15:
                due += SECONDS_BETWEEN
                faults += _fault(folder, drawn, SIGNALS[len(faults) % len(SIGNALS)])
        if running.poll() is not None:
            raise SystemExit(
                f"ended by itself with {running.returncode}:\n{(folder / 'words.txt').read_text()[-4000:]}"
            )
        seconds = time.monotonic() - began
        running.send_signal(signal.SIGTERM)
        code = running.wait(120)
    if code != 85:
        raise SystemExit(f"ended with {code}, not 85:\n{told_to.read_text()[-4000:]}")
    return _read_trace(folder, seconds, faults, before=began + seconds)


def _fault(folder: Path, drawn: random.Random, number: signal.Signals) -> list[Fault]:
    """Send a signal to one process of the current start, and return it as a fault."""
    rank = drawn.randrange(PROCESSES)
    files = sorted(folder.glob(f"pid-*-{rank}"))
    with suppress(ProcessLookupError, IndexError):
        os.kill(int(files[-1].read_text()), number)
        return [Fault(number.name, rank, time.monotonic())]
    return []


def _read_trace(folder: Path, seconds: float, faults: list[Fault], *, before: float) -> Outcome:
    """Sum the updates that count: the last one of each number."""
    last: dict[int, tuple[float, float]] = {}
    count = 0
    for line in (folder / "updates.tsv").read_text().splitlines():
        parts = line.split("\t")
        if len(parts) == 4:
            count += 1
            last[int(parts[1])] = (float(parts[2]), float(parts[3]))
    told = Outcome(seconds, max(last), faults, repeated=count - len(last))
    told.useful = sum(end - begin for begin, end in last.values() if end <= before)
    stages = goodput_stages.read(folder)
    for fault in faults:
        fault.stages = goodput_stages.after(stages, fault.at)
        fault.again = min((end for begin, end in last.values() if begin > fault.at + 0.2), default=0.0)
    told.cpu_seconds = _cpu_seconds(folder)
    return told


def _undisturbed(folder: Path) -> Outcome:
    """Return the time from the beginning of the first to the end of the last update of an undisturbed run."""
    rows = [line.split("\t") for line in (folder / "updates.tsv").read_text().splitlines()]
    spans = [(float(begin), float(end)) for _, _, begin, end in rows]
    return Outcome(spans[-1][1] - spans[0][0], len(spans), useful=sum(end - begin for begin, end in spans))


def _cpu_seconds(folder: Path) -> list[float]:
    """Return the CPU seconds of each restart until its first update has ended on both processes."""
    lives: dict[str, list[float]] = {}
    for path in folder.glob("cpu-*"):
        lives.setdefault(path.name.split("-")[1], []).append(float(path.read_text()))
    return [sum(found) for life, found in sorted(lives.items()) if int(life) and len(found) == PROCESSES]


def _x_train_state(folder: Path, step: int) -> dict[str, bytes]:
    from xdpx.checkpoints.checkpointer import Checkpointer

    engine = Checkpointer(str(folder)).load_state(step)["engine"]
    return dict(_flat("", {"model": engine["model"], "optimizer": engine["optimizer"]}))


def _flat(name: str, value: Any) -> Iterator[tuple[str, bytes]]:
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _flat(f"{name}/{key}", part)
    elif isinstance(value, list | tuple):
        yield from _flat(name, dict(enumerate(value)))
    else:
        yield name, value.numpy().tobytes() if hasattr(value, "numpy") else repr(value).encode()


def _jax_state(folder: Path, step: int) -> dict[str, bytes]:
    import jax
    from jax.sharding import SingleDeviceSharding

    from xdpx.checkpoints import spmd_files, spmd_folders

    path = f"{folder}/checkpoints/{spmd_folders.folder_name(step)}"
    where = SingleDeviceSharding(jax.devices()[0])
    shapes = spmd_folders.read_shapes(path)
    wanted = {name: jax.ShapeDtypeStruct(shape, kind, sharding=where) for name, (shape, kind) in shapes.items()}
    return {name: bytes(value.tobytes()) for name, value in spmd_files.read(path, wanted).items()}
