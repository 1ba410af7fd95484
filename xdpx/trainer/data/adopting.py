"""Wrap the data loaders of users so that a training can resume at any batch; or split them over the ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.distributed import DistributedSampler

from xdpx.logger import log
from xdpx.trainer.data.dispatching import Dispatcher
from xdpx.trainer.data.loaders import loader_over, rank_batches, rank_lists, train_loader
from xdpx.trainer.data.options import LoaderOptions
from xdpx.trainer.data.plan import length
from xdpx.trainer.data.randomness import CollatorGenerators, OwnGenerators, Randomness, untouched
from xdpx.trainer.data.rank_batches import RankBatchLists
from xdpx.trainer.data.rank_loader import Loader, Processes
from xdpx.trainer.data.streams import pass_over

READING = (
    "collate_fn", "num_workers", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context", "generator",
    "prefetch_factor", "persistent_workers", "pin_memory_device", "in_order",
)  # fmt: skip
"""Attributes of torch's DataLoader besides the order of samples."""


class Adopted:
    """Wraps a user's loader, which may be any iterable of batches; other attributes are those of the loader.

    Every rank gets all of its batches, on the device the loader puts them; nothing is prefetched.

    Args:
        loader: the user's loader.
    """

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self.iteration = self._epoch = self.num_taken = 0
        self._keeps_place = True
        self.ahead: dict[str, Any] = {}  # nothing is fetched ahead
        self.end_of_dataloader = False
        self._start: Randomness | None = None
        self._own, self.collating = OwnGenerators(loader), CollatorGenerators(getattr(loader, "collate_fn", None))
        self._entry: tuple[int, Mapping[str, Any] | None] | None = None

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # not yet set while it is unpickled
            raise AttributeError(name)
        return getattr(self.loader, name)

    def __len__(self) -> int:
        return len(self.loader)

    def set_epoch(self, epoch: int) -> None:
        """Set the coming epoch, from 0, on all parts of the loader that have `set_epoch`."""
        self.iteration = epoch
        batch_sampler = getattr(self.loader, "batch_sampler", None)
        inner = getattr(batch_sampler, "sampler", getattr(self.loader, "sampler", None))
        for part in (self.loader, batch_sampler, inner, getattr(self.loader, "dataset", None)):
            set_epoch = getattr(part, "set_epoch", None)
            if callable(set_epoch):
                set_epoch(epoch)

    def start_at(self, batch_index: int, state: Mapping[str, Any] | None = None) -> None:
        """Start the next iteration, and only that one, at a batch; see `Loader.start_at`."""
        self._entry = (batch_index, state) if batch_index else None
        if not batch_index:
            self._own.go_on((state or {}).get("generators"))
            self.collating.put_back((state or {}).get("collator"))

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the data after the last batch: plain values and tensors."""
        return {
            "epoch": self._epoch,
            "batches": self.num_taken,
            "samples": None,
            "ended": self.end_of_dataloader,
            "start": self._start.saved() if self._start is not None else None,
            "generators": self._own.state_dict(),
            "collator": self.collating.states(),
        }

    def __iter__(self) -> Iterator[Any]:
        return self._iterated() if self._keeps_place else iter(self.loader)

    def trained_on(self) -> Iterator[Any]:
        """Iterate for the training; see `Loader.trained_on`."""
        self._keeps_place = False
        return self._iterated()

    def _iterated(self) -> Iterator[Any]:
        self._epoch, self.end_of_dataloader = self.iteration, False
        entry, self._entry = self._entry, None
        self.num_taken = entry[0] if entry else 0
        if entry is None:
            self._start = Randomness.now()
            self._own.begin()
        total = length(self.loader)
        for batch in iter(self.loader) if entry is None else self._enter(*entry):
            self.num_taken += 1
            self.end_of_dataloader = self.num_taken == total
            yield batch
        self.end_of_dataloader = True
        self.iteration += 1

    def _enter(self, batch_index: int, state: Mapping[str, Any] | None) -> Iterator[Any]:
        """Return the batches from one on, in the order drawn at the epoch's start; restore the random generators."""
        with untouched():
            if state is not None and state.get("start") is not None:
                Randomness.loaded(state["start"]).put_back()
            self._start = Randomness.now()
            self._own.begin((state or {}).get("generators"))
            if type(self.loader) is DataLoader and not isinstance(self.loader.dataset, IterableDataset):
                batches = _entered(self.loader, batch_index)
            else:
                batches = iter(self.loader)
                pass_over(batches, batch_index, unit="batches")
            self.collating.put_back((state or {}).get("collator"))
            return batches


