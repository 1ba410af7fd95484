"""Move data between the host and the devices of all processes: batches in, scalars, rows and whole states out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from xdpx.engines.spmd.partitioning import Report, batch_sharding, path_name
from xdpx.utils.axis_splits import Rules


class Fact:
    """One element of a vector that may still be being computed. `float` and printing wait for it."""

    __slots__ = ("index", "vector")

    def __init__(self, vector: Any, index: int) -> None:
        self.vector, self.index = vector, index

    def __float__(self) -> float:
        return float(np.asarray(self.vector)[self.index])

    def __repr__(self) -> str:
        return repr(float(self))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.asarray(float(self), dtype=dtype or np.float32)


class StepFacts(Mapping[str, Any]):
    """The facts of one update by name, still on the device; cheap to make, because most are never read.

    Args:
        vector: all of them.
        places: the index of each in the vector.
    """

    __slots__ = ("_places", "_vector")

    def __init__(self, vector: Any, places: Mapping[str, int]) -> None:
        self._vector, self._places = vector, places

    def __getitem__(self, name: str) -> Fact:
        return Fact(self._vector, self._places[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def to_float(facts: Mapping[str, Any]) -> dict[str, float]:
    """Return plain floats; each vector is fetched once, all in one transfer."""
    vectors = {id(fact.vector): fact.vector for fact in facts.values() if isinstance(fact, Fact)}
    others = {name: value for name, value in facts.items() if not isinstance(value, Fact)}
    arrived, numbers = jax.device_get((vectors, others))
    return {
        name: float(arrived[id(fact.vector)][fact.index] if isinstance(fact, Fact) else numbers[name])
        for name, fact in facts.items()
    }


def plain(tree: Any) -> Any:
    """Return a tree with its facts and single numbers on devices as plain floats. Waits for the devices."""
    return jax.tree.map(lambda leaf: float(leaf) if isinstance(leaf, Fact | jax.Array) else leaf, tree)


class Placer:
    """Puts batches onto the devices. Caches the sharding for each number of rows.

    Args:
        rules, mesh: which mesh axes split the rows of a batch.
        report: called for batches whose rows cannot be split evenly, so that every device gets all of them.
    """

    def __init__(self, rules: Rules, mesh: Mesh, report: Report) -> None:
        self._rules, self._mesh, self._report = rules, mesh, report
        self._places: dict[int, NamedSharding] = {}
        self._alone = jax.process_count() == 1
        self._whole = NamedSharding(mesh, PartitionSpec())

    def put(self, batch: Any) -> Any:
        """Return a batch of global arrays from the rows of this process; what no device can hold is None.

        Args:
            batch: a tree of arrays whose first dimension is the row; plain numbers are put everywhere.

        Raises:
            ValueError: the rows do not divide, and there are several processes.
        """
        leaves, structure = jax.tree.flatten(batch)
        values = [_numeric(leaf) for leaf in leaves]
        places = [self._place(value) for value in values]
        if self._alone:
            return jax.tree.unflatten(structure, jax.device_put(values, places))
        return jax.tree.unflatten(structure, [self._joined(*pair) for pair in zip(values, places, strict=True)])

    def _joined(self, value: object, place: NamedSharding) -> Any:
        if value is None or (isinstance(value, jax.Array) and not value.is_fully_addressable):
            return value
        return jax.make_array_from_process_local_data(place, np.asarray(value))

    def _place(self, value: Any) -> NamedSharding:
        if value is None or not value.ndim:
            return self._whole
        rows = value.shape[0]
        if rows not in self._places:
            self._places[rows] = self._batch_place(rows)
        return self._places[rows]

    def _batch_place(self, rows: int) -> NamedSharding:
        if self._alone:
            return batch_sharding(rows, self._rules, self._mesh, report=self._report)
        here = batch_sharding(self._mesh.size, self._rules, self._mesh)  # such a number always divides
        shards = len({str(index) for index in here.addressable_devices_indices_map((self._mesh.size,)).values()})
        if rows % shards:
            raise ValueError(
                f"a batch of {rows} rows per process: the mesh {dict(self._mesh.shape)} splits them over {shards} "
                f"places in each process, which does not divide. Use a multiple of {shards} as batch_size."
            )
        return here


def tree_to_host(tree: Any) -> Any:
    """Return arrays of devices as NumPy arrays, and single numbers as floats; with several processes, this one's rows.

    All transfers start at once, so that the host waits only for the last of them.
    """
    leaves, structure = jax.tree.flatten(tree)
    arrived = iter(jax.device_get([_parts_here(leaf) for leaf in leaves if isinstance(leaf, jax.Array)]))
    found = [_joined(next(arrived)) if isinstance(leaf, jax.Array) else leaf for leaf in leaves]
    return jax.tree.unflatten(structure, found)


def _joined(parts: list[np.ndarray[Any, Any]]) -> Any:
    found = parts[0] if len(parts) == 1 else np.concatenate(parts)
    if found.ndim == 0:
        return float(found)
    return found.astype(np.float32) if found.dtype.name == "bfloat16" else found


def _parts_here(value: Any) -> list[Any]:
    """Return the parts that this process has, in order; only the first dimension may be split among processes."""
    if value.is_fully_addressable or value.is_fully_replicated:
        return [value]
    parts = {shard.index[0].start or 0: shard for shard in value.addressable_shards}
    if any(shard.data.shape[1:] != value.shape[1:] for shard in parts.values()):
        raise ValueError(
            f"this is a bug: an output of shape {value.shape} is split by {value.sharding.spec}, not by rows."
        )
    return [parts[start].data for start in sorted(parts)]


def array_to_host(value: Any) -> np.ndarray[Any, Any]:
    """Return a copy of a whole array on the host. On all processes."""
    if value.is_fully_addressable or value.is_fully_replicated:
        return np.array(value)
    return np.asarray(multihost_utils.process_allgather(value, tiled=True))


def to_tensors(tree: Any) -> dict[str, Any]:
    """Return the arrays of a tree by name as torch tensors on the host, the form in which checkpoints store them."""
    return {
        path_name(path): _tensor(array_to_host(leaf)) for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]
    }


def _tensor(array: np.ndarray[Any, Any]) -> Any:
    import torch

    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def from_tensors(tensors: Mapping[str, Any], target: Any) -> Any:
    """Put tensors (or arrays) by name into the places of `target`, a tree of `ShapeDtypeStruct` with shardings."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(target)
    return jax.tree.unflatten(structure, [_spread(_array(tensors[path_name(path)]), leaf) for path, leaf in leaves])


