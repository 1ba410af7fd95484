"""One process reads the data and sends the others their batches: for data whose order cannot be reproduced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import torch

from xdpx.engines.pytorch.collectives import broadcast_tree
from xdpx.engines.pytorch.transfer import to_device
from xdpx.trainer.data.current_loader import iterating
from xdpx.trainer.data.plan import samples_per_batch
from xdpx.trainer.data.rank_loader import Loader, Processes


class Dispatcher:
    """The batches of one rank, read by the first rank. Other attributes are those of the first rank's loader.

    All processes must iterate over it together.

    Args:
        loader: yields the batches of all ranks on the host, round by round; only the first rank iterates over it.
        world: the processes.
    """

    def __init__(self, loader: Loader, world: Processes) -> None:
        self.loader, self.world = loader, world
        self.num_taken = 0
        self.rank = world.rank
        self.end_of_dataloader = False
        self.remainder = -1
        self._epoch = 0
        self._keeps_place = True

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # not yet set while it is unpickled
            raise AttributeError(name)
        return getattr(self.loader, name)

    def __len__(self) -> int:
        return len(self.loader) // (self.world.size if self.loader.is_stream else 1)

    def set_epoch(self, epoch: int) -> None:
        """Set the coming epoch, from 0."""
        self.loader.set_epoch(epoch)

    def start_at(self, batch_index: int, state: Mapping[str, Any] | None = None) -> None:
        """Start the next iteration, and only that one, at a batch; see `Loader.start_at`."""
        self.loader.start_at(batch_index, (state or {}).get("first"))

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the data after the last batch: plain values and tensors."""
        per_batch = samples_per_batch(self.loader)
        return {
            "epoch": self._epoch,
            "batches": self.num_taken,
            "samples": None if per_batch is None else self.num_taken * per_batch,
            "ended": self.end_of_dataloader,
            "first": self.loader.state_dict() if self.world.rank == 0 else None,
        }

    def __iter__(self) -> Iterator[Any]:
        return (self if self._keeps_place else Dispatcher(self.loader.aside(), self.world))._iterated()

    def trained_on(self) -> Iterator[Any]:
        """Iterate for the training; see `Loader.trained_on`."""
        self._keeps_place = False
        return self._iterated()

    def _iterated(self) -> Iterator[Any]:
        self._epoch, self.end_of_dataloader = self.loader.iteration, False
        self.num_taken = self.loader.entered_at
        rounds = self._rounds() if self.world.rank == 0 else self._received()
        with iterating(self):
            for batches, self.end_of_dataloader, self.remainder in rounds:
                self.num_taken += 1
                if self.world.rank < len(batches):
                    yield to_device(batches[self.world.rank], self.world.device, arrays=False)

    def _rounds(self) -> Iterator[tuple[list[Any], bool, int]]:
        batches = self.loader.each_batch()
        while round_ := list(islice(batches, self.world.size)):
            told = (round_, self.loader.end_of_dataloader, self.loader.remainder)
            broadcast_tree(told)
            yield told
        broadcast_tree(([], True, 0))

    def _received(self) -> Iterator[tuple[list[Any], bool, int]]:
        """Receive the rounds, and draw from torch's generator as the reading rank does."""
        if not self.num_taken:
            torch.empty((), dtype=torch.int64).random_()
        self.loader.start_at(0)
        while (told := broadcast_tree(None))[0]:
            yield told
        self.loader.iteration += 1
