"""Find labels that are likely wrong, and slices of rows that are mostly predicted wrongly.

A linear model on words predicts each row by cross-validation. Where it is confident of another label than the given
one, confident learning estimates how many such labels are wrong, and which.

Letters: N rows; K classes.

Source: Northcutt, Jiang and Chuang, "Confident Learning: Estimating Uncertainty in Dataset Labels", 2021
(arXiv 1911.00068), section 3: thresholds, the joint of given and true labels, and pruning by its noise rates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xdpx.datasets.examining.linear import Sparse, fit, shares_of
from xdpx.datasets.examining.sample import SHOWN, Sample
from xdpx.datasets.examining.words import grams_of, salted, words_of
from xdpx.datasets.findings.finding import Finding
from xdpx.datasets.workers import available_cores

FOLDS = 5
FEWEST_OF_A_CLASS = 10
FEWEST_ROWS = 200
MOST_CLASSES = 100
WORK = 30_000
"""Maximum of rows times columns of weights, which takes some seconds."""
MOST_WORDS = 1_000_000
SUREST = 0.2
"""Share of rows that the model is most confident of: there it errs rarely, and differing labels are mostly wrong."""
LITTLE_NOISE, MUCH_NOISE = 0.01, 0.05
"""Share of differing labels among these rows from which it is reported, and from which it is a warning."""
BETTER_THAN_GUESSING = 0.25
"""Share of the errors of the majority class baseline that the model must avoid for its predictions to be used."""
WEAK = 0.1
SURE = 4.0
"""A slice is weak if its error rate exceeds that of the other rows by this much, and by this many standard errors."""
EVEN = 0.3
"""Share of the rarer of two labels from which both are expected to be equally easy."""
MOST_KINDS, LONGEST_KIND = 30, 40
"""Maximum number of values of a field that counts as the source of rows, and of characters of a value shown."""
FEWEST_OF_A_SLICE = 50


@dataclass(frozen=True)
class Crossed:
    """Cross-validated predictions: every row is predicted by a model that was not trained on it.

    Attributes:
        rows: indices in the sample, (N,).
        names: of the classes.
        given: the labelled class of each row, (N,).
        shares: probability of each class, (N, K).
        suspects: indices into `rows` of likely wrong labels, the most certain first.
    """

    rows: NDArray[np.int64]
    names: Sequence[str]
    given: NDArray[np.int64]
    shares: NDArray[np.float32]
    suspects: NDArray[np.int64]

    @property
    def right(self) -> NDArray[np.bool_]:
        """Whether the prediction agrees with the label, (N,)."""
        agreed: NDArray[np.bool_] = self.shares.argmax(axis=1) == self.given
        return agreed

    @property
    def accuracy(self) -> float:
        """Share of rows whose prediction agrees with the label."""
        return float(self.right.mean())

    @property
    def guessing(self) -> float:
        """Accuracy of the majority class baseline: share of rows with the most frequent label."""
        return float(np.bincount(self.given).max() / len(self.given))

    @property
    def has_a_say(self) -> bool:
        """Whether the model is accurate enough for its predictions to be used."""
        return 1 - self.accuracy <= (1 - BETTER_THAN_GUESSING) * (1 - self.guessing)

    @property
    def noise(self) -> float:
        """Share of differing labels among the rows that the model is most confident of."""
        sure = self.shares.max(axis=1)
        chosen = np.argsort(-sure, kind="stable")[: max(int(SUREST * len(sure)), 1)]
        return float(1 - self.right[chosen].mean())


def crossed(sample: Sample, *, most: int) -> Crossed | None:
    """Return cross-validated predictions; None if there are too few rows, or too few or too many classes.

    Args:
        sample: the rows, of one label each.
        most: maximum number of rows; fewer are drawn if there are many classes or words per row.
    """
    names, classes = sample.classes
    times = np.bincount(classes[classes >= 0], minlength=len(names))
    kept = np.flatnonzero(times >= FEWEST_OF_A_CLASS)
    if not 2 <= len(kept) <= MOST_CLASSES:
        return None
    rows = np.flatnonzero(np.isin(classes, kept))
    columns = len(kept) if len(kept) > 2 else 1
    words_per_row = len(sample.words.rows_W) / max(len(sample), 1)
    most = min(most, max(min(WORK // columns, int(MOST_WORDS / max(words_per_row, 1.0))), 50 * len(kept)))
    if len(rows) > most:
        rows = np.sort(np.random.default_rng(0).choice(rows, most, replace=False))
    if len(rows) < FEWEST_ROWS:
        return None
    numbers = np.full(len(names), -1)
    numbers[kept] = np.arange(len(kept))
    given = numbers[classes[rows]]
    matrix, keys = _features(sample, rows)
    shares = _held_out(matrix, given, len(kept), keys)
    return Crossed(rows, [names[index] for index in kept.tolist()], given, shares, suspects_of(shares, given))


def _features(sample: Sample, rows: NDArray[np.int64]) -> tuple[Sparse, NDArray[np.uint64]]:
    """Return (words and word pairs of rows as tf-idf-like features, a key of the text of each row).

    For pairs of texts, words in both texts, words in only one, and their overlap are also features.
    """
    columns = [[texts[row] for row in rows.tolist()] for texts in sample.fields.values()]
    texts = columns[0] if len(columns) == 1 else ["\n".join(cells) for cells in zip(*columns, strict=True)]
    grams = grams_of(words_of(texts), len(rows), triples=True)
    hashes, owners = grams.hashes_G, grams.rows_G
    keys = np.zeros(len(rows), np.uint64)
    np.add.at(keys, owners, salted(hashes, 5))
    if len(columns) == 2:
        first, second = (_distinct(column) for column in columns)
        both = np.isin(first, second)
        alone = np.concatenate([first[~both], second[~np.isin(second, first)]])
        parts = [(first[both], 11), (alone, 12)]
        shared = np.bincount(_owner(first[both]), minlength=len(rows))
        every = shared + np.bincount(_owner(alone), minlength=len(rows))
        bucket = np.floor(10 * shared / np.maximum(every, 1)).astype(np.uint64)
        hashes = np.concatenate([hashes, *(salted(part["hash"], salt) for part, salt in parts), salted(bucket, 13)])
        owners = np.concatenate([owners, *(_owner(part) for part, _ in parts), np.arange(len(rows))])
    return _matrix(hashes, owners, len(rows)), keys


_GRAM = np.dtype([("row", np.int64), ("hash", np.uint64)])


def _distinct(texts: Sequence[str]) -> NDArray[np.void]:
    words = words_of(texts)
    found = np.empty(len(words.rows_W), _GRAM)
    found["row"], found["hash"] = words.rows_W, words.hashes_W
    return np.unique(found)


def _owner(grams: NDArray[np.void]) -> NDArray[np.int64]:
    owners: NDArray[np.int64] = grams["row"]
    return owners


def _matrix(hashes: NDArray[np.uint64], owners: NDArray[np.int64], count: int) -> Sparse:
    """Return the matrix of features that occur at least twice, weighted by idf, with rows of norm 1."""
    distinct, numbers, times = np.unique(hashes, return_inverse=True, return_counts=True)
    useful = times >= 2
    renumbered = np.cumsum(useful) - 1
    kept = useful[numbers]
    owners, features = owners[kept], renumbered[numbers[kept]]
    order = np.argsort(owners, kind="stable")
    owners, features = owners[order], features[order].astype(np.int32)
    weights = (np.log(count / times[useful]) + 1).astype(np.float32)[features]
    norms = np.sqrt(np.bincount(owners, weights.astype(np.float64) ** 2, count))
    values = (weights / np.maximum(norms, 1e-12)[owners]).astype(np.float32)
    return Sparse(features, values, np.searchsorted(owners, np.arange(count + 1)), int(useful.sum()))


def _held_out(matrix: Sparse, given: NDArray[np.int64], count: int, keys: NDArray[np.uint64]) -> NDArray[np.float32]:
    """Return the probabilities of each row by a model not trained on it or on rows with the same words, (N, K)."""
    folds = (salted(keys, 3) % np.uint64(FOLDS)).astype(np.int64)
    shares = np.zeros((len(given), count), np.float32)

    def work(fold: int) -> None:
        inside, outside = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        if len(inside) and len(outside):
            weights = fit(matrix.take(inside), given[inside], count)
            shares[outside] = shares_of(matrix.take(outside), weights)

    with ThreadPoolExecutor(min(FOLDS, available_cores())) as pool:
        list(pool.map(work, range(FOLDS)))
    return shares


def suspects_of(shares: NDArray[np.float32], given: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the indices of rows whose label is likely wrong, the most certain first, by confident learning.

    Args:
        shares: out-of-sample probabilities, (N, K).
        given: the given classes, (N,).
    """
    count = shares.shape[1]
    own = shares[np.arange(len(given)), given]
    times = np.bincount(given, minlength=count)
    thresholds = np.bincount(given, own, minlength=count) / np.maximum(times, 1)
    thresholds[times == 0] = np.inf
    above = np.where(shares >= thresholds - 1e-6, shares, -1.0)
    true = above.argmax(axis=1)
    sure = above.max(axis=1) >= 0
    joint = np.zeros((count, count))
    np.add.at(joint, (given[sure], true[sure]), 1)
    joint[np.diag_indices(count)] = np.maximum(joint.diagonal(), 1)
    joint *= (times / joint.sum(axis=1))[:, None]
    joint *= len(given) / joint.sum()
    found = np.zeros(len(given), np.bool_)
    for one in range(count):
        mine = np.flatnonzero(given == one)
        for other in range(count):
            number = round(float(joint[one, other]))
            if one == other or not number:
                continue
            margins = shares[mine, other] - own[mine]
            found[mine[np.argsort(-margins, kind="stable")[:number]]] = True
    found &= shares.argmax(axis=1) != given
    rows = np.flatnonzero(found)
    return rows[np.argsort(own[rows], kind="stable")]


