"""Names of weights in nested dicts: `params/<path>`, with `/` between the keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
from jax.tree_util import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey

from xdpx.config.faults import refusal

ROOT = "params"
Tree = Any
"""A nested dict of arrays."""


def name_of(path: Iterable[Any]) -> str:
    """Return the name of the weight at a path of a JAX pytree."""
    return "/".join([ROOT, *(_text(key) for key in path)])


def _text(key: object) -> str:
    if isinstance(key, DictKey | FlattenedIndexKey):
        return str(key.key)
    if isinstance(key, GetAttrKey):
        return str(key.name)
    return str(key.idx) if isinstance(key, SequenceKey) else str(key)


def named(tree: Tree, is_leaf: Callable[[Any], bool] | None = None) -> dict[str, Any]:
    """Return the leaves of a pytree by name, in its order."""
    return {name_of(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree, is_leaf=is_leaf)}


def unnamed(leaves: Mapping[str, Any]) -> Tree:
    """Return the nested dict of leaves by name, the inverse of `named`."""
    tree: dict[str, Any] = {}
    for name, leaf in leaves.items():
        *above, last = name.removeprefix(f"{ROOT}/").split("/")
        place = tree
        for key in above:
            place = place.setdefault(key, {})
        place[last] = leaf
    return tree


def matching(patterns: Sequence[str], names: Iterable[str], *, where: str) -> set[str]:
    """Return the names that match any of the regular expressions (`re.search`).

    Raises:
        ConfigError: an expression is invalid, or matches no name: it is probably misspelt, and would have no effect.
    """
    known = list(names)
    found: set[str] = set()
    for pattern in patterns:
        try:
            hits = {name for name in known if re.search(pattern, name)}
        except re.error as error:
            raise refusal(
                where, f"'{pattern}' is not a regular expression: {error}.", "Escape what is literal."
            ) from error
        if not hits:
            some = ", ".join(known[:3])
            raise refusal(where, f"'{pattern}' matches no name of a weight.", f"Names are like: {some}.")
        found |= hits
    return found


def keys_of(path: Sequence[Any]) -> tuple[str, ...]:
    """Return the dict keys at the end of a path in an optimizer state, which are those of the weight of the leaf."""
    keys: list[str] = []
    for key in reversed(path):
        if not isinstance(key, DictKey | FlattenedIndexKey):
            break
        keys.insert(0, str(key.key))
    return tuple(keys)


def weight_of(path: Sequence[Any], names: Mapping[str, Any]) -> str | None:
    """Return the name of the weight that a leaf of an optimizer state belongs to; None if it belongs to none."""
    keys = keys_of(path)
    for start in range(len(keys)):
        name = "/".join([ROOT, *keys[start:]])
        if name in names:
            return name
    return None
