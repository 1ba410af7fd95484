"""Communication between processes. With a single process, each function returns its input.

All functions must be called on all processes, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional

from xdpx.utils import distributed_utils

broadcast_object = distributed_utils.broadcast_object
gather_objects = distributed_utils.gather_objects
"""Objects other than tensors are exchanged by `utils`, for code without torch; tensors go faster as rows."""


@dataclass(frozen=True)
class TensorSlot:
    """Placeholder for a tensor while the tree around it is sent."""

    index: int
    shape: torch.Size
    dtype: torch.dtype


def num_processes() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Return the index of this process."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def barrier() -> None:
    """Wait until all processes have called this."""
    if num_processes() > 1:
        dist.barrier()


@contextmanager
def one_first(*, is_first: bool) -> Generator[None]:
    """Let the processes with `is_first` run the block (to fill a cache, say) before all others run it.

    If the first ones fail, the others still run instead of waiting forever.
    """
    if not is_first:
        barrier()
    try:
        yield
    finally:
        if is_first:
            barrier()


def sum_over_ranks(tensor: Tensor) -> Tensor:
    """Return the sum of a tensor over all processes."""
    if num_processes() == 1:
        return tensor
    total = _for_transport(tensor.detach().clone())
    dist.all_reduce(total)
    return total.to(tensor.device)


def mean_over_ranks(tensor: Tensor) -> Tensor:
    """Return the mean of a floating point tensor over all processes."""
    return tensor if num_processes() == 1 else sum_over_ranks(tensor) / num_processes()


def broadcast_tensor_(tensor: Tensor) -> Tensor:
    """Fill a tensor with the values it has on the first process, and return it."""
    if num_processes() > 1:
        carried = _for_transport(tensor.detach())
        dist.broadcast(carried, src=0)
        if carried.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(carried)
    return tensor


def all_have(value: object) -> bool:
    """Return whether the value is true on every process."""
    if num_processes() == 1:
        return bool(value)
    return int(sum_over_ranks(torch.tensor(int(bool(value))))) == num_processes()


def flatten(tree: object) -> tuple[Any, list[Tensor]]:
    """Return nested dicts, lists and tuples with a `TensorSlot` for each tensor, and the tensors; see `unflatten`."""
    tensors: list[Tensor] = []
    return map_tensors(lambda each: _noted(each, tensors), tree), tensors


def unflatten(outline: Any, give: Callable[[TensorSlot], Any]) -> Any:
    """Return an outline from `flatten` with each `TensorSlot` replaced by what `give` returns for it."""
    return _map(outline, TensorSlot, give)


def receive(place: TensorSlot, tensors: list[Tensor]) -> Tensor:
    """Return the first process's tensor for a slot, on the host; `tensors` is empty on the other processes."""
    have = tensors[place.index].detach().cpu() if tensors else torch.empty(place.shape, dtype=place.dtype)
    return broadcast_tensor_(have.contiguous())


def broadcast_tree(tree: object) -> Any:
    """Return the nested dicts, lists and tuples of the first process; tensors are sent one by one, to the host."""
    if num_processes() == 1:
        return tree
    outline, tensors = flatten(tree if rank() == 0 else None)
    return unflatten(broadcast_object(outline), lambda place: receive(place, tensors))


def gather_rows(tree: object, *, pad: float = -100) -> Any:
    """Concatenate the rows of all processes, in the order of ranks.

    Args:
        tree: tensors in nested dicts, lists and tuples of the same structure on all processes; None stays None. A
            tensor without dimensions counts as one row.
        pad: padding value where processes differ in a dimension after the first (such as the length of sequences).

    Returns:
        The same tree, with the rows of all processes in its tensors. With one process, the input.

    Raises:
        TypeError: the tree contains something else.
        ValueError: the processes differ in the number of tensors or their dimensions.
    """
    if num_processes() == 1:
        return tree
    _refuse_others(tree)
    outline, tensors = flatten(tree)
    if not tensors:
        return tree
    sizes = _sizes_of_all(tensors)
    return unflatten(outline, lambda place: _gathered(tensors[place.index], sizes[place.index], pad))


def gather_with_gradient(rows: Tensor) -> tuple[Tensor, int]:
    """Concatenate the rows of all processes, by rank, with gradients flowing back. On all processes.

    A row of this process gets the sum of its gradients on all processes. So if each process computes a loss of its own
    rows against all rows, and gradients are then averaged (or summed) over processes, as data parallelism does, the
    result is the gradient of the mean (or the sum) of those losses, as one process with all rows would compute it.

    Args:
        rows: (B, ...); B may differ between processes, the other dimensions must not.

    Returns:
        (the rows of all processes (N, ...), index of the first row of this one). With one process, `rows` and 0.
    """
    if num_processes() == 1:
        return rows, 0
    counts = [int(count) for count in _all_gathered(torch.tensor([len(rows)]))]
    gathered: Tensor = _GatheredRows.apply(rows, counts)  # type: ignore[no-untyped-call]
    return gathered, sum(counts[: rank()])


