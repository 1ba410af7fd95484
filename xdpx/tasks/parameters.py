"""Parameters of tasks, in a module without torch so that configs can be checked without it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

from xdpx.config import parameters as declare

GROUP = "task"


class NetworkParameters(declare.Parameters):
    """Keys of the network."""

    model: str = declare.param(doc="The network.", registry="model", group=GROUP)


class DataParameters(declare.Parameters):
    """Keys of the loss and the data."""

    loss: str = declare.param(doc="What training minimises.", registry="loss", group=GROUP, alters="loss")
    dataset: str = declare.param("default", doc="How samples are accessed.", registry="dataset", group=GROUP)
    dataset_format: Literal["torch", "jsonl"] = declare.param(
        "torch", doc="Format of the preprocessed splits: torch: <split>.pt; jsonl: <split>.jsonl.", group=GROUP
    )
    sampler: str = declare.param(
        "default", doc="Which samples form a batch, and in which order.", registry="sampler", group=GROUP
    )
    batch_by_len: bool = declare.param(
        False, doc="Fill batches with texts of similar length: less padding, faster training.", group=GROUP
    )


CLUSTERS = "clusters"


class ClusterTaskParameters(DataParameters, NetworkParameters):
    """Keys of `bert_cl`."""

    num_cluster: list[int] = declare.param(
        [], gt=0, doc="How many prototypes are in each set, e.g. [64, 128]; []: none, as loss simcse.", group=CLUSTERS
    )
    cluster_warmup: int = declare.param(0, ge=0, doc="Updates before prototypes are first computed.", group=CLUSTERS)
    cluster_interval: int = declare.param(10_000, gt=0, doc="Updates until they are computed again.", group=CLUSTERS)
    cluster_niter: int = declare.param(50, gt=0, doc="Iterations of k-means.", group=CLUSTERS)
    cluster_nredo: int = declare.param(3, gt=0, doc="Random starts of k-means; the best is kept.", group=CLUSTERS)
    max_points_per_centroid: int = declare.param(
        1000, gt=0, doc="Maximum number of rows per prototype.", group=CLUSTERS
    )
    min_points_per_centroid: int = declare.param(
        10,
        gt=0,
        doc="Minimum number of rows per prototype: with fewer rows there are fewer prototypes.",
        group=CLUSTERS,
    )
    data_size_for_cluster: int = declare.param(
        10_000,
        gt=0,
        doc="Rows of the training data that prototypes are found in, drawn again each time.",
        group=CLUSTERS,
    )
    supervised: bool = declare.param(False, doc="Prototypes are the means of classes.", group=CLUSTERS)
    num_classes: int | None = declare.param(None, gt=0, doc="Number of classes, from meta.hjson.", group=CLUSTERS)
    temperature: float = declare.param(0.05, gt=0, doc="Mean density of the clusters.", group=CLUSTERS)
    path_to_stsb: str | None = declare.param(
        None, doc="Refused: preprocess STS-B as the split dev, and set major_metric: spearman.", group=CLUSTERS
    )
    data_dir: str | None = declare.param(None, doc="The folder that x-prepro wrote.", group=CLUSTERS)
    train_subset: str | list[str] = declare.param("train", doc="Splits to train on.", group=CLUSTERS)
    batch_size: int | None = declare.param(None, ge=1, doc="Samples per batch.", group=CLUSTERS)
    seed: int | None = declare.param(1, doc="Random seed.", group=CLUSTERS)

    def conflicts(self) -> list[tuple[str, str]]:
        """Return faults: an option that has moved, missing classes, or a missing package."""
        found = super().conflicts()
        if self.path_to_stsb is not None:
            problem = "has moved. Preprocess STS-B as the split dev (loader: pair, target_type: number)"
            found.append(("path_to_stsb", f"{problem} and set major_metric: spearman."))
        if self.supervised and self.num_classes is None:
            found.append(("supervised", "is true, but the data have no classes. Preprocess labelled rows."))
        if self.num_cluster and not self.supervised and find_spec("sklearn") is None:
            found.append(("num_cluster", "needs the package scikit-learn. Run: pip install 'xdpx[sklearn]'."))
        return found
