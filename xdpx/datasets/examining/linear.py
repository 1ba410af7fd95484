"""A linear classifier of sparse rows: multinomial logistic regression, fitted by L-BFGS with only numpy.

Letters: N rows; F features; K columns of weights; E entries that are not 0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

STRENGTH = 5.0
"""Inverse regularisation strength, `C` of scikit-learn."""
ITERATIONS = 25
MEMORY = 6
SMALL = 1e-3
"""The fit ends when the maximum norm of the gradient falls to this share of the initial one."""


class Sparse(NamedTuple):
    """A CSR matrix: row i has features_E[offsets[i]:offsets[i + 1]] with those values_E; `width` columns."""

    features_E: NDArray[np.int32]
    values_E: Floats
    offsets: NDArray[np.int64]
    width: int

    def take(self, rows: NDArray[np.int64]) -> Sparse:
        """Return the rows with these indices."""
        counts = np.diff(self.offsets)[rows]
        ends = np.cumsum(counts)
        places = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - counts, counts)
        places += np.repeat(self.offsets[rows], counts)
        return Sparse(self.features_E[places], self.values_E[places], np.concatenate([[0], ends]), self.width)

    def times(self, weights_FK: Floats) -> Floats:
        """Return the product with weights (F, K), shape (N, K)."""
        counts = np.diff(self.offsets)
        full = np.flatnonzero(counts)
        found = np.zeros((len(counts), weights_FK.shape[1]), np.float32)
        for column in range(weights_FK.shape[1]):
            products = weights_FK[:, column][self.features_E] * self.values_E
            found[full, column] = np.add.reduceat(products, self.offsets[full]) if len(full) else 0.0
        return found

    def turned_times(self, rest_NK: Floats) -> Floats:
        """Return the product of the transpose with (N, K), shape (F, K)."""
        counts = np.diff(self.offsets)
        columns = [
            np.bincount(self.features_E, np.repeat(rest_NK[:, column], counts) * self.values_E, self.width)
            for column in range(rest_NK.shape[1])
        ]
        return np.stack(columns, axis=1).astype(np.float32)


def fit(rows: Sparse, classes_N: NDArray[np.int64], count: int) -> Floats:
    """Return weights (F + 1, K), of which the last row is the bias. K is the number of classes, `count`; 1 for two."""
    columns = count if count > 2 else 1
    wanted = np.zeros((len(classes_N), columns), np.float32)
    if columns == 1:
        wanted[:, 0] = classes_N
    else:
        wanted[np.arange(len(classes_N)), classes_N] = 1.0
    size, decay = len(classes_N), 1.0 / (STRENGTH * max(len(classes_N), 1))
    shape = (rows.width + 1, columns)

    def loss(flat: Floats) -> tuple[float, Floats]:
        weights = flat.reshape(shape)
        logits = rows.times(weights[:-1]) + weights[-1]
        if columns == 1:
            shares = 1 / (1 + np.exp(-np.clip(logits, -30, 30)))
            total = float(np.logaddexp(0, logits).sum() - (wanted * logits).sum())
        else:
            logits -= logits.max(axis=1, keepdims=True)
            shares = np.exp(logits)
            sums = shares.sum(axis=1, keepdims=True)
            shares /= sums
            total = float(np.log(sums).sum() - (wanted * logits).sum())
        rest = ((shares - wanted) / size).astype(np.float32)
        gradient = np.concatenate([rows.turned_times(rest), rest.sum(axis=0, keepdims=True)])
        gradient[:-1] += np.float32(decay) * weights[:-1]
        return total / size + decay / 2 * float((weights[:-1] ** 2).sum()), gradient.ravel()

    found: Floats = _lowest(loss, np.zeros(shape[0] * columns, np.float32)).reshape(shape)
    return found


def shares_of(rows: Sparse, weights: Floats) -> Floats:
    """Return the probability of each class, (N, classes)."""
    logits = rows.times(weights[:-1]) + weights[-1]
    if logits.shape[1] == 1:
        second = 1 / (1 + np.exp(-np.clip(logits, -30, 30)))
        return np.concatenate([1 - second, second], axis=1).astype(np.float32)
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    normed: Floats = (shares / shares.sum(axis=1, keepdims=True)).astype(np.float32)
    return normed


def _lowest(loss: Callable[[Floats], tuple[float, Floats]], place: Floats) -> Floats:
    """Return the approximate minimum of a smooth convex loss, by L-BFGS from the starting point `place`.

    Source: Nocedal and Wright, "Numerical Optimization", algorithms 7.4 and 7.5, with a backtracking line search.
    """
    value, gradient = loss(place)
    enough = SMALL * float(np.abs(gradient).max(initial=0.0))
    past: deque[tuple[Floats, Floats, float]] = deque(maxlen=MEMORY)
    for _ in range(ITERATIONS):
        direction = _direction(gradient, past)
        slope = float(direction @ gradient)
        length = 1.0 if past else 1.0 / max(float(np.linalg.norm(gradient)), 1e-12)
        for _ in range(12):
            there = place + np.float32(length) * direction
            new, its_gradient = loss(there)
            if new <= value + 1e-4 * length * slope:
                break
            length /= 2
        else:
            return place
        step, change = there - place, its_gradient - gradient
        curvature = float(step @ change)
        if curvature > 1e-12:
            past.append((step, change, 1.0 / curvature))
        place, value, gradient = there, new, its_gradient
        if float(np.abs(gradient).max()) <= enough:
            break
    return place


def _direction(gradient: Floats, past: deque[tuple[Floats, Floats, float]]) -> Floats:
    """Return the search direction: the negative gradient times the L-BFGS approximation of the inverse Hessian."""
    direction = -gradient
    weights = []
    for step, change, inverse in reversed(past):
        weight = inverse * float(step @ direction)
        weights.append(weight)
        direction = direction - np.float32(weight) * change
    if past:
        step, change, inverse = past[-1]
        direction = direction * np.float32(1.0 / (inverse * float(change @ change)))
    for (step, change, inverse), weight in zip(past, reversed(weights), strict=True):
        direction = direction + np.float32(weight - inverse * float(change @ direction)) * step
    return direction
