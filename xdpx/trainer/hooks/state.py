"""The state that callbacks read, and the control by which they request actions. Both are plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from xdpx.trainer.files.state import (
    RIGHT_STATE,
    ExportableState,
    TrainerState,
    UnusableState,
    is_exportable,
    read_state,
    restore_states,
    states_of,
    trouble_of,
)
from xdpx.utils.distributed_utils import any_process_of_each

__all__ = [
    "RIGHT_STATE", "ExportableState", "TrainerControl", "TrainerState", "UnusableState", "is_exportable",
    "read_state", "restore_states", "states_of", "trouble_of",
]  # fmt: skip


@dataclass
class TrainerControl(ExportableState):
    """Requested actions. Callbacks set these flags; the loop acts on them and resets them.

    `should_training_stop` is reset when a training begins, `should_epoch_stop` when an epoch begins, the others when a
    step begins and after they were served.
    """

    should_training_stop: bool = False
    should_epoch_stop: bool = False
    should_save: bool = False
    should_evaluate: bool = False
    should_log: bool = False

    def state(self) -> dict[str, Any]:
        """Return the five flags."""
        return {"args": asdict(self), "attributes": {}}

    def agree(self) -> None:
        """Set each flag that is set on any process. On all processes."""
        names = [each.name for each in fields(self)]
        for name, up in zip(names, any_process_of_each([getattr(self, name) for name in names]), strict=True):
            setattr(self, name, up)

    def _new_training(self) -> None:
        self.should_training_stop = False

    def _new_epoch(self) -> None:
        self.should_epoch_stop = False

    def _new_step(self) -> None:
        self.should_save = self.should_evaluate = self.should_log = False
