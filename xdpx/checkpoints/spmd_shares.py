"""The shards of a sharded state on the devices of this process: fetch them to the host, and restore them."""

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


def shards_of(state: object) -> dict[Part, jax.Array]:
    """Return the distinct parts of a pytree of arrays that are on the devices of this process, without copying."""
    found: dict[Part, jax.Array] = {}
    for name, leaf in named_leaves(state):
        for shard in leaf.addressable_shards:
            found.setdefault(Part(name, _index(shard.index, leaf.shape), str(leaf.dtype)), shard.data)
    return found


def bytes_here(state: object) -> int:
    """Return the size of the distinct parts of a pytree of arrays that are on the devices of this process."""
    return sum(data.nbytes for data in shards_of(state).values())


def on_host(shards: Mapping[Part, jax.Array]) -> dict[Part, Host]:
    """Return parts as NumPy arrays, which share the memory of the devices if those are CPUs. Waits for the devices."""
    for data in shards.values():
        data.copy_to_host_async()
    return {part: np.asarray(data) for part, data in shards.items()}


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
