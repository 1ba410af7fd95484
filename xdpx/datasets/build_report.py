"""The report of x-prepro: counts of samples, tokens and labels, and a few decoded samples."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from xdpx.datasets.sample_making import Counts
from xdpx.datasets.store import Store
from xdpx.logger import log
from xdpx.processors.base import Processor
from xdpx.tokenizers.target_map import TargetMap

SHOWN_LABELS = 20
SHOWN_SAMPLES = 5
SHOWN_CHARACTERS = 300


def report_counts(split: str, counts: Counts, *, max_len: int, unit: str, place: str) -> None:
    """Log the number of samples of a split, and what was cut or dropped."""
    share = counts.unknown / counts.tokens if counts.tokens else 0.0
    log.info(
        f"{split}: {_number(counts.samples, 'sample')} of {_number(counts.lines, unit)}; {counts.tokens:,} tokens, "
        f"{share:.2%} of them unknown; the longest sample has {counts.longest:,}"
    )
    if counts.duplicates:
        log.info(f"{split}: {counts.duplicates:,} duplicates were removed")
    if counts.windows:
        log.info(
            f"{split}: texts longer than max_len {max_len:,} are read in windows: {counts.windows:,} more than texts"
        )
    if counts.too_long:
        cut = "sample was" if counts.too_long == 1 else "samples were"
        log.info(f"{split}: {counts.too_long:,} {cut} cut to max_len {max_len:,}")
    if counts.too_short:
        log.info(f"{split}: {counts.too_short:,} texts were shorter than min_len, and dropped")
    if counts.moved:
        which = "answer is" if counts.moved == 1 else "answers are"
        log.warning(
            f"{split}: {counts.moved:,} {which} not where the file says in characters; the nearest occurrence is used"
        )
    if counts.num_bad:
        log.warning(f"{split}: {counts.num_bad:,} bad {unit}s were skipped, such as")
        for line, problem in counts.bad:
            log.warning(f"{split}: {place} {line} {problem}")


class LabelCounts:
    """Counts of each label in each split.

    Args:
        target_map: of the labels; None if there are none.
        numbers: whether labels are numbers, so that splits need not have all of them.
    """

    def __init__(self, target_map: TargetMap | None, *, numbers: bool) -> None:
        self._numbers = numbers
        self._labels = target_map.labels if target_map is not None else []
        self._counts: dict[str, NDArray[np.int64]] = {}

    def add(self, split: str, classes: NDArray[np.int64]) -> None:
        """Count the classes of further samples of a split."""
        counts = np.bincount(classes, minlength=len(self._labels))
        self._counts[split] = self._counts.get(split, 0) + counts

    def report(self) -> None:
        """Log a table of splits and labels, and warn of labels that a split lacks, unless they are numbers."""
        if not self._counts:
            return
        order = np.argsort(-sum(self._counts.values()), kind="stable")[:SHOWN_LABELS]
        width = max([len("label"), *(len(self._labels[index]) for index in order)])
        log.info("  ".join(["label".ljust(width), *(f"{split:>16}" for split in self._counts)]))
        for index in order.tolist():
            cells = [_cell(counts, index) for counts in self._counts.values()]
            log.info("  ".join([self._labels[index].ljust(width), *cells]))
        if len(self._labels) > SHOWN_LABELS:
            log.info(f"... and {len(self._labels) - SHOWN_LABELS:,} more labels")
        if len(self._labels) == 1:
            log.warning(f"every sample is labelled {self._labels[0]!r}: there is nothing to learn.")
        if self._numbers:
            for split, counts in self._counts.items():
                if len(self._labels) > 1 and np.count_nonzero(counts) == 1 < counts.sum():
                    log.warning(f"{split}: every sample has the number {self._labels[int(counts.argmax())]!r}")
            return
        for split, counts in self._counts.items():
            self._warn(split, [self._labels[index] for index in np.flatnonzero(counts == 0).tolist()])

    @staticmethod
    def _warn(split: str, missing: list[str]) -> None:
        if missing:
            more = f" and {len(missing) - 5:,} more" if len(missing) > 5 else ""
            log.warning(f"{split}: no sample is labelled {', '.join(map(repr, missing[:5]))}{more}")


def _number(count: int, thing: str) -> str:
    return f"{count:,} {thing}" + "s" * (count != 1)


def _cell(counts: NDArray[np.int64], index: int) -> str:
    total = int(counts.sum())
    return f"{counts[index]:>8,} ({counts[index] / total:>5.1%})" if total else f"{0:>16}"


def show_samples(path: str, processor: Processor, target_map: TargetMap | None, *, seed: int) -> None:
    """Log five decoded samples of a split, so that mistakes become visible."""
    store = Store.open(path)
    size = min(SHOWN_SAMPLES, len(store))
    rows = np.sort(np.random.default_rng(seed).choice(max(len(store), 1), size, replace=False))
    log.info(f"{size} samples of {path}:")
    for row in rows.tolist():
        sample = store.sample(row)
        text = processor.decode(sample)
        text = text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."
        label = f" -> {_label(sample['target'], target_map)}" if target_map is not None and "target" in sample else ""
        log.info(f"  {row}: {text}{label}")


def _label(target: int | list[int], target_map: TargetMap) -> str:
    if isinstance(target, int):
        return target_map.labels[target]
    return " + ".join(target_map.labels[each] for each in target) or "(no label)"


def report_speed(split: str, counts: Counts, seconds: float) -> None:
    """Log the speed at which a split was made."""
    log.info(f"{split}: {counts.lines / max(seconds, 1e-9):,.0f} rows/s, {seconds:.1f} s")


def summary(sizes: Mapping[str, int]) -> str:
    """Return the splits and their sizes as one line."""
    return ", ".join(f"{split} {size:,}" for split, size in sizes.items())
