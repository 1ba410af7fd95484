"""A small command and modules for the tests of config: it draws a shape, which has its own keys."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any, ClassVar, Literal

from xdpx.commands import commands
from xdpx.config.faults import ConfigError, Fault
from xdpx.config.loading import Run, fingerprint
from xdpx.config.parameters import Parameters as Base
from xdpx.config.parameters import param
from xdpx.config.registry import REGISTRIES, Registry
from xdpx.utils import commit, io

shapes: Registry[Any] = REGISTRIES.get("shape") or Registry("shape", {})
colours: Registry[Any] = REGISTRIES.get("colour") or Registry("colour", {})


class Draw:
    """Draw one shape."""

    class Parameters(Base):
        shape: str = param(doc="what to draw", registry="shape")
        teacher_shape: str | None = param(None, doc="a second shape", registry="shape")
        save_dir: str = param(doc="where the picture goes", path="new_directory", unique=True)
        source: str | None = param(None, doc="a picture to begin with", path="file")
        batch_size: int = param(doc="pictures at once", gt=0)
        interval: int | None = param(None, doc="pictures between looks", relative="inverse", gt=0, group="draw/log")
        learning_rate: float = param(1e-3, doc="speed", gt=0)
        save: bool = param(True, doc="whether to keep it")
        save_best: bool = param(False, doc="keep the best alone", when=("save", "is", True))
        save_above: float | None = param(None, doc="keep above", when=("save_best", "is", True))
        style: Literal["plain", "rich"] = param("plain", doc="how it looks")
        overwrite: bool = param(False, doc="start over")
        resume: bool = param(False, doc="go on")
        sizes: list[int] = param([3], doc="widths", gt=0)

        def conflicts(self) -> list[tuple[str, str]]:
            if self.batch_size == 13:
                return [("batch_size", "is 13. Use a luckier number.")]
            return []

    def __init__(self, run: Run) -> None:
        self.parameters: Draw.Parameters = run.parameters("command")
        self.shape = run.build("shape")
        self.fingerprint = fingerprint(run)

    def check(self) -> list[Fault]:
        """Reject an existing output file."""
        folder = self.parameters.save_dir
        if io.isdir(folder) and not (self.parameters.overwrite or self.parameters.resume):
            return [Fault("save_dir", f"'{folder}' exists.", "Set overwrite: true, or choose another.")]
        return []

    def run(self) -> None:
        """Write a line, or fail in the way that the shape specifies."""
        folder = self.parameters.save_dir
        print(f"drawing {self.shape.parameters} with {os.environ.get('OMP_NUM_THREADS')} threads", flush=True)  # noqa: T201
        self.shape.draw()
        commit.write_text(io.join(folder, "picture.txt"), repr(self.shape.parameters))
        status = {"status": "finished", "fingerprint": self.fingerprint, "best_score": 0.5}
        commit.write_text(io.join(folder, "status.json"), json.dumps(status))


class Circle:
    """A round thing."""

    class Parameters(Base):
        radius: float = param(doc="in pixels", gt=0)
        num_colours: int = param(doc="a fact from meta")

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters


class Square:
    """A thing with corners."""

    class Parameters(Base):
        side: int = param(doc="in pixels", gt=0)
        dropout: float = param(0.2, doc="share left out", ge=0, lt=1)
        colour: str = param("ink", doc="what fills it", registry="colour")
        mishap: Literal["none", "bug", "disk", "user", "memory", "preempted", "killed", "wait", "interrupt"] = param(
            "none", doc="what goes wrong"
        )

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters

    def draw(self) -> None:
        """Fail in the configured way."""
        mishap = self.parameters.mishap
        if mishap == "bug":
            raise ZeroDivisionError("by nothing")
        if mishap == "disk":
            raise OSError("cannot write") from OSError(28, "No space left on device")
        if mishap == "user":
            raise ConfigError("draw", [Fault("side", "is odd.")])
        if mishap == "memory":
            raise MemoryError("17 GiB")
        if mishap == "preempted":
            raise SystemExit(85)
        if mishap == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if mishap == "interrupt":
            raise KeyboardInterrupt
        if mishap == "wait":
            signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(85))
            print("waiting", flush=True)  # noqa: T201
            time.sleep(60)


class Ink:
    """Black."""

    class Parameters(Base):
        shade: int = param(1, doc="of black")


class Paint:
    """Any colour."""

    class Parameters(Base):
        thickness: int = param(2, doc="of the layer")

    needs: ClassVar[str] = "a brush"


for registry, name, thing in (
    (commands, "x-draw", Draw),
    (shapes, "circle", Circle),
    (shapes, "square", Square),
    (colours, "ink", Ink),
    (colours, "paint", Paint),
):
    if name not in registry:
        registry.register(name)(thing)