class _GatheredRows(torch.autograd.Function):
    """Forward: the rows of all processes. Backward: the summed gradients of the rows of this one."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: list[int]) -> Tensor:
        ctx.own = slice(sum(counts[: rank()]), sum(counts[: rank() + 1]))
        return _gathered(rows, [[count, *rows.shape[1:]] for count in counts], 0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return sum_over_ranks(gradients[0].contiguous())[ctx.own], None


def map_tensors(change: Callable[[Tensor], Any], tree: object) -> Any:
    """Return the nested dicts, lists and tuples with `change` applied to every tensor; other values stay."""
    return _map(tree, Tensor, change)


def holds_only_tensors(tree: object) -> bool:
    """Return whether nested dicts, lists and tuples hold tensors, or None, and nothing else."""
    return next(_others(tree), None) is None


def _others(tree: object) -> Iterator[Any]:
    """Yield what is neither a tensor nor None."""
    if isinstance(tree, Mapping | list | tuple):
        for part in tree.values() if isinstance(tree, Mapping) else tree:
            yield from _others(part)
    elif tree is not None and not isinstance(tree, Tensor):
        yield tree


def _refuse_others(tree: object) -> None:
    for other in _others(tree):
        raise TypeError(
            f"gather: there is a {type(other).__name__} among the outputs, which has no rows to put together. Give "
            "tensors in dicts, lists and tuples; name what is not to be gathered in ignore_keys, or set "
            "eval_use_gather_object=True."
        )


def _noted(tensor: Tensor, tensors: list[Tensor]) -> TensorSlot:
    tensors.append(tensor)
    return TensorSlot(len(tensors) - 1, tensor.shape, tensor.dtype)


def _map(tree: object, kind: type, change: Callable[[Any], Any]) -> Any:
    if isinstance(tree, kind):
        return change(tree)
    if isinstance(tree, Mapping):
        changed = {name: _map(value, kind, change) for name, value in tree.items()}
        return changed if type(tree) is dict else type(tree)(changed)  # type: ignore[call-arg]
    if isinstance(tree, list | tuple):
        parts = [_map(value, kind, change) for value in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    return tree


def _sizes_of_all(tensors: list[Tensor]) -> list[list[list[int]]]:
    """Return, for each tensor, its shape on each process. The shapes of all tensors are exchanged at once."""
    own = [max(tensor.dim(), 1) for tensor in tensors]
    headers = _all_gathered(torch.tensor([len(own), hash(tuple(own))]))
    if any(not torch.equal(header, headers[0]) for header in headers):
        raise ValueError(
            f"gather: process {rank()} has {len(own)} tensors, with {own} dimensions; all have, by rank, "
            f"{[int(header[0]) for header in headers]} tensors. Each process must give the same ones: see what "
            "compute_loss, prediction_step or the model return on each."
        )
    sizes = torch.tensor([size for tensor in tensors for size in (tensor.shape or (1,))])
    by_process = [torch.split(each, own) for each in _all_gathered(sizes)]
    return [[process[index].tolist() for process in by_process] for index in range(len(own))]


def _all_gathered(tensor: Tensor) -> list[Tensor]:
    """Return the tensors of all processes; they must have the same shape everywhere."""
    carried = _for_transport(tensor)
    received = [torch.empty_like(carried) for _ in range(num_processes())]
    dist.all_gather(received, carried)
    return [each.to(tensor.device) for each in received]


def _gathered(tensor: Tensor, sizes: list[list[int]], pad: float) -> Tensor:
    rows = tensor.detach().reshape(1) if tensor.dim() == 0 else tensor.detach()
    unsigned = not rows.dtype.is_signed  # they cannot say -100
    if unsigned and rows.dtype is not torch.bool and any(size[1:] != sizes[0][1:] for size in sizes):
        rows, unsigned = rows.to(torch.int32 if rows.dtype is torch.uint8 else torch.int64), False
    largest = [max(size) for size in zip(*sizes, strict=True)]
    fill: list[int] = []
    for have, want in zip(reversed(rows.shape), reversed(largest), strict=True):
        fill += [0, want - have]
    padded = functional.pad(rows, fill, value=0 if unsigned else pad) if any(fill) else rows
    received = _all_gathered(padded.contiguous())
    return torch.cat([each[: size[0]] for each, size in zip(received, sizes, strict=True)])


def _for_transport(tensor: Tensor) -> Tensor:
    """Return a tensor on a device that the backend can send from: NCCL without gloo cannot send from the host."""
    if tensor.device.type == "cpu" and "cpu:" not in dist.get_backend_config():
        return tensor.to(torch.accelerator.current_accelerator())
    return tensor