def label_noise(sample: Sample, known: Crossed) -> Iterator[Finding]:
    """Yield a finding about the share of likely wrong labels, with the most suspicious rows."""
    if not known.has_a_say or known.noise < LITTLE_NOISE or not len(known.suspects):
        return
    best = known.shares.argmax(axis=1)
    examples = [
        sample.example(
            int(known.rows[index]),
            f"labelled {known.names[known.given[index]]}, likely {known.names[best[index]]} "
            f"({known.shares[index, best[index]]:.0%})",
        )
        for index in known.suspects[: 2 * SHOWN].tolist()
    ]
    looked = f"{len(known.rows):,} rows were looked at" if len(known.rows) < len(sample) else "all rows were looked at"
    problem = (
        f"of the rows that a linear model on words is surest of, {known.noise:.1%} have another label: as the model "
        f"errs there too, at most about so many are wrong. {len(known.suspects):,} rows are worth a look ({looked}; "
        f"the model agrees with {known.accuracy:.1%} of the labels)."
    )
    yield sample.finding(
        "label_noise", known.rows[known.suspects], problem, "Look at these rows, the surest first, and correct them.",
        examples=examples, severity="warning" if known.noise >= MUCH_NOISE else "note",
    )  # fmt: skip


def weak_slices(sample: Sample, known: Crossed) -> Iterator[Finding]:
    """Yield findings about splits, labels, sources or lengths with a far higher error rate than the other rows."""
    if not known.has_a_say:
        return
    wrong = ~known.right
    for name, mine in _slices(sample, known):
        inside, outside = int(mine.sum()), int((~mine).sum())
        if min(inside, outside) < FEWEST_OF_A_SLICE:
            continue
        here, there = float(wrong[mine].mean()), float(wrong[~mine].mean())
        spread = float(np.sqrt(here * (1 - here) / inside + there * (1 - there) / outside))
        if here - there >= max(WEAK, there) and here - there > SURE * spread:
            rows = known.rows[mine & wrong]
            problem = f"rows {name} are predicted wrongly far more often than others: {here:.1%} against {there:.1%} "
            problem += f"({inside:,} rows, by a linear model on words)."
            remedy = "Look at these rows: other labels, other texts, or too few of them?"
            yield sample.finding("weak_slice", rows, problem, remedy, severity="note")


