"""Few-shot classification with any network: it returns vectors, and a class is the mean vector of a few rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from xdpx.config import parameters as declare
from xdpx.config.faults import refusal
from xdpx.config.loading import Run
from xdpx.datasets.evaluation_data import DRAWN, EvaluationData
from xdpx.datasets.store import SUFFIXES, Store
from xdpx.engines.pytorch.transfer import to_device
from xdpx.losses.base import Batch, Loss
from xdpx.losses.fewshot import FewshotLoss
from xdpx.metrics.judging import LABEL_COLUMNS
from xdpx.tasks.default import Task, network_of
from xdpx.tasks.parameters import GROUP, DataParameters, NetworkParameters
from xdpx.tokenizers.vocabulary import Vocabulary
from xdpx.utils import io

ROWS_AT_ONCE = 32


class Fewshot(Task):
    """A classifier of any kind, light or BERT, whose last layer returns vectors instead of logits.

    It trains and is evaluated on the episodes of `sampler: episode`. x-pred represents every class of `support_subset`,
    seen in training or not, by the mean of its rows there, and assigns each row to the nearest one.

    Source: Snell et al., "Prototypical Networks for Few-shot Learning", NeurIPS 2017, section 2.

    Args:
        parameters: its keys.
        model: returns vectors.
        loss: `fewshot`.
        read_support: returns the batches of `support_subset`.
    """

    class Parameters(DataParameters, NetworkParameters):
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

    parameters: Any
    loss: FewshotLoss

    def __init__(
        self, parameters: Any, model: nn.Module, loss: Loss, *, read_support: Callable[[], Iterator[Batch]]
    ) -> None:
        super().__init__(parameters, model, loss)
        if not isinstance(loss, FewshotLoss):
            problem = f"is '{parameters.loss}', which does not use episodes."
            raise refusal("loss", problem, "Use loss: fewshot.")
        self._read_support = read_support
        self._prototypes: tuple[Tensor, Tensor] | None = None

    @classmethod
    def built(cls, run: Run, loss: Any) -> Fewshot:
        """Return the task of a run, with a network whose output has `proj_hidden_size` features."""
        parameters = run.parameters("task")
        wide = replace(run, values={**run.values, "num_classes": parameters.proj_hidden_size})
        return cls(parameters, network_of(wide), loss, read_support=lambda: _support_of(run))

    def valid_step(self, batch: Batch) -> dict[str, Tensor]:
        """Return the predictions of the episodes of a batch, or of single rows."""
        found = super().valid_step(batch)
        if DRAWN in batch or self.parameters.support_subset is None:
            return found
        prototypes, classes = self._known_classes(found["vector"].device)
        near = self.loss.nearness(found["vector"], prototypes).softmax(dim=-1)
        prob = near.new_zeros(len(near), int(classes.max()) + 1).index_copy(1, classes, near)
        return {"prob": prob, "pred": classes[near.argmax(dim=-1)]}

    def header(self) -> list[str]:
        """Return the names of the columns that `rows` yields."""
        return super().header() if self.parameters.support_subset is None else [*LABEL_COLUMNS]

    def _known_classes(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the mean vector of each class of `support_subset`, (N, H), and the numbers of these classes, (N,).

        Computed once, because only x-pred uses it, where the weights never change.
        """
        if self._prototypes is None:
            batches = [to_device(batch, device) for batch in self._read_support()]
            vectors = torch.cat([self.model(**batch["net_input"]).float() for batch in batches])
            targets = torch.cat([batch["target"] for batch in batches])
            classes, place = targets.unique(return_inverse=True)  # type: ignore[no-untyped-call]
            total = vectors.new_zeros(len(classes), vectors.shape[1]).index_add(0, place, vectors)
            self._prototypes = total / place.bincount()[:, None], classes
        return self._prototypes


def _support_of(run: Run) -> Iterator[Batch]:
    """Return the batches of `support_subset`.

    Raises:
        ConfigError: there is no such split, its rows have no labels, or its vocabulary or class numbers differ from
            those of the run.
    """
    known = run.parameters("task")
    for name in ("vocab.txt", "target_map.txt"):
        _same_numbers(name, known)
    path = io.join(known.data_dir or "", known.support_subset + SUFFIXES[known.dataset_format])
    if not io.isfile(path):
        problem = f"is '{known.support_subset}', but there is no {path}."
        raise refusal("support_subset", problem, "Name a split that x-prepro made.")
    store = Store.open(path)
    if "target" not in store:
        problem = f"is '{known.support_subset}', whose rows have no labels."
        raise refusal("support_subset", problem, "Name a labelled split.")
    words = run.parameters("processor")
    tokens = Vocabulary.read(
        io.join(known.data_dir or "", "vocab.txt"), pad_word=words.pad_word, unk_word=words.unk_word
    )
    processor = run.build("processor", vocabulary=tokens)
    return (batch for _, batch in EvaluationData(store, processor, batch_size=known.batch_size or ROWS_AT_ONCE))


def _same_numbers(name: str, known: Fewshot.Parameters) -> None:
    """Raise ConfigError if the data's file of this name (vocabulary or classes) differs from the run's."""
    ours, theirs = (io.join(folder or "", name) for folder in (known.save_dir, known.data_dir))
    if not io.isfile(ours) or not io.isfile(theirs) or io.md5(ours) == io.md5(theirs):
        return
    problem = (
        f"is '{known.support_subset}' of {known.data_dir}, but {theirs} is not {ours}: ids would mean different things."
    )
    remedy = f"Train on a data_dir whose {name} covers all later data, and take the split from there."
    raise refusal("support_subset", problem, remedy)
