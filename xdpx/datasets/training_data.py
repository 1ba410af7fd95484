"""The endless stream of groups of batches, one group per update, which can be resumed at any position."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from numbers import Integral
from threading import Event
from typing import Any, Protocol

from xdpx.config.faults import ConfigError, Fault, wrong_return
from xdpx.config.parameters import Parameters as BaseParameters
from xdpx.config.parameters import param
from xdpx.datasets.ahead import ahead
from xdpx.datasets.making import Waiting
from xdpx.datasets.plan import BEGINNING, EpochPlan, Measured, Position, Sampler
from xdpx.datasets.shards import SECONDS_TO_WAIT, Meta, ShardChoice, shard_of, wait_for
from xdpx.datasets.store import SUFFIXES, JoinedStores, SplitFormat, Store, StoreError, digest
from xdpx.processors.base import Batch, Processor, collated
from xdpx.processors.samples import Integers, Samples
from xdpx.utils import io

SHARD_BITS = 40
"""The id of a sample is the index of its shard shifted left by this many bits, plus its row."""

GROUPS_AHEAD = 4


@dataclass(frozen=True)
class Ranks:
    """The rank of this process, from 0, and the number of processes."""

    world_size: int = 1
    rank: int = 0


class Source(Measured, Protocol):
    """A store of samples to train on."""

    def take(self, rows: Integers) -> Samples:
        """Return the samples of these rows, in this order."""
        ...


class TrainingData:
    """The shards to train on, and the groups of batches made of them.

    Without `lazy_load`, an epoch is a pass over all shards. With it, an epoch is one shard: in the order of `shards` in
    the first pass, shuffled in each later one; shards may still be in the making.

    Attributes:
        shards: splits to train on, in order.
        digests: SHA-256 by name of each file opened so far that has a manifest.
    """

    class Parameters(BaseParameters):
        """Keys of the training data and its batches."""

        data_dir: str = param(doc="Folder that x-prepro made.", group="trainer")
        train_subset: str | list[str] = param("train", doc="Splits to train on: names or patterns.", group="trainer")
        valid_subset: str | list[str] | None = param(None, doc="Splits to score on.", group="trainer/evaluation")
        exclude_valid_from_train: bool = param(
            False, doc="Do not train on the splits of valid_subset.", group="trainer"
        )
        lazy_load: bool = param(False, doc="Train on one shard at a time; max_epoch counts shards.", group="trainer")
        batch_size: int = param(doc="Samples per batch, over all devices.", ge=1, group="trainer")
        update_freq: int = param(1, doc="Batches per update.", ge=1, group="trainer")
        dataset_format: SplitFormat = param("torch", doc="Format of the splits.", group="task")

        @property
        def choice(self) -> ShardChoice:
            """The choice of splits to train on."""
            return ShardChoice(self.train_subset, self.valid_subset if self.exclude_valid_from_train else None)

        def path_of(self, split: str) -> str:
            """Return the file of a split."""
            return io.join(self.data_dir, split + SUFFIXES[self.dataset_format])

    def __init__(
        self,
        parameters: Parameters,
        *,
        processor: Processor,
        seed: int,
        sampler: Sampler | None = None,
        pad_multiple: int = 1,
        ranks: Ranks = Ranks(),
        seconds_to_wait: float = SECONDS_TO_WAIT,
    ) -> None:
        self.parameters = parameters
        self.processor = processor
        self.seed = seed
        self.sampler = sampler or Sampler(Sampler.Parameters())
        self.pad_multiple = pad_multiple
        self.ranks = ranks
        self.digests: dict[str, str] = {}
        self._seconds_to_wait = seconds_to_wait
        self._meta = Meta.read(parameters.data_dir)
        self.shards = parameters.choice.shards(self._meta)
        faults = faults_of(parameters, self._meta)
        if faults:
            raise ConfigError(parameters.data_dir, faults)
        self._eager: Source | None = None
        if not parameters.lazy_load:
            stores = [self._open(shard) for shard in self.shards]
            self._eager = stores[0] if len(stores) == 1 else JoinedStores(stores)

    @staticmethod
    def check(parameters: Parameters) -> list[Fault]:
        """Return the faults of the choice of data that can be found without opening the files."""
        try:
            return faults_of(parameters, Meta.read(parameters.data_dir))
        except ConfigError as error:
            return list(error.faults)

    @property
    def num_samples(self) -> int:
        """Number of samples in all finished shards."""
        if self._eager is not None:
            return len(self._eager)
        return sum(self._meta.sizes.get(shard, 0) for shard in self.shards)

    @property
    def labelled(self) -> bool:
        """Whether the samples have labels; assumed if no shard is finished."""
        if self._eager is not None:
            return "target" in self._eager
        ready = next((shard for shard in self.shards if shard in self._meta.sizes), None)
        return ready is None or "target" in self._open(ready)

    @property
    def samples_per_group(self) -> int:
        """Samples of one update, over all ranks."""
        return self.parameters.batch_size * self.parameters.update_freq

    def groups_in(self, epoch: int) -> int:
        """Return the number of groups of an epoch (1-based). An unfinished shard is assumed to be of average size."""
        if self._eager is not None:
            return self.sampler.epoch_size(self._eager) // self.samples_per_group
        ready = [self._meta.sizes[shard] for shard in self.shards if shard in self._meta.sizes]
        size = self._meta.sizes.get(shard_of(epoch, self.shards, seed=self.seed), sum(ready) // len(ready))
        return self.sampler.epoch_size(size) // self.samples_per_group

    def total_groups(self, max_epoch: int) -> int:
        """Return the number of groups in the first `max_epoch` epochs; an estimate while shards are unfinished."""
        if self._eager is not None:
            return self.groups_in(1) * max_epoch
        passes, rest = divmod(max_epoch, len(self.shards))
        first_pass = sum(self.groups_in(epoch) for epoch in range(1, len(self.shards) + 1))
        last_pass = range(passes * len(self.shards) + 1, passes * len(self.shards) + rest + 1)
        return passes * first_pass + sum(self.groups_in(epoch) for epoch in last_pass)

    def groups(self, start: Position = BEGINNING) -> Generator[tuple[Position, list[Batch]]]:
        """Yield (position after the group, batches of the group) from `start` on, over endless epochs.

        Batches are collated ahead in a thread; close the generator to end it. Any start position costs the same.

        Raises:
            ConfigError: a shard has too few samples for an update.
            StoreError: a shard is damaged.
            TimeoutError: a shard was not finished in time.
            OSError: the x-prepro that makes a shard failed or was killed.
        """
        return ahead(lambda stop: self._produce(start, stop), depth=GROUPS_AHEAD)

    def _produce(self, start: Position, stop: Event) -> Iterator[tuple[Position, list[Batch]]]:
        position = start
        while (source := self._source(position.epoch, stop)) is not None:
            plan = self._plan(source, position.epoch)
            while position.group < plan.num_groups:
                batches = [self._collate(source, rows, position.epoch) for rows in plan.group(position.group)]
                position = replace(position, group=position.group + 1)
                yield position, batches
            position = Position(position.epoch + 1)

    def _plan(self, source: Source, epoch: int) -> EpochPlan:
        plan: Any = self.sampler.plan_of(  # of a user, perhaps
            source,
            seed=self.seed,
            epoch=epoch,
            batch_size=self.parameters.batch_size,
            group_size=self.parameters.update_freq,
            world_size=self.ranks.world_size,
            rank=self.ranks.rank,
        )
        if not callable(getattr(plan, "group", None)) or not isinstance(getattr(plan, "num_groups", None), Integral):
            problem = f"{plan!r:.60}, without num_groups and group(index) of an EpochPlan"
            remedy = "Return that of super().plan_of(source, **options)."
            raise wrong_return("sampler", self.sampler, "plan_of", problem, remedy)
        return plan  # type: ignore[no-any-return]

    def _collate(self, source: Source, rows: Integers, epoch: int) -> Batch:
        return collated(
            self.processor, source.take(rows),
            epoch=epoch, seed=self.seed, training=True, pad_multiple=self.pad_multiple,
        )  # fmt: skip

    def _source(self, epoch: int, stop: Event) -> Source | None:
        """Return the samples of an epoch; None if `stop` was set during the wait for them."""
        if self._eager is not None:
            return self._eager
        self._meta = Meta.read(self.parameters.data_dir)
        self.shards = self.parameters.choice.shards(self._meta)
        shard = shard_of(epoch, self.shards, seed=self.seed)
        if not wait_for(shard, self.parameters.data_dir, stop=stop, seconds=self._seconds_to_wait):
            return None
        store = self._open(shard)
        if len(store) < self.samples_per_group:
            raise ConfigError(self.parameters.data_dir, [_too_few(self.parameters, len(store), f"shard '{shard}'")])
        return store

    def _open(self, shard: str) -> Store:
        path = self.parameters.path_of(shard)
        store = Store.open(path, first_id=self.shards.index(shard) << SHARD_BITS)
        found = digest(path)
        if found is not None:
            self.digests[io.name(path)] = found
        promised = self._meta.sizes.get(shard, len(store))
        if len(store) != promised:
            what = f"{store.path} holds {len(store)} samples, but meta.hjson says {promised}"
            raise StoreError(f"{what}: it was rewritten meanwhile, or x-prepro was interrupted. Run x-prepro again.")
        return store


def faults_of(parameters: TrainingData.Parameters, meta: Meta) -> list[Fault]:
    """Return the faults of the choice of data: names, missing files, too few samples for one update."""
    choice, lazy = parameters.choice, parameters.lazy_load
    unmade = _unmade(parameters, meta)
    if unmade is not None:
        return [unmade]
    faults = choice.faults(meta, may_arrive=lazy)
    if faults:
        return faults
    coming = [shard for shard in choice.shards(meta) if shard in meta.arriving]
    if coming and not lazy:
        problem = f"{', '.join(coming)}: still to be made by x-prepro."
        return [
            Fault("train_subset", problem, "Wait for it, or set lazy_load: true. If x-prepro died, start it again.")
        ]
    ready = {shard: meta.sizes[shard] for shard in choice.shards(meta) if shard in meta.sizes}
    for path in map(parameters.path_of, ready):
        if not io.isfile(path):
            faults.append(_no_file(parameters, path))
    if not ready:
        return [
            *faults,
            Fault("train_subset", "none of its splits is ready.", "Wait until x-prepro has made the first one."),
        ]
    smallest = min(ready, key=lambda shard: ready[shard])
    size = ready[smallest] if lazy else sum(ready.values())
    if size <= parameters.batch_size * parameters.update_freq:
        faults.append(_too_few(parameters, size, f"the smallest shard, '{smallest}'," if lazy else "train_subset"))
    return faults


def _unmade(parameters: TrainingData.Parameters, meta: Meta) -> Fault | None:
    """Return a fault if an x-prepro ended before it made a chosen split; existing files may be of an earlier run."""
    how, left = Waiting(parameters.data_dir).stopped()
    held_out = parameters.valid_subset
    wanted = [*parameters.choice.shards(meta), *([held_out] if isinstance(held_out, str) else held_out or ())]
    missing = [split for split in left if split in wanted]
    if not missing:
        return None
    problem = f"is '{parameters.data_dir}', where x-prepro {how} before it had made {', '.join(missing)}."
    return Fault("data_dir", problem, "Run the same x-prepro command again: it keeps finished work.")


def _no_file(parameters: TrainingData.Parameters, path: str) -> Fault:
    stem = path.removesuffix(SUFFIXES[parameters.dataset_format])
    other = next((name for name, suffix in SUFFIXES.items() if io.isfile(stem + suffix)), None)
    if other is None:
        return Fault("train_subset", f"'{path}' does not exist.", "Run x-prepro to make it.")
    problem = f"is {parameters.dataset_format}, but there is no '{path}', only {io.name(stem)}{SUFFIXES[other]}."
    return Fault("dataset_format", problem, f"Set dataset_format: {other}.")


def _too_few(parameters: TrainingData.Parameters, size: int, what: str) -> Fault:
    wanted = parameters.batch_size * parameters.update_freq
    problem = f"{wanted} samples make an update (batch_size * update_freq), but {what} holds only {size}"
    return Fault("batch_size", f"{problem}: it must hold more.", "Use smaller ones, or more data.")