def _slices(sample: Sample, known: Crossed) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    splits = sample.splits[known.rows]
    if len(np.unique(splits)) > 1:
        for index, split in enumerate(sample.names):
            yield f"of {split}", splits == index
    shares = np.bincount(known.given, minlength=len(known.names)) / max(1, len(known.given))
    for index, label in enumerate(known.names):
        if len(known.names) > 2 or shares[index] >= EVEN:  # of two labels, the rare one is always harder
            yield f"labelled '{label}'", known.given == index
    for field, texts in sample.fields.items() if len(sample.fields) > 1 else ():
        values = np.array([texts[row] for row in known.rows.tolist()], dtype=object)
        kinds, number = np.unique(values.astype(str), return_inverse=True)
        if 2 <= len(kinds) <= MOST_KINDS:  # a source, a domain, an author, rather than a text
            for index, kind in enumerate(kinds.tolist()):
                yield f"whose {field} is '{kind[:LONGEST_KIND]}'", number == index
    lengths = np.fromiter((len(sample.texts[row]) for row in known.rows.tolist()), np.int64, len(known.rows))
    low, high = np.quantile(lengths, [0.1, 0.9])
    yield f"of at most {low:,.0f} characters", lengths <= low
    yield f"of {high:,.0f} characters and more", lengths >= high
