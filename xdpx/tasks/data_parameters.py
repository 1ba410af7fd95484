"""What every task lets a user decide: the network, its loss, and its data. No torch here."""

from __future__ import annotations

from typing import Literal

from xdpx.config import parameters as declare

GROUP = "task"


class NetworkParameters(declare.Parameters):
    """What is trained."""

    model: str = declare.param(doc="The network.", registry="model", group=GROUP)


class DataParameters(declare.Parameters):
    """What is minimised, on what."""

    loss: str = declare.param(doc="What training minimises.", registry="loss", group=GROUP)
    dataset: str = declare.param("default", doc="How samples are reached.", registry="dataset", group=GROUP)
    dataset_format: Literal["torch", "jsonl"] = declare.param(
        "torch", doc="Format of the preprocessed splits: torch: <split>.pt; jsonl: <split>.jsonl.", group=GROUP
    )
    sampler: str = declare.param(
        "default", doc="Which samples make a batch, and in which order.", registry="sampler", group=GROUP
    )
    batch_by_len: bool = declare.param(
        False, doc="Fill batches with texts of similar length: less padding, faster training.", group=GROUP
    )
