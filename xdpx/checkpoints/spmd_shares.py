"""Copy the shards of a sharded state on the devices of this process to the host, and restore them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from xdpx.checkpoints.memory_shares import Part
from xdpx.checkpoints.spmd_files import named_leaves

if TYPE_CHECKING:
    import jax

Host = np.ndarray[Any, Any]


def parts_of(target: object) -> list[Part]:
    """Return the distinct parts of a pytree of arrays, or of `ShapeDtypeStruct` with shardings, on this process."""
    return [
        Part(name, index, str(leaf.dtype))
        for name, leaf in named_leaves(target)
        for index in sorted({
            _index(place, leaf.shape)
            for place in leaf.sharding.addressable_devices_indices_map(tuple(leaf.shape)).values()
        })
    ]  # fmt: skip


class HostCopies:
    """Copies of the parts of successive states, in the same host memory: only the first copy has to allocate it."""

    def __init__(self) -> None:
        self._kept: dict[Part, Host] = {}

    def take(self, state: object) -> dict[Part, Host]:
        """Return copies of the parts on this process, which may then be donated; overwrites the previous copies."""
        found: dict[Part, jax.Array] = {}
        for name, leaf in named_leaves(state):
            for shard in leaf.addressable_shards:
                part = Part(name, _index(shard.index, leaf.shape), str(leaf.dtype))
                if part not in found:
                    found[part] = shard.data
                    shard.data.copy_to_host_async()
        if self._kept.keys() != found.keys():
            self._kept = {part: np.empty(data.shape, data.dtype) for part, data in found.items()}
        for part, data in found.items():
            np.copyto(self._kept[part], np.asarray(data))
        return self._kept


def joined(share: Mapping[Part, Host], target: object) -> Any:
    """Return the pytree of arrays whose shards on this process are those of a share.

    Args:
        share: values of all `parts_of(target)`.
        target: a pytree of `jax.ShapeDtypeStruct` with shardings.
    """
    import jax

    def leaf_of(name: str, leaf: Any) -> jax.Array:
        def part(index: Any) -> Host:
            return share[Part(name, _index(index, leaf.shape), str(leaf.dtype))]

        return jax.make_array_from_callback(tuple(leaf.shape), leaf.sharding, part)

    leaves = [leaf_of(name, leaf) for name, leaf in named_leaves(target)]
    return jax.tree.unflatten(jax.tree.structure(target), leaves)


def _index(slices: tuple[slice, ...], shape: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    return tuple(each.indices(length)[:2] for each, length in zip(slices, shape, strict=True))
