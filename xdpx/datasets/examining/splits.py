"""Compare splits: labels that occur in only one, or with other frequencies, and texts of different lengths."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from xdpx.datasets.examining.sample import Sample
from xdpx.datasets.findings.finding import Finding, some

FEWEST_ROWS = 50
FAR_APART = 0.15
"""Total variation distance of the label distributions of two splits from which it is reported."""
SURE = 6.0
"""Number of standard deviations from which a difference is not due to chance (see `_labels`)."""
OTHER_LENGTH = 3.0
"""Ratio of median lengths from which it is reported."""


def splits(sample: Sample, *, classes: bool) -> Iterator[Finding]:
    """Yield findings from the comparison of each held-out split with the training data.

    Args:
        sample: the rows.
        classes: whether each row has one label that is a class.
    """
    trained = sample.trained
    if trained.all() or not trained.any():
        return
    lengths = np.fromiter(map(len, sample.texts), np.int64, len(sample))
    for index, split in enumerate(sample.names):
        mine = (sample.splits == index) & ~trained
        if not mine.any():
            continue
        if classes:
            yield from _labels(sample, split, mine, trained)
        here, there = float(np.median(lengths[mine])), float(np.median(lengths[trained]))
        if mine.sum() >= FEWEST_ROWS and max(here, there) > OTHER_LENGTH * max(min(here, there), 1.0):
            problem = f"half of the texts of {split} have {here:,.0f} characters or more, of training {there:,.0f}."
            yield sample.finding("length_shift", np.flatnonzero(mine), problem, "Are they from the same source?",
                                 severity="warning")  # fmt: skip


def _labels(sample: Sample, split: str, mine: NDArray[np.bool_], trained: NDArray[np.bool_]) -> Iterator[Finding]:
    names, numbers = sample.classes
    here = np.bincount(numbers[mine & (numbers >= 0)], minlength=len(names))
    there = np.bincount(numbers[trained & (numbers >= 0)], minlength=len(names))
    if not here.sum() or not there.sum():
        return
    unseen = [index for index in np.flatnonzero((here > 0) & (there == 0)).tolist()]
    if unseen:
        rows = np.flatnonzero(mine & np.isin(numbers, unseen))
        listed = some(names[index] for index in unseen)
        problem = f"{len(rows):,} rows of {split} are labelled {listed}, which no training row is."
        yield sample.finding(
            "unseen_label", rows, problem, "Add such rows to training, or remove them.", severity="warning"
        )
        return
    share, usual = here / here.sum(), there / there.sum()
    apart = float(np.abs(share - usual).sum() / 2)
    chance = float(np.sqrt(usual * (1 - usual) * (1 / here.sum() + 1 / there.sum())).sum() / 2)
    if here.sum() >= FEWEST_ROWS and apart >= FAR_APART and apart > SURE / 2 * chance:
        most = int(np.abs(share - usual).argmax())
        problem = f"'{names[most]}' is the label of {share[most]:.1%} of {split}, but of {usual[most]:.1%} of training."
        yield sample.finding("label_shift", np.flatnonzero(mine & (numbers == most)), problem,
                             "Draw the splits from the same rows, unless they are meant to differ.",
                             severity="warning")  # fmt: skip
