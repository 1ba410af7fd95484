"""What `task: slm` and `task: rmr` let a user decide. No torch here."""

from __future__ import annotations

from xdpx.config import parameters as declare
from xdpx.tasks.data_parameters import DataParameters, NetworkParameters


class DiagnosisParameters(DataParameters, NetworkParameters):
    """Keys of `slm` and `rmr`."""

    max_len: int = declare.param(doc="Longest text in tokens, from meta.hjson.", gt=0)
    max_messages: int | None = declare.param(None, gt=0, doc="Most messages of a session, from meta.hjson.")
    data_dir: str | None = declare.param(None, doc="The folder that x-prepro wrote; its vocab.txt is used.")
