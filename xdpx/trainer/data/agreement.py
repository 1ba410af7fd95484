"""Compare what the processes were given: with unlike data or arguments they would wait for one another without end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from xdpx.engines.pytorch import collectives
from xdpx.trainer.arguments import TrainingArguments
from xdpx.trainer.data.first_rows import digest, some_rows, warn_of_unlike_orders, warn_of_unlike_rows
from xdpx.trainer.data.plan import TrainingPlan, known_samples, length
from xdpx.trainer.data.rank_loader import Loader

Batch = TypeVar("Batch")
_END: Any = object()

ALIKE = (
    "learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm", "optim", "optim_args",
    "lr_scheduler_type", "warmup_steps", "gradient_accumulation_steps", "logging_strategy", "logging_steps",
    "eval_strategy", "eval_steps", "save_strategy", "save_steps",
)  # fmt: skip
"""Arguments by which weights would drift apart, or processes would meet at other times."""

EPOCH_STEPS, EPOCH_BATCHES = "steps per epoch", "batches per epoch"
WHOLE = "Give every process the same arguments and the whole data set, which the Trainer divides among them."
UNEVEN = (
    "With even_batches false the last round of batches stays incomplete. Set it true in accelerator_config, or drop "
    "that round: dataloader_drop_last=True."
)


def refuse_unlike_training(
    plan: TrainingPlan, loader: object, args: TrainingArguments, *, sharded: bool = False
) -> None:
    """Raise ValueError on all processes if they would train on other data, in other steps, or with other arguments.

    Warn if the data have other rows, as far as a few show it.

    Args:
        plan: of this process.
        loader: of the training data.
        args: of this process.
        sharded: whether processes gather weights for each micro-batch, and so need equally many.
    """
    given: dict[str, object] = {"steps": plan.max_steps, **{name: getattr(args, name) for name in ALIKE}}
    if isinstance(loader, Loader) and not loader.is_stream:  # of others each process may read a part by itself
        given |= {"samples": plan.num_examples, EPOCH_STEPS: plan.steps_per_epoch}
        given |= {EPOCH_BATCHES: plan.batches_per_epoch} if sharded else {}
    even = getattr(getattr(loader, "batch_sampler", None), "even", True)
    _refuse_unlike("train", given, of_steps=WHOLE if even else UNEVEN)
    _compare_rows(loader, "train_dataset")


def refuse_unlike_loaders(loader: object) -> None:
    """Raise ValueError on all processes if they would score other data, or other numbers of a user's own batches.

    Warn if the data have other rows, as far as a few show it.
    """
    own = not isinstance(loader, Loader)
    _refuse_unlike("evaluation", {"batches": length(loader)} if own else {"samples": known_samples(loader)})
    _compare_rows(loader, "eval_dataset")


class StreamOrders:
    """Notes in which order this process reads a stream, and compares the first epoch with the other processes.

    In a later epoch processes need not begin at the same step, so what `take` returns is to be compared where all are.

    Args:
        what: the data that are read, such as "train_dataset".
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._digests = 0
        self._compared = False

    def noted(self, loader: object, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Yield the batches of an epoch; in the first epoch of the run, on all processes.

        Args:
            loader: what reads the batches.
            batches: of the loader.

        Raises:
            ValueError: some processes have a batch in the first epoch, and others have none.
        """
        first = next(batches, _END)
        order = loader.order_read if isinstance(loader, Loader) else None
        if order is not None:
            self._digests += order
            if not self._compared:
                self._compare(order, found=first is not _END)
            self._compared = True
        if first is not _END:
            yield first
            yield from batches

    def take(self) -> int:
        """Return the sum of the digests of the epochs that began since the last call."""
        digests, self._digests = self._digests, 0
        return digests

    def _compare(self, order: int, *, found: bool) -> None:
        digests, have = zip(*collectives.gather_objects((order, found)), strict=True)
        if any(have) and not all(have):
            raise ValueError(
                f"{self._what}: process {have.index(True)} reads batches from the stream, and process "
                f"{have.index(False)} reads none. {WHOLE}"
            )
        warn_of_unlike_orders(digests, self._what)


def _compare_rows(loader: object, what: str) -> None:
    if isinstance(loader, Loader) and not loader.is_stream and loader.num_processes > 1:
        warn_of_unlike_rows(collectives.gather_objects(digest(some_rows(loader.dataset))), what)


def _refuse_unlike(where: str, given: dict[str, object], *, of_steps: str = WHOLE) -> None:
    of_all = collectives.gather_objects(given)
    other = next((rank for rank, each in enumerate(of_all) if each != of_all[0]), None)
    if other is None:
        return
    unlike = [name for name in {**of_all[0], **of_all[other]} if of_all[0].get(name) != of_all[other].get(name)]
    first, second = (", ".join(f"{name} {of_all[rank].get(name)}" for name in unlike) for rank in (0, other))
    advice = of_steps if {"steps", EPOCH_STEPS, EPOCH_BATCHES}.issuperset(unlike) else WHOLE
    raise ValueError(f"{where}: process 0 has {first}; process {other} has {second}. {advice}")
