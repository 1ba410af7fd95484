"""The status of an x-prepro run (running, finished, failed or stopped), for a training that waits for its splits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

from xdpx.utils import commit, io
from xdpx.utils.aside import text_of
from xdpx.utils.leases import OwnerWatch

FILE = "status.json"
MakingStatus = Literal["", "running", "failed", "finished"]


@dataclass(frozen=True)
class Making:
    """The content of `status.json` in a data_dir.

    Attributes:
        status: "running", "failed" or "finished"; "" if unknown.
        fingerprint: of the run of x-prepro.
        left: splits that it, or an earlier run, has not finished.
        reason: why it failed.
    """

    status: MakingStatus = ""
    fingerprint: str = ""
    left: Sequence[str] = ()
    reason: str = ""

    @classmethod
    def read(cls, data_dir: str) -> Self:
        """Return the status of a data_dir; an empty one if the file is missing or damaged."""
        try:
            text, _ = text_of(io.join(data_dir, FILE))
            found = json.loads(text)
            return cls(found["status"], found["fingerprint"], tuple(found.get("left", ())), found.get("reason", ""))
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            return cls()

    def write(self, data_dir: str) -> None:
        """Write `status.json` atomically."""
        facts: dict[str, object] = {"status": self.status, "fingerprint": self.fingerprint}
        facts |= {"left": list(self.left)} if self.left else {}
        facts |= {"reason": self.reason} if self.reason else {}
        commit.write_text(io.join(data_dir, FILE), json.dumps(facts) + "\n")


class Waiting:
    """Polls whether the x-prepro that makes the splits of a folder is still running."""

    def __init__(self, data_dir: str) -> None:
        self._data_dir, self._watch = data_dir, OwnerWatch(data_dir)

    def stopped(self) -> tuple[str, Sequence[str]]:
        """Return (how it ended, the unfinished splits); ('', ()) while it is running, or if it has finished.

        A killed run is recognised by its lease, so an x-prepro that has been restarted counts as running.
        """
        if self._watch.is_owned():
            return "", ()
        found = Making.read(self._data_dir)  # after the lease: a run that just ended has written it
        if found.status == "failed":
            return f"failed ({found.reason})" if found.reason else "failed", found.left
        return ("was stopped" if found.left else "", found.left)
