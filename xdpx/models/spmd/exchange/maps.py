"""Convert names and shapes of weights between two forms, bit for bit: numpy arrays here and there.

A tree is a nested dict of arrays, like our parameters; a table is a flat dict, like a state dict of PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from xdpx.config.faults import first_few, nearest

Array = Any
Tree = dict[str, Any]

LAYER = "{layer}"
"""Placeholder in a name for the index of the layer."""

MOST_NAMES_SHOWN = 8


@dataclass(frozen=True)
class WeightPair:
    """One weight in both forms, or the same weight of every layer.

    Attributes:
        ours: path in the tree, `a/b/w`.
        theirs: name in the table; with `{layer}` in both names it stands for every layer. With `{layer}` only here in
            `theirs`, ours has all layers stacked on its leading dims.
        their_shape: of one layer.
        split: their shape with dims split further as in ours, e.g. (heads, width, features).
        order: the dims of `split` in our order.
    """

    ours: str
    theirs: str
    their_shape: tuple[int, ...]
    split: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def our_shape(self) -> tuple[int, ...]:
        """Shape of the weight of one layer on JAX."""
        return tuple(self.split[axis] for axis in self.order)

    def taken(self, value: Array) -> Array:
        """Return a weight of PyTorch with our shape."""
        return np.ascontiguousarray(np.asarray(value).reshape(self.split).transpose(self.order))

    def given(self, value: Array) -> Array:
        """Return a weight of ours with PyTorch's shape."""
        return np.ascontiguousarray(np.asarray(value).transpose(np.argsort(self.order))).reshape(self.their_shape)


def same(ours: str, theirs: str, *shape: int) -> WeightPair:
    """Return the pair of two weights of the same shape."""
    return WeightPair(ours, theirs, shape, shape, tuple(range(len(shape))))


def linear(ours: str, theirs: str, features_in: int, features_out: int) -> WeightPair:
    """Return the pair of our (in, out) and their (out, in)."""
    shape = (features_out, features_in)
    return WeightPair(ours, theirs, shape, shape, (1, 0))


def heads_in(ours: str, theirs: str, width: int, heads: tuple[int, int]) -> WeightPair:
    """Return the pair of our (D, N, H) and their (N * H, D)."""
    count, head = heads
    return WeightPair(f"{ours}/w", f"{theirs}.weight", (count * head, width), (count, head, width), (2, 0, 1))


def heads_out(ours: str, theirs: str, heads: tuple[int, int], width: int) -> WeightPair:
    """Return the pair of our (N, H, D) and their (D, N * H)."""
    count, head = heads
    return WeightPair(f"{ours}/w", f"{theirs}.weight", (width, count * head), (width, count, head), (1, 2, 0))


def head_bias(ours: str, theirs: str, heads: tuple[int, int]) -> WeightPair:
    """Return the pair of our (N, H) and their (N * H)."""
    count, head = heads
    return WeightPair(f"{ours}/b", f"{theirs}.bias", (count * head,), heads, (0, 1))


@dataclass(frozen=True)
class Exchange:
    """All weights of a model in both forms.

    Attributes:
        pairs: of weights.
        layers: number of layers for `{layer}`.
        stacked: leading dims of stacked weights: (layers,) of a repeated stack, (stages, layers per stage) of a
            pipeline, (rounds, stages, layers per stage) of a circular one.
        left_out: prefixes of their names without a weight here, e.g. of an unused pooler.
    """

    pairs: tuple[WeightPair, ...]
    layers: int
    stacked: tuple[int, ...] = ()
    left_out: tuple[str, ...] = ()

    def names(self) -> list[str]:
        """Return every name in their table."""
        return [name for pair in self.pairs for name in self._names_of(pair)]

    def take(self, table: Mapping[str, Array]) -> Tree:
        """Return our tree for their table.

        Raises:
            ValueError: names are missing or unknown, or a shape differs; all faults at once.
        """
        self._check(table)
        tree: Tree = {}
        for pair in self.pairs:
            for path, value in self._taken(pair, table):
                _put(tree, path, value)
        return tree

    def give(self, tree: Mapping[str, Any]) -> dict[str, Array]:
        """Return their table for our tree.

        Raises:
            ValueError: a weight is missing, or has another shape.
        """
        table: dict[str, Array] = {}
        for pair in self.pairs:
            table.update(self._given(pair, tree))
        return table

    def _names_of(self, pair: WeightPair) -> list[str]:
        if LAYER not in pair.theirs:
            return [pair.theirs]
        return [pair.theirs.replace(LAYER, str(number)) for number in range(self.layers)]

    def _taken(self, pair: WeightPair, table: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
        values = [pair.taken(table[name]) for name in self._names_of(pair)]
        if LAYER not in pair.theirs:
            yield pair.ours, values[0]
        elif LAYER in pair.ours:
            for number, value in enumerate(values):
                yield pair.ours.replace(LAYER, str(number)), value
        else:
            yield pair.ours, np.stack(values).reshape(*self._leading(), *pair.our_shape)

    def _given(self, pair: WeightPair, tree: Mapping[str, Any]) -> Iterator[tuple[str, Array]]:
        if LAYER not in pair.theirs or LAYER in pair.ours:
            for number, name in enumerate(self._names_of(pair)):
                path = pair.ours.replace(LAYER, str(number))
                yield name, pair.given(_get(tree, path, pair.our_shape))
            return
        whole = _get(tree, pair.ours, (*self._leading(), *pair.our_shape))
        layers = np.asarray(whole).reshape(self.layers, *pair.our_shape)
        for number, name in enumerate(self._names_of(pair)):
            yield name, pair.given(layers[number])

    def _leading(self) -> tuple[int, ...]:
        return self.stacked or (self.layers,)

    def _check(self, table: Mapping[str, Array]) -> None:
        wanted = {name: pair for pair in self.pairs for name in self._names_of(pair)}
        missing = [name for name in wanted if name not in table]
        strange = [name for name in table if name not in wanted and not name.startswith(self.left_out)]
        faults = []
        if missing:
            near = nearest(missing[0], strange)
            listed = first_few(sorted(missing), MOST_NAMES_SHOWN)
            faults.append(f"missing: {listed}." + (f" Did you mean '{near}'?" if near else ""))
        if strange:
            faults.append(f"not part of this model: {first_few(sorted(strange), MOST_NAMES_SHOWN)}.")
        faults += [fault for name, pair in wanted.items() if name in table and (fault := _misfit(name, pair, table))]
        if faults:
            raise ValueError("the weights are not those of this model:\n  " + "\n  ".join(faults))


def _misfit(name: str, pair: WeightPair, table: Mapping[str, Array]) -> str:
    """Return how the shape of a weight differs from the configuration; '' if it does not."""
    have, want = tuple(table[name].shape), pair.their_shape
    if have == want:
        return ""
    return f"{name}: has the shape {have}, but the configuration says {want}."


def _put(tree: Tree, path: str, value: Array) -> None:
    *way, last = path.split("/")
    for name in way:
        tree = tree.setdefault(name, {})
    tree[last] = value


def _get(tree: Mapping[str, Any], path: str, shape: tuple[int, ...]) -> Array:
    node: Any = tree
    for name in path.split("/"):
        if not isinstance(node, Mapping) or name not in node:
            raise ValueError(f"the weights have no {path}: is this the tree of another model, or stacked differently?")
        node = node[name]
    if tuple(node.shape) != shape:
        raise ValueError(f"{path}: has the shape {tuple(node.shape)}, but the configuration says {shape}.")
    return node
