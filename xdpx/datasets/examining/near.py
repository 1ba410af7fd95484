"""Find near-duplicate rows within and across splits: MinHash finds candidates, which are then compared.

Letters: N rows; G grams; H hashes of a signature; C pairs of candidates.

Source: Broder, "On the resemblance and containment of documents", 1997; bands as in Leskovec, Rajaraman and Ullman,
"Mining of Massive Datasets", chapter 3.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from xdpx.datasets.examining.sample import SHOWN, Sample
from xdpx.datasets.examining.words import Grams, Words, grams_of, packed, salted, unpacked, whole_texts, words_of
from xdpx.datasets.findings.finding import Example, Finding

ALIKE = 0.8
"""Jaccard similarity of words and word pairs from which two texts are near-duplicates: about 14 of 15 words."""
HASHES, ROWS_OF_BAND = 32, 4
"""A pair with similarity 0.8 agrees in one of eight bands with a probability of 98 %, at 0.9 of 99.98 %."""
LIKELY = 0.6
"""Share of equal hashes from which a pair is compared: at similarity 0.8 it is reached with 99.8 % probability."""
FEWEST_GRAMS = 6
"""Minimum number of words and word pairs of a text; shorter ones are similar to too many."""
LONG = 160
"""Number of grams from which only a quarter of them, chosen by hash, is used to find candidates."""
MOST_PAIRS = 200_000
GRAMS_AT_ONCE = 1 << 15
"""Number of grams hashed at a time, so that they fit into the CPU cache, which is four times as fast."""
MANY_SHARED = 0.01


def near(sample: Sample, *, classes: bool) -> Iterator[Finding]:
    """Yield findings about near-duplicates; identical rows are reported elsewhere (`same_texts`).

    Args:
        sample: the rows.
        classes: whether each row has one label that is a class.
    """
    pairs, alike = near_pairs(sample)
    if not len(pairs):
        return
    labels, trained = sample.classes[1], sample.trained
    first, second = pairs.T
    held = ~trained
    crossing = trained[first] != trained[second]
    if crossing.any():
        outer = np.where(held[first], first, second)[crossing]
        inner = np.where(held[first], second, first)[crossing]
        yield from _across(sample, outer, inner, alike[crossing])
    within = trained[first] & trained[second]
    differ = (labels[first] != labels[second]) & (labels[first] >= 0) & (labels[second] >= 0)
    if classes and (within & differ).any():
        chosen = np.flatnonzero(within & differ)
        problem = f"{len(chosen):,} pairs of rows are near-duplicates with different labels."
        rows = np.unique(np.concatenate([first[chosen], second[chosen]]))
        yield sample.finding("near_contradictions", rows, problem, "Decide which label is right.",
                             examples=_shown(sample, second, first, alike, chosen))  # fmt: skip
    if classes:
        within &= ~differ
    again = np.unique(second[within])
    if len(again) >= max(2, 0.001 * len(sample)):
        problem = "{rows} are near-duplicates of an earlier training row."
        yield sample.finding("near_duplicates", again, problem, "Keep one of each, unless the difference matters.",
                             examples=_shown(sample, second, first, alike, np.flatnonzero(within)))  # fmt: skip


def _across(
    sample: Sample, outer: NDArray[np.int64], inner: NDArray[np.int64], alike: NDArray[np.float64]
) -> Iterator[Finding]:
    for index, split in enumerate(sample.names):
        mine = np.flatnonzero(sample.splits[outer] == index)
        rows = np.unique(outer[mine])
        if not len(rows):
            continue
        share = len(rows) / max(int((sample.splits == index).sum()), 1)
        problem = f"{len(rows):,} texts of {split} ({share:.2%}) are near-duplicates of training texts."
        yield sample.finding(
            "near_leakage", rows, problem, "Scores on it are too good: remove them from one side.",
            examples=_shown(sample, outer, inner, alike, mine), severity="warning" if share >= MANY_SHARED else "note",
        )  # fmt: skip


def _shown(
    sample: Sample,
    here: NDArray[np.int64],
    there: NDArray[np.int64],
    alike: NDArray[np.float64],
    chosen: NDArray[np.int64],
) -> list[Example]:
    """Return the first few of the chosen pairs as examples, one row after the other."""
    shown = []
    firsts = np.unique(here[chosen], return_index=True)[1]
    for pair in chosen[np.sort(firsts)[:SHOWN]].tolist():
        row, other = int(here[pair]), int(there[pair])
        same = f"{alike[pair]:.0%} as {sample.place(other)}"
        shown.append(sample.example(row, ", ".join(filter(None, (sample.labelled_as(row), same)))))
        shown.append(sample.example(other))
    return shown


def near_pairs(sample: Sample) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return pairs of similar rows (C, 2), the earlier one first, and their similarities (C,), 1 for equal words."""
    words = _words_of_fields(sample)
    whole = whole_texts(words, len(sample))
    exact = np.fromiter((hash(text.strip().lower()) for text in sample.texts), np.int64, len(sample))
    grams = grams_of(words, len(sample))
    sizes = np.diff(grams.offsets)
    order = np.lexsort((np.arange(len(sample)), whole))
    order = order[(whole[order] != 0) & (sizes[order] >= FEWEST_GRAMS)]
    first_of = _first_of_group(whole[order])
    same = np.stack([order[first_of], order], axis=1)
    firsts = np.unique(same[:, 0])
    same = same[(same[:, 0] != same[:, 1]) & (exact[same[:, 0]] != exact[same[:, 1]])]
    candidates = _candidates(grams, firsts)
    alike = _jaccard(grams, candidates)
    close = alike >= ALIKE
    pairs = np.concatenate([same, candidates[close]])
    values = np.concatenate([np.ones(len(same)), alike[close]])
    order = np.lexsort((pairs[:, 0], pairs[:, 1]))
    return pairs[order], values[order]


