"""The data loader of one rank: torch's DataLoader with one batch of prefetch, on the device, and cheap resumption."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from typing import Any, Protocol, Self

import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate

from xdpx.engines.pytorch.transfer import to_device
from xdpx.trainer.data.columns import texts_named
from xdpx.trainer.data.current_loader import iterating
from xdpx.trainer.data.first_rows import digest, warn_of_like_batches
from xdpx.trainer.data.options import LoaderOptions
from xdpx.trainer.data.plan import length, samples_per_batch
from xdpx.trainer.data.randomness import CollatorGenerators, OwnGenerators, Randomness, StateWatch, untouched
from xdpx.trainer.data.rank_batches import aside
from xdpx.trainer.data.streams import DealtStream, RankStream, is_stateful, pass_over, resumed, shufflings

Collator = Callable[[list[Any]], Any]
_END = object()


class Processes(Protocol):
    """The processes, as a `World`."""

    @property
    def rank(self) -> int:
        """Rank of this process."""

    @property
    def size(self) -> int:
        """Number of processes."""

    @property
    def device(self) -> torch.device:
        """The device of the batches."""


class Loader(DataLoader[Any]):
    """The batches of one rank. Constructed by `train_loader`, `eval_loader` and `shared_out`.

    It fetches one batch ahead, as the original does, so that random numbers used in making batches are drawn in the
    same order. `iter` starts the epoch set last; the epoch advances by itself after a complete iteration.

    Attributes:
        rank: of this process.
        num_processes: number of processes.
        iteration: the coming epoch, from 0.
        end_of_dataloader: whether the last batch yielded was the last of the epoch.
        num_taken: batches yielded in this epoch, including those skipped at its start.
        ahead: states with which the batch that was fetched ahead was made; another dict for every batch.
        collating: the generators of the collator.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        batches: Any,
        options: LoaderOptions,
        collator: Collator | None,
        world: Processes,
        worker_init: Callable[[int], None] | None = None,
        resumable: bool = True,
    ) -> None:
        self.device, self.rank, self.num_processes = world.device, world.rank, world.size
        self.iteration = self._epoch = self.num_taken = 0
        self.end_of_dataloader = False
        self._keeps_place = True
        self._entry: tuple[int, Mapping[str, Any] | None] | None = None
        self._start: Randomness | None = None
        self.ahead: dict[str, Any] = {}
        self._watch = StateWatch() if resumable and options.num_workers == 0 else None
        pinned = options.pin_memory and world.device.type not in {"cpu", "mps"} and torch.accelerator.is_available()
        self._non_blocking = pinned if options.non_blocking is None else options.non_blocking
        self._torch_options = {
            "collate_fn": collator or default_collate,
            "pin_memory": pinned,
            "worker_init_fn": worker_init,
            **options.worker_options(),
        }
        if batches is None:
            # The samples of a dealt stream are already whole batches.
            size = None if isinstance(dataset, DealtStream) else options.batch_size
            self._torch_options |= {"batch_size": size, "drop_last": options.drop_last and size is not None}
            if isinstance(dataset, RankStream) and options.num_workers > 0:
                dataset.first_read.share_memory_()  # type: ignore[no-untyped-call]
            super().__init__(dataset, **self._torch_options)
        else:
            super().__init__(dataset, batch_sampler=batches, **self._torch_options)
        self._own = OwnGenerators(self._source if batches is None else batches)
        self.collating = CollatorGenerators(collator)

    @property
    def _source(self) -> Any:
        """The user's dataset."""
        return self.dataset.source if isinstance(self.dataset, RankStream) else self.dataset

    @property
    def is_stream(self) -> bool:
        """Whether the data can only be read from its start."""
        return isinstance(self.dataset, IterableDataset)

    @property
    def total_batch_size(self) -> int | float | None:
        """Samples of one batch on all ranks, None if it varies."""
        if isinstance(self.dataset, RankStream):
            return self.dataset.round_size
        if self.is_stream:
            return self.batch_size * self.num_processes if self.batch_size else None
        total: int | float | None = getattr(self.batch_sampler, "total_batch_size", None)
        return total

    @property
    def total_dataset_length(self) -> int:
        """Number of samples on all ranks."""
        return len(self._source)

    @property
    def remainder(self) -> int:
        """Samples of the last, incomplete round over all ranks; 0 if it is complete, -1 if unknown."""
        total = self.total_batch_size
        samples = length(self._source)
        if samples is None and isinstance(self.dataset, RankStream) and self.num_workers == 0:
            samples = self.dataset.num_examples
        if samples is None or not isinstance(total, int):
            return -1
        return 0 if getattr(self.batch_sampler, "drop_last", self.drop_last) else samples % total

    @property
    def order_read(self) -> int | None:
        """Digest of the order in which this process reads a stream of which it takes a share; else None.

        It is that of the first rows of the epoch, known from its first batch on, 0 without a row; None if several
        workers yield batches in any order. If it reads some shards only, it is that of how shards are shuffled.
        """
        if not self.is_stream or self.num_processes == 1 or isinstance(self.dataset, DealtStream):
            return None
        if not isinstance(self.dataset, RankStream):
            return digest(shufflings(self.dataset))
        return int(self.dataset.first_read) if self.in_order or self.num_workers < 2 else None

    def set_epoch(self, epoch: int) -> None:
        """Set the coming epoch, from 0, on the dataset and the batch sampler."""
        self.iteration = epoch
        for part in (self.dataset, self.batch_sampler):
            set_epoch = getattr(part, "set_epoch", None)
            if callable(set_epoch):
                set_epoch(epoch)

    @property
    def entered_at(self) -> int:
        """Index of the first batch of the next iteration."""
        return self._entry[0] if self._entry else 0

    def start_at(self, batch_index: int, state: Mapping[str, Any] | None = None) -> None:
        """Start the next iteration, and only that one, at a batch.

        Restore the random generators of the run before iterating; seeking does not change them.

        Args:
            batch_index: number of batches of the epoch already taken, on each rank.
            state: `state_dict` at that position. With it, an order drawn from the global generators, and the random
                numbers of the batch that was prefetched, are reproduced.
        """
        self._entry = (batch_index, state) if batch_index else None
        if not batch_index:
            self._own.go_on((state or {}).get("generators"))
            self.collating.put_back((state or {}).get("collator"))
        self.resume_workers()

    def resume_workers(self) -> None:
        """Make persistent workers start without drawing a random number: in the resumed run they had started before."""
        if self.persistent_workers:
            self.generator = torch.Generator().manual_seed(torch.initial_seed())

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the data after the last batch: plain values and tensors."""
        per_batch = samples_per_batch(self)
        order = getattr(self.batch_sampler, "state_dict", dict)
        return {
            "epoch": self._epoch,
            "batches": self.num_taken,
            "samples": None if per_batch is None else self.num_taken * per_batch,
            "ended": self.end_of_dataloader,
            "start": self._start.saved() if self._start is not None else None,
            "order": {} if self.is_stream else order(),
            "generators": self._own.state_dict(),
            "collator": self.collating.states(),
            "ahead": saved_ahead(self.ahead),
        }

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        return (self if self._keeps_place else self.aside())._iterated()

    def trained_on(self) -> Iterator[Any]:
        """Iterate for the training. Other iterations, e.g. of a callback, no longer move the recorded position."""
        self._keeps_place = False
        return self._iterated()

    def aside(self) -> Self:
        """Return a loader of the same batches with its own position."""
        other, own = copy(self), {"_entry": None, "_start": None, "_watch": None, "_iterator": None}
        vars(other).update(own, ahead={}, _keeps_place=True, _own=copy(self._own))
        vars(other).update(batch_sampler=aside(self.batch_sampler))
        return other

    def _iterated(self) -> Iterator[Any]:
        with iterating(self), texts_named(self.dataset, self.collate_fn):
            yield from self.each_batch()

    def each_batch(self) -> Iterator[Any]:
        """Yield the batches, for a `Dispatcher`, which is itself the loader that is iterated."""
        self.set_epoch(self.iteration)
        self._epoch, self.end_of_dataloader = self.iteration, False
        entry, self._entry = self._entry, None
        self.num_taken = entry[0] if entry else 0
        if isinstance(self.dataset, RankStream):
            self.dataset.first_read.zero_()
        fetched = self._begin() if entry is None else self._enter(*entry)
        current = next(fetched)
        stream = self._source if self.is_stream and is_stateful(self._source) else None
        state = vars(self)  # torch's __setattr__ takes as long as the rest of this loop
        first = [current] if self.is_stream and self.num_workers > 1 and entry is None else []
        while current is not _END:
            current = to_device(current, self.device, non_blocking=self._non_blocking, arrays=False)
            following = next(fetched, _END) if self._watch is None else self._watched(self._watch, fetched, stream)
            state["end_of_dataloader"] = following is _END
            state["num_taken"] += 1
            if first and following is not _END:
                warn_of_like_batches(first.pop(), following, self.num_workers)
            yield current
            current = following
        self.iteration += 1

    def _begin(self) -> Iterator[Any]:
        self._start = Randomness.now()
        self._own.begin()
        batches = super().__iter__()
        yield next(batches, _END)
        yield from batches

    def _enter(self, batch_index: int, state: Mapping[str, Any] | None) -> Iterator[Any]:
        """Yield the batches from one on; the first is made with its original random numbers."""
        known = state or {}
        with untouched():
            if known.get("start") is not None:
                Randomness.loaded(known["start"]).put_back()
            self._start = Randomness.now()
            self._own.begin(known.get("generators"))
            batches = self._entered(batch_index, known)
            ahead = known.get("ahead") or {}
            if ahead.get("randomness") is not None:
                Randomness.loaded(ahead["randomness"]).put_back()
            self.collating.put_back(ahead.get("collator"))
            first = next(batches, _END)
            self.collating.put_back(known.get("collator"))
        yield first
        yield from batches

    def _entered(self, batch_index: int, known: Mapping[str, Any]) -> Iterator[Any]:
        if not self.is_stream:
            self.batch_sampler.start_at(batch_index, known.get("order"))  # type: ignore[union-attr]
            return super().__iter__()
        dataset: Any = self.dataset
        if self.num_workers > 0:
            return _after(batch_index * getattr(dataset, "batches_of_round", 1), super().__iter__())
        place = (known.get("ahead") or {}).get("stream")
        if isinstance(dataset, RankStream):
            dataset = dataset.entered(batch_index, place)
        else:
            dataset = resumed(dataset, batch_index * (self.batch_size or 1), place)
        if hasattr(dataset, "set_epoch"):
            dataset.set_epoch(self.iteration)
        return iter(DataLoader(dataset, **self._torch_options))

    def _watched(self, watch: StateWatch, fetched: Iterator[Any], stream: Any) -> Any:
        """Fetch the next batch, and record the states it is made with, for a checkpoint saved before it is yielded."""
        vars(self)["ahead"] = {"randomness": watch.before(), "collator": self.collating.states()}
        if stream is not None:
            self.ahead["stream"] = stream.state_dict()
        following = next(fetched, _END)
        watch.after()
        return following


def saved_ahead(ahead: Mapping[str, Any]) -> dict[str, Any]:
    """Return `Loader.ahead` as plain values and tensors."""
    return {name: getattr(value, "saved", lambda kept=value: kept)() for name, value in ahead.items()}


def _after(count: int, batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the batches after the first `count`, for which workers have to read all data."""
    pass_over(batches, count, unit="batches")
    yield from batches
