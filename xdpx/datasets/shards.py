"""The splits to train on: their choice, its faults, their order, and the wait for a split still being made."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from threading import Event

import numpy as np

from xdpx.config.faults import ConfigError, Fault, did_you_mean
from xdpx.config.hints import listed
from xdpx.datasets.making import Waiting
from xdpx.datasets.meta import FILE as META
from xdpx.datasets.meta import read_meta
from xdpx.logger import log
from xdpx.processors.randomness import key, permute
from xdpx.utils import io
from xdpx.utils.pulse import pulse

SHARD_ORDER = 3
SECONDS_TO_WAIT = 3600.0
SECONDS_BETWEEN_LOOKS = 2.0


@dataclass(frozen=True)
class Meta:
    """The splits that `meta.hjson` lists.

    Attributes:
        sizes: number of samples of each finished split.
        arriving: splits still being made, in the order in which they will be finished.
    """

    sizes: Mapping[str, int]
    arriving: Sequence[str] = ()

    @classmethod
    def read(cls, data_dir: str) -> Meta:
        """Read `meta.hjson` of a folder that x-prepro made.

        Raises:
            ConfigError: the file is missing, not valid, or lists no splits.
        """
        content = read_meta(data_dir)
        if "data_size" not in content:
            fault = Fault("data_dir", f"'{data_dir}' contains no {META} that lists its splits.", "Run x-prepro first.")
            raise ConfigError(data_dir, [fault])
        return cls(content["data_size"], tuple(content.get("arriving", ())))


@dataclass(frozen=True)
class ShardChoice:
    """The configured choice of splits to train on: names or patterns."""

    train_subset: str | Sequence[str]
    left_out: str | Sequence[str] | None = None
    """Splits excluded from training because they are evaluated on (`exclude_valid_from_train`)."""

    def shards(self, meta: Meta) -> list[str]:
        """Return the splits to train on, in order: names as listed, patterns in the order of the meta.

        A name without wildcards is included even if there is no such split yet.
        """
        known = [*meta.sizes, *meta.arriving]
        found = [name for pattern in _listed(self.train_subset) for name in _matching(pattern, known)]
        return [name for name in dict.fromkeys(found) if name not in _listed(self.left_out)]

    def faults(self, meta: Meta, *, may_arrive: bool) -> list[Fault]:
        """Return the faults of the choice. With `may_arrive`, splits that are not finished are allowed."""
        known = [*meta.sizes, *(meta.arriving if may_arrive else ())]
        if not _listed(self.train_subset):
            return [Fault("train_subset", "is an empty list.", f"Choose from: {', '.join(known) or 'none'}.")]
        faults = []
        for pattern in _listed(self.train_subset):
            expected = may_arrive and not _is_pattern(pattern)
            if not expected and not any(fnmatchcase(name, pattern) for name in known):
                remedy = listed(pattern, known)
                remedy = remedy or did_you_mean(pattern, known, f"The splits are: {', '.join(known) or 'none'}.")
                faults.append(Fault("train_subset", f"no split is called '{pattern}'.", remedy))
        if not faults and not self.shards(meta):
            problem = "nothing is left to train on when valid_subset is left out."
            faults.append(Fault("exclude_valid_from_train", problem, "Train on more splits, or set it to false."))
        return faults


def shard_of(epoch: int, shards: Sequence[str], *, seed: int) -> str:
    """Return the shard of an epoch (1-based) with `lazy_load`: the first pass is in order, later ones are shuffled."""
    turn, place = divmod(epoch - 1, len(shards))
    if turn == 0:
        return shards[place]
    return shards[int(permute(np.array([place]), len(shards), key(seed, turn, SHARD_ORDER))[0])]


def wait_for(shard: str, data_dir: str, *, stop: Event, seconds: float = SECONDS_TO_WAIT) -> bool:
    """Wait until `meta.hjson` lists a shard. Returns False if `stop` was set before.

    Raises:
        TimeoutError: the shard was not listed within `seconds`.
        OSError: the x-prepro that makes it failed or was killed.
    """
    end = time.monotonic() + seconds
    meta = Meta.read(data_dir)
    if shard not in meta.sizes:
        ready = ", ".join(meta.sizes)
        log.info(f"waiting for shard '{shard}': {io.join(data_dir, META)} lists {ready}. At most {seconds:g} seconds.")
        if shard not in meta.arriving:
            log.warning(f"shard '{shard}' is not announced there either: is an x-prepro making it?")
    maker = Waiting(data_dir)
    while shard not in meta.sizes:
        how, left = maker.stopped()
        if shard in left and shard not in Meta.read(data_dir).sizes:
            what = f"Shard '{shard}' will not arrive: the x-prepro that makes it {how}."
            raise OSError(f"{what} Run the same x-prepro command again, which keeps finished work; then resume.")
        if time.monotonic() > end:
            what = f"Shard '{shard}' did not appear in {io.join(data_dir, META)} within {seconds:g} seconds."
            raise TimeoutError(f"{what} {_what_to_do(shard, meta, data_dir)}")
        if stop.wait(min(SECONDS_BETWEEN_LOOKS, seconds / 10)):
            return False
        pulse.alive()  # waiting is intended, not a hang
        meta = Meta.read(data_dir)
    return True


def _what_to_do(shard: str, meta: Meta, data_dir: str) -> str:
    if shard not in meta.arriving:
        return "Nor has an x-prepro announced it. Correct train_subset, or start that x-prepro; then resume."
    again = "run the same x-prepro command again, which keeps finished work"
    return f"An x-prepro announced it. If none is running in {data_dir} any more, {again}; then resume."


def _listed(names: str | Sequence[str] | None) -> list[str]:
    return [] if names is None else [names] if isinstance(names, str) else list(names)


def _is_pattern(text: str) -> bool:
    return any(mark in text for mark in "*?[")


def _matching(pattern: str, known: Iterable[str]) -> list[str]:
    return [name for name in known if fnmatchcase(name, pattern)] if _is_pattern(pattern) else [pattern]
