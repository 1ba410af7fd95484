"""Reading options of a loader: the `dataloader_*` arguments, and those of `accelerator_config` about data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from xdpx.trainer.arguments import TrainingArguments


@dataclass(frozen=True)
class LoaderOptions:
    """Reading options of a loader.

    Attributes:
        batch_size: samples of one batch of one process; with `split_batches`, of all processes together.
        drop_last: drop an incomplete last batch.
        num_workers: worker processes; 0 reads in this process.
        pin_memory: put batches into page-locked memory if the device is a GPU, for asynchronous copies.
        persistent_workers: keep worker processes between epochs.
        multiprocessing_context: "fork", "spawn" or "forkserver"; None: the platform's default.
        prefetch_factor: batches that each worker prefetches; None: 2 with workers.
        in_order: yield batches of several workers in order.
        even_batches: complete the last round with samples from the start, so that all ranks have equally many batches.
        split_batches: split each batch into one part per rank, instead of assigning whole batches to ranks.
        dispatch_batches: True: rank 0 reads for all and sends the others their batches. False: each rank reads only its
            shards of a stream with shards. None: each rank reads everything, and keeps its part.
        seedable: a random order depends on seed and epoch alone.
        non_blocking: copy to the device asynchronously. None: if memory is pinned.
    """

    batch_size: int
    drop_last: bool = False
    num_workers: int = 0
    pin_memory: bool = True
    persistent_workers: bool = False
    multiprocessing_context: Any = None
    prefetch_factor: int | None = None
    in_order: bool = True
    even_batches: bool = True
    split_batches: bool = False
    dispatch_batches: bool | None = None
    seedable: bool = True
    non_blocking: bool | None = None

    @classmethod
    def of(cls, args: TrainingArguments, *, batch_size: int, config: object = None) -> Self:
        """Return the options from `TrainingArguments`; `config` replaces its `accelerator_config`."""
        config = config or getattr(args, "accelerator_config", None)
        return cls(
            batch_size=batch_size,
            drop_last=args.dataloader_drop_last,
            num_workers=args.dataloader_num_workers,
            pin_memory=args.dataloader_pin_memory,
            persistent_workers=args.dataloader_persistent_workers,
            multiprocessing_context=args.dataloader_multiprocessing_context,
            prefetch_factor=args.dataloader_prefetch_factor,
            in_order=args.dataloader_in_order,
            even_batches=setting(config, "even_batches", default=True),
            split_batches=setting(config, "split_batches", default=False),
            dispatch_batches=setting(config, "dispatch_batches", default=None),
            seedable=setting(config, "use_seedable_sampler", default=True),
            non_blocking=setting(config, "non_blocking", default=None) or None,
        )

    def worker_options(self) -> dict[str, Any]:
        """Return the arguments of torch's DataLoader about worker processes."""
        return {
            "num_workers": self.num_workers,
            "persistent_workers": self.persistent_workers,
            "multiprocessing_context": self.multiprocessing_context,
            "prefetch_factor": self.prefetch_factor,
            "in_order": self.in_order,
        }


def setting(config: object, name: str, *, default: object) -> Any:
    """Return one value of an `accelerator_config`, which is None, a mapping or an object with attributes."""
    if config is None:
        return default
    return config.get(name, default) if isinstance(config, Mapping) else getattr(config, name, default)
