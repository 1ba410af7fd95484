"""One stage of a run of a trial, in any process: resume the run, train it up to an update, and return the outcome.

No work is repeated: after a kill, what is on disk already is resumed or only read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from xdpx.checkpoints.checkpointer import Checkpointer, NoCheckpoint
from xdpx.config.faults import ConfigError
from xdpx.config.loading import Run
from xdpx.training.preemption import EXIT_CODE
from xdpx.training.status import Status, read_status
from xdpx.utils import io
from xdpx.utils.aside import set_aside
from xdpx.utils.commit import LeaseHeld
from xdpx.utils.memory import comes_of_out_of_memory

SECONDS_TO_WAIT_FOR_OWNER = 60.0
"""A process whose driver was killed saves and ends by itself; the next driver waits this long before it continues the
run."""

OutcomeKind = Literal["done", "failed", "interrupted", "world"]


@dataclass(frozen=True)
class Stage:
    """The task of an executor: plain data, so that it can be sent to another process or machine.

    Attributes:
        name: of the trial, and of the run if it has several.
        run: the checked config of x-train; its `save_dir` is the folder of the run to resume.
        until: the update after which training stops; the schedule is that of `total` updates.
        total: updates of the whole schedule.
    """

    name: str
    run: Run
    until: int
    total: int

    @property
    def folder(self) -> str:
        """The folder of the run."""
        return str(self.run.values["save_dir"])


@dataclass(frozen=True)
class Outcome:
    """The outcome of a stage. Scores are in the folder of its run.

    Attributes:
        kind: done; failed, because of the trial itself; interrupted, to be resumed; or world: the disk or the network
            failed, which is not the fault of the trial.
        reason: why, for people.
    """

    kind: OutcomeKind
    reason: str = ""


def reached(stage: Stage) -> bool:
    """Return whether the run has reached the end of the stage already, or ended early by one of its rules."""
    status = read_status(stage.folder)
    return status is not None and status.status == "finished" and (status.step >= stage.until or ended_early(status))


def ended_early(status: Status) -> bool:
    """Return whether a run ended early by one of its rules (tolerance, min_lr, max_loss)."""
    return status.status == "finished" and status.step < status.until


def train_to(stage: Stage) -> Outcome:
    """Train the run of a stage up to its end, and return the outcome, also for an error of training."""
    end = time.monotonic() + SECONDS_TO_WAIT_FOR_OWNER
    while True:
        try:
            return Outcome("done") if reached(stage) else _trained(stage)
        except LeaseHeld as error:
            if time.monotonic() > end:
                return Outcome("world", str(error))
            time.sleep(0.2)
        except NoCheckpoint:
            set_aside(stage.folder, "holds no state that can be read", then="its run starts over")
        except (KeyboardInterrupt, SystemExit) as error:
            return Outcome("interrupted", str(error))
        except Exception as error:
            return outcome_of(error)


def outcome_of(error: Exception) -> Outcome:
    """Return the outcome that an error of training means."""
    text = " ".join(str(error).split()) or type(error).__name__
    if comes_of_out_of_memory(error):
        return Outcome("failed", f"out of memory: {text}")
    if isinstance(error, FloatingPointError):
        return Outcome("failed", text)
    if isinstance(error, ConfigError):
        return Outcome("failed", "; ".join(str(fault) for fault in error.faults))
    if isinstance(error, OSError):
        return Outcome("world", text)
    return Outcome("failed", f"{type(error).__name__}: {text}")


def _trained(stage: Stage) -> Outcome:
    command = stage.run.picked("command")
    code = command(continuing(stage)).run() or 0
    if code == EXIT_CODE:
        return Outcome("interrupted")
    return Outcome("done") if code == 0 else Outcome("failed", f"ended with exit code {code}; see its log.txt.")


def continuing(stage: Stage) -> Run:
    """Return the run with settings that resume it from its folder and stop at the end of the stage."""
    steps = Checkpointer(stage.folder).newest_state() if io.isdir(stage.folder) else None
    status = read_status(stage.folder)
    if status is not None and status.status != "finished" and status.until == min(stage.until, stage.total):
        train_steps = status.train_steps  # a stretch that was interrupted: the same command leads to the same end
    else:
        train_steps = None if stage.until >= stage.total else stage.until - (steps or 0)
    changes = {"train_steps": train_steps, "resume": True if steps else "auto"}
    return replace(stage.run, values={**stage.run.values, **changes})


Teller = Callable[[Outcome], None]