def _array(value: Any) -> np.ndarray[Any, Any]:
    if hasattr(value, "detach"):
        import torch

        value = value.detach().cpu()
        if value.dtype == torch.bfloat16:
            return np.asarray(value.view(torch.uint16).numpy().view(jax.numpy.bfloat16))
        return np.asarray(value.numpy())
    return np.asarray(value)


def _spread(array: np.ndarray[Any, Any], leaf: Any) -> Any:
    return jax.make_array_from_callback(leaf.shape, leaf.sharding, lambda index: array[index].astype(leaf.dtype))


def mismatches(tensors: Mapping[str, Any], target: Any) -> list[str]:
    """Return one sentence per difference in names or shapes between tensors and `target`; [] if they fit."""
    wanted = {path_name(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(target)[0]}
    missing = [f"{name} is missing" for name in wanted if name not in tensors]
    surplus = [f"{name} is not used" for name in tensors if name not in wanted]
    return missing + surplus + [
        f"{name} is {list(tensors[name].shape)}, and {list(leaf.shape)} is needed"
        for name, leaf in wanted.items()
        if name in tensors and tuple(tensors[name].shape) != tuple(leaf.shape)
    ]  # fmt: skip


def _numeric(leaf: object) -> Any:
    """Return a value as an array that a device can hold, or None."""
    if isinstance(leaf, jax.Array):
        return leaf
    array = np.asarray(leaf)
    return array if array.dtype.kind in "biufcV" and array.dtype != object else None
