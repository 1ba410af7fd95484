"""A dict with attribute access, used for batches and for nested sets of named arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any


class NestedMap(dict[str, Any]):
    """A dict with attribute access; values may be NestedMaps, dicts and lists of them, anything else is a leaf.

    `batch.ids` is `batch["ids"]`. `x.a.b` reads nested maps; `Set("a.b", value)` and `Get("a.b")` take dotted paths.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(
                f"the map has no '{name}'. It has: {', '.join(map(str, self)) or 'nothing'}."
            ) from None

    def __setattr__(self, name: str, value: object) -> None:
        if hasattr(type(self), name):
            raise AttributeError(f"'{name}' is a method of NestedMap: write x['{name}'] = ..., or take another name.")
        self[name] = value

    def __delattr__(self, name: str) -> None:
        try:
            del self[name]
        except KeyError:
            raise AttributeError(f"the map has no '{name}'.") from None

    def __deepcopy__(self, memo: dict[int, Any]) -> NestedMap:
        return self.DeepCopy()

    def copy(self) -> NestedMap:
        """Return a shallow copy."""
        return type(self)(self)

    def Get(self, path: str, default: object = None) -> Any:
        """Return the value at a dotted path, or `default` if it does not exist."""
        node: Any = self
        for name in path.split("."):
            if not isinstance(node, dict) or name not in node:
                return default
            node = node[name]
        return node

    def Set(self, path: str, value: object) -> None:
        """Set the value at a dotted path, creating missing maps on the way."""
        *way, last = path.split(".")
        node = self
        for name in way:
            node = node.setdefault(name, NestedMap())
        node[last] = value

    def FlattenItems(self) -> list[tuple[str, Any]]:
        """Return (dotted path, leaf) of every leaf, sorted by key on each level; items of lists as `name[0]`."""
        return list(_items(self, ""))

    def Flatten(self) -> list[Any]:
        """Return all leaves in the order of `FlattenItems`."""
        return [leaf for _, leaf in self.FlattenItems()]

    def Transform(self, function: Callable[[Any], Any]) -> NestedMap:
        """Return a map of the same structure with `function(leaf)` at every leaf."""
        mapped: NestedMap = _mapped(self, function)
        return mapped

    def TransformWithKey(self, function: Callable[[str, Any], Any]) -> NestedMap:
        """Return a map of the same structure with `function(dotted path, leaf)` at every leaf."""
        return self.Pack([function(path, leaf) for path, leaf in self.FlattenItems()])

    def Pack(self, leaves: Iterable[Any]) -> NestedMap:
        """Return a map of the same structure with these leaves, in the order of `Flatten`.

        Raises:
            ValueError: the number of leaves differs from that of the structure.
        """
        values = list(leaves)
        wanted = len(self.Flatten())
        if len(values) != wanted:
            raise ValueError(f"Pack got {len(values)} leaves for a map of {wanted}.")
        rest = iter(values)
        return self.Transform(lambda _: next(rest))

    def DeepCopy(self) -> NestedMap:
        """Return a copy of the structure that shares the leaves."""
        return self.Transform(lambda leaf: leaf)

    def Filter(self, keep: Callable[[Any], bool]) -> NestedMap:
        """Return a map of the leaves for which `keep` holds, without maps that become empty. Lists count as leaves."""
        kept: NestedMap = type(self)()
        for name in self:
            value = self[name]
            if isinstance(value, NestedMap):
                value = value.Filter(keep)
                if value:
                    kept[name] = value
            elif keep(value):
                kept[name] = value
        return kept

    def IsCompatible(self, other: NestedMap) -> bool:
        """Return whether both maps have the same paths."""
        return [path for path, _ in self.FlattenItems()] == [path for path, _ in other.FlattenItems()]

    @staticmethod
    def FromNestedDict(value: object) -> Any:
        """Return a value with every dict inside converted to a NestedMap."""
        if isinstance(value, dict):
            return NestedMap({name: NestedMap.FromNestedDict(item) for name, item in value.items()})
        if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
            return type(value)(NestedMap.FromNestedDict(item) for item in value)
        return value

    def ToNestedDict(self) -> dict[str, Any]:
        """Return a plain dict, with every NestedMap inside converted to one, too."""
        return {name: _plain(value) for name, value in self.items()}


def _plain(value: object) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(_plain(item) for item in value)
    return value


def _items(node: object, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict):
        for name in sorted(node):
            yield from _items(node[name], f"{path}.{name}" if path else str(name))
    elif isinstance(node, list | tuple) and not hasattr(node, "_fields"):
        for index, item in enumerate(node):
            yield from _items(item, f"{path}[{index}]")
    else:
        yield path, node


def _mapped(node: object, function: Callable[[Any], Any]) -> Any:
    if isinstance(node, dict):
        values = {name: _mapped(node[name], function) for name in sorted(node)}
        return type(node)({name: values[name] for name in node})
    if isinstance(node, list | tuple) and not hasattr(node, "_fields"):
        return type(node)(_mapped(item, function) for item in node)
    return function(node)