def adopt(loader: object, world: Processes) -> Any:
    """Return a loader from an overridden `get_train_dataloader` with the methods that training needs.

    A loader that has them is returned unchanged. Any other is wrapped, and every rank iterates over all of it; a
    warning is logged if it seems to be the same on all ranks.
    """
    if isinstance(loader, Loader | Dispatcher | Adopted):
        return loader
    if world.size > 1 and world.rank == 0 and type(loader) is DataLoader and _is_whole(loader):
        log.warning(
            f"get_train_dataloader: returns a plain DataLoader, so each of the {world.size} processes sees all of the "
            "data. Return self.accelerator.prepare(DataLoader(...)), or give it a DistributedSampler."
        )
    return Adopted(loader)


def shared_out(loader: DataLoader[Any], world: Processes, *, seed: int | None = None, **changes: Any) -> Any:
    """Return a loader of this rank's part of the data of a torch DataLoader, as `accelerator.prepare` does.

    Args:
        loader: over all data.
        world: the processes.
        seed: of a random order; None: torch's initial seed.
        changes: fields of `LoaderOptions` without a counterpart in the DataLoader, such as `even_batches`.

    Raises:
        ValueError: the samples are already batches (`batch_size=None`), and there are several ranks.
    """
    if isinstance(loader, Loader | Dispatcher):
        return loader
    if loader.batch_size is None and loader.batch_sampler is None:
        return _of_whole_batches(loader, world)
    options = LoaderOptions(
        batch_size=loader.batch_size or 1,
        drop_last=loader.drop_last,
        num_workers=loader.num_workers,
        pin_memory=loader.pin_memory,
        persistent_workers=loader.persistent_workers,
        multiprocessing_context=loader.multiprocessing_context,
        prefetch_factor=loader.prefetch_factor if loader.num_workers else None,
        in_order=loader.in_order,
        **changes,
    )
    if isinstance(loader.dataset, IterableDataset):
        return train_loader(loader.dataset, collator=loader.collate_fn, sampler=None, options=options, world=world)
    if loader.batch_size is None:  # it was given its batches
        batches = rank_lists(loader.batch_sampler, options, world)
    else:
        batches = rank_batches(loader.dataset, loader.sampler, options, world, seed=seed)
    return loader_over(
        loader.dataset,
        batches,
        collator=loader.collate_fn,
        options=options,
        world=world,
        worker_init=loader.worker_init_fn,
    )


def _of_whole_batches(loader: DataLoader[Any], world: Processes) -> Any:
    if world.size == 1:
        return Adopted(loader)
    raise ValueError(
        f"DataLoader(batch_size=None): its samples are batches already, which cannot be divided among {world.size} "
        "processes. Let the dataset give each process (torch.distributed.get_rank()) its own, and return the loader "
        "without accelerator.prepare; or give single samples and a batch_size."
    )


def _entered(loader: DataLoader[Any], batch_index: int) -> Iterator[Any]:
    """Return the batches of a torch DataLoader from one on; earlier samples are not read."""
    batches = RankBatchLists(loader.batch_sampler)
    batches.start_at(batch_index)
    reading = {name: getattr(loader, name) for name in READING}
    entered = iter(DataLoader(loader.dataset, batch_sampler=batches, **reading))
    if loader.num_workers == 0:
        # Without workers torch draws the order with the first batch, when the caller has restored its generators.
        batches.start_at(batch_index, {"randomness": Randomness.now().saved()})
    return entered


def _is_whole(loader: DataLoader[Any]) -> bool:
    return not isinstance(loader.dataset, IterableDataset) and not isinstance(loader.sampler, DistributedSampler)
