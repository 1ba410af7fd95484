"""What callbacks read and decide: where a training stands, and what should happen next. Both are plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from xdpx.trainer.files.state import ExportableState, TrainerState, is_exportable, restore_states, states_of
from xdpx.utils.distributed_utils import any_process_of_each

__all__ = ["ExportableState", "TrainerControl", "TrainerState", "is_exportable", "restore_states", "states_of"]


@dataclass
class TrainerControl(ExportableState):
    """What should happen next. Callbacks set these; the loop obeys and sets them back.

    `should_training_stop` is set back when a training begins, `should_epoch_stop` when an epoch begins, the others when
    a step begins and when they were served.
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
        """Let every flag be up that is up on one of the processes. On all processes."""
        names = [each.name for each in fields(self)]
        for name, up in zip(names, any_process_of_each([getattr(self, name) for name in names]), strict=True):
            setattr(self, name, up)

    def _new_training(self) -> None:
        self.should_training_stop = False

    def _new_epoch(self) -> None:
        self.should_epoch_stop = False

    def _new_step(self) -> None:
        self.should_save = self.should_evaluate = self.should_log = False
