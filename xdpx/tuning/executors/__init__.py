"""Where stages are trained: processes of this machine, or a Ray cluster, behind one interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from xdpx.tuning.parameters import TuneParameters
from xdpx.tuning.stages import Outcome, Stage


class Executor(Protocol):
    """Trains stages, `capacity` at a time. A stage whose worker is killed is started once more."""

    capacity: int

    def start(self, stage: Stage) -> None:
        """Start a stage. The caller makes sure that fewer than `capacity` are running."""
        ...

    def wait(self, seconds: float) -> list[tuple[Stage, Outcome]]:
        """Wait at most `seconds`, and return the stages that have ended since the last call."""
        ...

    def stop(self) -> None:
        """Ask every running stage to save and end; `wait` then returns each as interrupted."""
        ...

    def close(self) -> None:
        """Kill what is still running, and free all resources."""
        ...


def executor_named(
    name: Literal["local", "ray"], needs: TuneParameters, *, stage: Stage, preload: Sequence[str], output: str
) -> Executor:
    """Return an executor.

    Args:
        name: where stages are trained.
        needs: the settings of the search.
        stage: an example of a stage, from which the devices that a run needs are determined.
        preload: modules that every run imports.
        output: folder for what the processes write to their consoles.
    """
    if name == "ray":
        from xdpx.tuning.executors import ray as chosen
    else:
        from xdpx.tuning.executors import local as chosen  # type: ignore[no-redef]
    made: Executor = chosen.make(needs, stage=stage, preload=preload, output=output)
    return made
