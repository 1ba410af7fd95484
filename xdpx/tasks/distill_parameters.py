"""What on-line distillation lets a user decide. No torch here, so that a config is checked before torch is imported."""

from __future__ import annotations

from xdpx.config import parameters as declare
from xdpx.tasks.data_parameters import GROUP, DataParameters


class DistillParameters(DataParameters):
    """Keys of `distill`."""

    teacher_model: str = declare.param(
        doc="The network that is learned from; its keys begin with teacher_.", registry="model", group=GROUP
    )
    teacher_pretrained_model: str = declare.param(
        doc="All weights of the teacher: a file, a folder, or e.g. out/teacher/<best>.", group=GROUP
    )
    student_model: str = declare.param(
        doc="The network that is trained and kept; its keys begin with student_.", registry="model", group=GROUP
    )

    @property
    def model(self) -> str:
        """The network that is trained."""
        return self.student_model