def _words_of_fields(sample: Sample) -> Words:
    """Return the words of each row; words of different fields get different hashes."""
    if len(sample.fields) == 1:
        return sample.words
    parts = [words_of(texts) for texts in sample.fields.values()]
    rows = np.concatenate([part.rows_W for part in parts])
    order = np.argsort(rows, kind="stable")
    hashes = np.concatenate([salted(part.hashes_W, 50 + index) for index, part in enumerate(parts)])
    starts, ends = np.concatenate([part.starts_W for part in parts]), np.concatenate([part.ends_W for part in parts])
    return Words(hashes[order], rows[order], starts[order], ends[order])


def _first_of_group(keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the index of the first equal key for each of some sorted keys."""
    new = np.ones(len(keys), np.bool_)
    new[1:] = keys[1:] != keys[:-1]
    return np.flatnonzero(new)[np.cumsum(new) - 1] if len(keys) else np.zeros(0, np.int64)


def _candidates(grams: Grams, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return pairs of rows that agree in a band of their signatures and in enough hashes, (C, 2)."""
    wanted = np.zeros(len(grams.offsets) - 1, np.bool_)
    wanted[rows] = True
    thin = (np.diff(grams.offsets) >= LONG)[grams.rows_G] & (grams.hashes_G & np.uint64(3) != 0)
    kept = wanted[grams.rows_G] & ~thin
    hashes, owners = grams.hashes_G[kept], grams.rows_G[kept]
    if not len(hashes):
        return np.zeros((0, 2), np.int64)
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    rows = owners[starts]
    signatures = _signatures(hashes, starts)
    found = []
    for band in range(0, HASHES, ROWS_OF_BAND):
        key = np.zeros(len(starts), np.uint64)
        for index in range(band, band + ROWS_OF_BAND):
            key = salted(key + signatures[:, index], 97)
        order = np.argsort(key, kind="stable")
        first = order[_first_of_group(key[order])]
        before = np.concatenate([order[:1], order[:-1]])
        for other in (first, np.where(key[before] == key[order], before, order)):
            fits = other != order
            one, two = other[fits], order[fits]
            found.append(np.minimum(one, two) * len(starts) + np.maximum(one, two))
    pairs = np.stack(np.divmod(np.unique(np.concatenate(found)), len(starts)), axis=1)
    agreed = np.concatenate([
        (signatures[piece[:, 0]] == signatures[piece[:, 1]]).sum(axis=1)
        for piece in np.array_split(pairs, len(pairs) // 50_000 + 1)
    ])  # fmt: skip
    likely: NDArray[np.int64] = rows[pairs[agreed >= LIKELY * HASHES]][:MOST_PAIRS]
    return likely


def _signatures(hashes: NDArray[np.uint64], starts: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the minimum of each of H hash functions over each row, (N, H).

    Args:
        hashes: of the grams of all rows, concatenated.
        starts: start of each row.
    """
    found = np.empty((len(starts), HASHES), np.uint64)
    ends = np.append(starts[1:], len(hashes))
    cuts = np.unique(np.searchsorted(starts, np.arange(GRAMS_AT_ONCE, len(hashes), GRAMS_AT_ONCE)))
    for rows in filter(len, np.split(np.arange(len(starts)), cuts)):
        first = starts[rows[0]]
        piece = hashes[first : ends[rows[-1]]]
        for index in range(HASHES):
            found[rows, index] = np.minimum.reduceat(salted(piece, 1 + index), starts[rows] - first)
    return found


def _jaccard(grams: Grams, pairs: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the Jaccard similarity of each pair of rows, (C,)."""
    sizes = np.diff(grams.offsets)
    found = np.zeros(len(pairs))
    for start in range(0, len(pairs), 20_000):
        piece = pairs[start : start + 20_000]
        parts = [_rows_of(grams, piece[:, side], sizes) for side in (0, 1)]
        hashes = np.concatenate([part[0] for part in parts])
        owners = np.concatenate([part[1] for part in parts])
        together = np.sort(packed(owners, hashes))
        shared = np.bincount(unpacked(together[1:][together[1:] == together[:-1]])[0], minlength=len(piece))
        found[start : start + len(piece)] = shared / np.maximum(sizes[piece].sum(axis=1) - shared, 1)
    return found


def _rows_of(
    grams: Grams, rows: NDArray[np.int64], sizes: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the grams of some rows, and the index in `rows` that each belongs to."""
    counts = sizes[rows]
    ends = np.cumsum(counts)
    places = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - counts, counts)
    return grams.hashes_G[np.repeat(grams.offsets[rows], counts) + places], np.repeat(np.arange(len(rows)), counts)
