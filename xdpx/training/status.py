"""The status file of a run, read by people and by the program that starts it again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from xdpx.utils import commit, io
from xdpx.utils.aside import text_of

STATUS_FILE = "status.json"
RunState = Literal["running", "finished", "preempted", "failed"]
Content = Literal["nothing", "run", "something else"]
"""What a folder contains; only "run" may be resumed or overwritten."""


@dataclass(frozen=True)
class Status:
    """The status of a run.

    Attributes:
        step, total_steps: updates taken so far, and updates of the whole schedule.
        fingerprint: hash of everything that decides what the run computes.
        until: the last update to take before the run pauses or ends.
        train_steps: the setting that `until` comes from; None to train to the end.
        best_score: best score of the major metric so far.
        reason: why it ended.
        data: SHA-256 by name of the files of data_dir that it was trained and scored on; None where that is unknown.
    """

    status: RunState
    step: int
    total_steps: int
    fingerprint: str
    until: int = 0
    train_steps: float | None = None
    best_score: float | None = None
    reason: str = ""
    data: Mapping[str, str] | None = None

    def write(self, folder: str) -> None:
        """Write it into `folder`, atomically."""
        facts: dict[str, Any] = {**asdict(self), "written": datetime.now(UTC).isoformat(timespec="seconds")}
        commit.write_text(io.join(folder, STATUS_FILE), json.dumps(facts, indent=2) + "\n")


def read_status(folder: str) -> Status | None:
    """Return the status of the run in `folder`; None if there is none, or it cannot be read."""
    path = io.join(folder, STATUS_FILE)
    if not io.isfile(path):
        return None
    text, trouble = text_of(path)
    return None if trouble else _parsed(text)


def trouble_of_status(path: str) -> str:
    """Return what is wrong with a status file, '' if nothing is."""
    text, trouble = text_of(path)
    return trouble or ("" if _parsed(text) else "is not the status of a run")


def _parsed(text: str) -> Status | None:
    try:
        facts = json.loads(text)
        # Keys of a later version are passed over, as is the time of writing.
        found = Status(**{field.name: facts[field.name] for field in fields(Status) if field.name in facts})
    except (ValueError, TypeError, RecursionError):
        return None
    counts = (found.step, found.total_steps, found.until)
    measures = (found.train_steps, found.best_score)
    known = (
        found.status in get_args(RunState)
        and all(_is_whole(each) and each >= 0 for each in counts)
        and all(each is None or type(each) is float or _is_whole(each) for each in measures)
        and isinstance(found.data, dict | None)
    )
    return found if known else None


def _is_whole(value: object) -> bool:
    """Return whether a JSON value is an integer that fits into 64 bits; True and False are not."""
    return type(value) is int and abs(value) < 2**63
