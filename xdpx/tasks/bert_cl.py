"""Contrastive learning with prototypes: cluster centres of the training data's vectors, computed at intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from xdpx.config.faults import refusal
from xdpx.config.loading import Run
from xdpx.datasets.evaluation_data import EvaluationData
from xdpx.datasets.shards import Meta, ShardChoice
from xdpx.datasets.store import SUFFIXES, Store
from xdpx.engines.pytorch.transfer import to_device
from xdpx.logger import log
from xdpx.losses.base import Batch, Loss
from xdpx.losses.contrast import PrototypeContrastLoss, density_of, means_of_classes
from xdpx.tasks.default import Task, network_of
from xdpx.tasks.parameters import ClusterTaskParameters
from xdpx.tokenizers.vocabulary import Vocabulary
from xdpx.utils import io

ROWS_AT_ONCE = 32

ReadRows = Callable[[int], Iterator[Batch]]
"""Yields batches of rows of the training data, chosen by the number of the update."""


class PrototypeContrast(Task):
    """Computes prototypes at intervals, from the vectors of the current model without dropout.

    For loss `bert_cl` with a model that returns vectors of several views, such as `simcse`.

    Source: Li et al., "Prototypical Contrastive Learning of Unsupervised Representations", ICLR 2021, algorithm 1;
    without an encoder of its own for the first step.

    Args:
        parameters: its keys.
        model: returns vectors (B, K, H).
        loss: `bert_cl`.
        read_rows: yields the rows that prototypes are computed from.
    """

    may_share_weights = False  # prototypes are computed outside of train_step

    class Parameters(ClusterTaskParameters):
        """Keys of `bert_cl`."""

    parameters: Any
    loss: PrototypeContrastLoss

    def __init__(self, parameters: Any, model: nn.Module, loss: Loss, *, read_rows: ReadRows) -> None:
        super().__init__(parameters, model, loss)
        if not isinstance(loss, PrototypeContrastLoss):
            problem = f"is '{parameters.loss}', which does not use prototypes."
            raise refusal("loss", problem, "Use loss: bert_cl.")
        if not parameters.num_cluster and not parameters.supervised:
            log.warning("bert_cl: num_cluster is empty, so there are no prototypes; set e.g. num_cluster: [64]")
        self._read_rows = read_rows

    @classmethod
    def built(cls, run: Run, loss: Any) -> PrototypeContrast:
        """Make the task of a run, with its network."""
        return cls(run.parameters("task"), network_of(run), loss, read_rows=lambda number: _rows_of(run, number))

    def begin_update(self, number: int) -> None:
        """Compute prototypes, if they are due before update `number` (from 1)."""
        known = self.parameters
        since = number - 1 - known.cluster_warmup
        if since < 0 or since % known.cluster_interval or not (known.num_cluster or known.supervised):
            return
        self.model.eval()
        self.model.training = True  # its parts, and so dropout, stay as in evaluation; layer_only_in_training counts
        with torch.no_grad():
            rows, classes = self._vectors(number)
        self.model.train()
        if known.supervised:
            centres = means_of_classes(rows, classes, known.num_classes)
            density = density_of(rows, centres, classes, temperature=known.temperature)
            self.loss.prototypes = [(centres, density)]
        else:
            self.loss.prototypes = [self._clustered(rows, count, number) for count in known.num_cluster]

    def _vectors(self, number: int) -> tuple[Tensor, Tensor]:
        """Return unit vectors (N, H) and the classes of their rows (N,), -1 for rows without a label."""
        device = next(self.model.parameters()).device
        vectors, classes = [], []
        for batch in self._read_rows(number):
            found = self.model(**to_device(batch, device)["net_input"])
            vectors.append(functional.normalize(found[:, 0].float(), dim=-1).cpu())
            classes.append(torch.as_tensor(batch.get("target", np.full(len(found), -1))))
        return torch.cat(vectors), torch.cat(classes)

    def _clustered(self, rows: Tensor, count: int, number: int) -> tuple[Tensor, Tensor]:
        from sklearn.cluster import KMeans  # the parameters check that it is installed

        known = self.parameters
        most = min(len(rows), count * known.max_points_per_centroid)
        rows = rows[torch.arange(most) * len(rows) // most]  # evenly: rows come in the order of the data
        count = max(min(count, len(rows) // known.min_points_per_centroid), 1)
        seed = ((known.seed or 0) * 1_000_003 + number) % 2**31
        kmeans = KMeans(count, max_iter=known.cluster_niter, n_init=known.cluster_nredo, random_state=seed)
        cluster = torch.from_numpy(kmeans.fit_predict(rows.double().numpy())).long()
        centres = functional.normalize(torch.from_numpy(kmeans.cluster_centers_).float(), dim=-1)
        return centres, density_of(rows, centres, cluster, temperature=known.temperature)


def _rows_of(run: Run, number: int) -> Iterator[Batch]:
    """Yield batches of training rows, drawn from all splits by the seed and the number of the update."""
    known = run.parameters("task")
    words = run.parameters("processor")
    path = io.join(known.data_dir or "", "vocab.txt")
    tokens = Vocabulary.read(path, pad_word=words.pad_word, unk_word=words.unk_word)
    processor = run.build("processor", vocabulary=tokens)
    shards = ShardChoice(known.train_subset).shards(Meta.read(known.data_dir or ""))
    paths = [io.join(known.data_dir or "", shard + SUFFIXES[known.dataset_format]) for shard in shards]
    stores = [Store.open(path) for path in paths if io.isfile(path)]  # of lazy_load, others may be in the making
    drawn = np.random.default_rng([known.seed or 0, number])
    size = known.batch_size or ROWS_AT_ONCE
    for store, rows in zip(stores, rows_of_each([*map(len, stores)], known.data_size_for_cluster, drawn), strict=True):
        if len(rows):
            yield from (batch for _, batch in EvaluationData(store.take(rows), processor, batch_size=size))


def rows_of_each(sizes: Sequence[int], most: int, drawn: np.random.Generator) -> list[NDArray[np.int64]]:
    """Return at most so many rows, drawn alike from the splits of these sizes: for each split its own, in order."""
    ends = np.cumsum(sizes)
    rows = np.sort(drawn.permutation(int(ends[-1]))[:most])
    parts = np.split(rows, np.searchsorted(rows, ends[:-1]))
    return [part - (end - size) for part, end, size in zip(parts, ends, sizes, strict=True)]
