"""What `task: fewshot` lets a user decide. No torch here."""

from __future__ import annotations

from xdpx.config import parameters as declare
from xdpx.tasks.data_parameters import DataParameters, NetworkParameters

GROUP = "task"


class FewshotTaskParameters(DataParameters, NetworkParameters):
    """Keys of `fewshot`."""

    proj_hidden_size: int = declare.param(768, ge=1, doc="Width of the vectors.", group=GROUP)
    support_subset: str | None = declare.param(
        None,
        doc="Labelled split whose rows x-pred knows the classes by; null: it writes the vectors of rows.",
        group=GROUP,
    )
    data_dir: str | None = declare.param(None, doc="The folder that x-prepro wrote.", group=GROUP)
    save_dir: str | None = declare.param(None, doc="Folder of this run.", group=GROUP)
    batch_size: int | None = declare.param(None, ge=1, doc="Samples per batch.", group=GROUP)
