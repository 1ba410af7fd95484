"""The length of a training, computed from its config and the sizes of its splits only. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdpx.config.loading import Run
from xdpx.runs.parameters import TrainParameters


@dataclass(frozen=True)
class Length:
    """The length of a training.

    Attributes:
        shards: number of splits to train on.
        samples: number of samples in all of these splits.
        updates: number of updates of the whole schedule.
        per_update: samples of one update.
    """

    shards: Sequence[str]
    samples: int
    updates: int
    per_update: int

    @property
    def passes(self) -> float:
        """Average number of times that each sample is seen."""
        return self.updates * self.per_update / max(1, self.samples)


def length_of(run: Run) -> Length:
    """Return the length of an x-train run; an estimate for samplers that choose the samples of an epoch themselves."""
    from xdpx.datasets.shards import Meta

    settings: TrainParameters = run.parameters("command")
    meta = Meta.read(settings.data_dir)
    shards = run.parameters("dataset").choice.shards(meta)
    sizes = [meta.sizes[shard] for shard in shards if shard in meta.sizes]
    return Length(shards, sum(sizes), total_updates(settings, sizes), settings.batch_size * settings.update_freq)


def total_updates(settings: TrainParameters, sizes: Sequence[int]) -> int:
    """Return the updates of the whole schedule; `lazy_load` is computed as if every shard had the mean size."""
    samples = sum(sizes) / len(sizes) if settings.lazy_load else sum(sizes)
    limits = [settings.max_update] if settings.max_update is not None else []
    if settings.max_epoch is not None:
        limits.append(int(samples // (settings.batch_size * settings.update_freq)) * settings.max_epoch)
    return min(limits)
