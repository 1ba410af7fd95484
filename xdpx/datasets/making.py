"""How a run of x-prepro stands, for whoever waits for its splits: at work, done, or stopped before it was done."""

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
    """What `status.json` of preprocessed data says.

    Attributes:
        status: "running", "failed" or "finished"; "" where nothing is known.
        fingerprint: of the run of x-prepro.
        left: splits that it, or a run before it, had yet to make, or to make anew.
        reason: why it failed.
    """

    status: MakingStatus = ""
    fingerprint: str = ""
    left: Sequence[str] = ()
    reason: str = ""

    @classmethod
    def read(cls, data_dir: str) -> Self:
        """Read it; a file that is not there, or damaged, says nothing."""
        try:
            text, _ = text_of(io.join(data_dir, FILE))
            found = json.loads(text)
            return cls(found["status"], found["fingerprint"], tuple(found.get("left", ())), found.get("reason", ""))
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            return cls()

    def write(self, data_dir: str) -> None:
        """Write it, whole or not at all."""
        facts: dict[str, object] = {"status": self.status, "fingerprint": self.fingerprint}
        facts |= {"left": list(self.left)} if self.left else {}
        facts |= {"reason": self.reason} if self.reason else {}
        commit.write_text(io.join(data_dir, FILE), json.dumps(facts) + "\n")


class Waiting:
    """Look again and again whether the x-prepro that makes the splits of a folder is still at work."""

    def __init__(self, data_dir: str) -> None:
        self._data_dir, self._watch = data_dir, OwnerWatch(data_dir)

    def stopped(self) -> tuple[str, Sequence[str]]:
        """Return (how it ended, the splits that it did not make); ('', ()) while it is at work, or when it is done.

        A run that was killed is known by its lease, so that of an x-prepro that starts again nothing is said.
        """
        if self._watch.is_owned():
            return "", ()
        found = Making.read(self._data_dir)  # after the lease: a run that ended in between has written how
        if found.status == "failed":
            return f"failed ({found.reason})" if found.reason else "failed", found.left
        return ("was stopped" if found.left else "", found.left)
