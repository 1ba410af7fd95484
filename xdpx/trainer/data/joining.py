"""Concatenate the predictions of many batches: they are kept on the host, and copied once.

Concatenating at every batch would copy all earlier ones each time. Here each value is copied once, and a batch is freed
as soon as it is copied into the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from xdpx.logger import log
from xdpx.utils.memory import total_memory
from xdpx.utils.progress import format_bytes

PAD = -100
"""Padding value for rows of different lengths; losses and metrics ignore it."""

ALARMING_SHARE = 0.3
"""Share of the host's memory above which the expected size of the predictions is warned about."""


class Joiner:
    """Collects the output of each batch, and concatenates it at the end.

    Args:
        concatenate: one array per leaf, rows padded at the end of their second dimension; False: one per batch.
        pad: padding value of shorter rows.
        expected: number of batches, if known, to warn before memory runs out.
        what: name of the collected values, for messages.
        memory_bytes: memory of the host; None: ask the system.
    """

    def __init__(
        self,
        *,
        concatenate: bool = True,
        pad: float = PAD,
        expected: int | None = None,
        what: str = "predictions",
        memory_bytes: int | None = None,
    ) -> None:
        self.concatenate, self.pad, self.expected, self.what = concatenate, pad, expected, what
        self._memory_bytes = total_memory() if memory_bytes is None else memory_bytes
        self._outlines: list[Any] = []
        self._batches: list[list[Any]] = []
        self._paths: list[str] = []
        self._coming: torch.cuda.Event | None = None

    def __len__(self) -> int:
        return len(self._batches)

    def add(self, tree: object) -> None:
        """Add the output of a batch: tensors or arrays in nested mappings, tuples and lists. None is ignored.

        Copies from a GPU are asynchronous, and awaited when the next batch is added.

        Raises:
            ValueError: its structure differs from that of the batches before, and they are to be concatenated.
        """
        if tree is None:
            return
        self._settle()
        leaves = _leaves(tree)
        self._check([path for path, _ in leaves])
        self._batches.append([_on_host(leaf) for _, leaf in leaves])
        if not self._outlines or not self.concatenate:
            self._outlines.append(_map(tree, lambda _: None))
        if any(isinstance(leaf, Tensor) and leaf.is_cuda for _, leaf in leaves):
            self._coming = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._coming.record()
        else:
            self._batches[-1] = [_as_array(leaf) for leaf in self._batches[-1]]
        if len(self._batches) == 1:
            self._warn()

    def result(self) -> Any:
        """Return everything as NumPy arrays, None if there was nothing, and clear it."""
        self._settle()
        batches, self._batches = self._batches, []
        outlines, self._outlines = self._outlines, []
        if not batches:
            return None
        if not self.concatenate:
            return [_filled(outline, leaves) for outline, leaves in zip(outlines, batches, strict=True)]
        columns = [list(column) for column in zip(*batches, strict=True)]
        del batches
        joined = [
            _joined(column, self.pad, f"{self.what}{path}") for path, column in zip(self._paths, columns, strict=True)
        ]
        return _filled(outlines[0], joined)

    def _settle(self) -> None:
        """Wait for the copy of the last batch, and move it out of page-locked memory."""
        if self._coming is not None:
            self._coming.synchronize()
            self._coming = None
            self._batches[-1] = [_as_array(leaf, copy=True) for leaf in self._batches[-1]]

    def _check(self, paths: list[str]) -> None:
        if not self._batches:
            self._paths = paths
        elif self.concatenate and paths != self._paths:
            raise ValueError(
                f"{self.what}: batch {len(self._batches)} returned {_listed(paths)}, the batches before it returned "
                f"{_listed(self._paths)}. Return the same structure for every batch, or set "
                "eval_do_concat_batches=False to have one result per batch."
            )

    def _warn(self) -> None:
        if not self.expected or not self._memory_bytes:
            return
        projected = self.expected * sum(getattr(leaf, "nbytes", 0) for leaf in self._batches[0])
        if projected > ALARMING_SHARE * self._memory_bytes:
            log.warning(
                f"The {self.what} of {self.expected} batches will take {format_bytes(projected)} of "
                f"{format_bytes(self._memory_bytes)} memory. Reduce them in preprocess_logits_for_metrics (e.g. to "
                "the argmax), compute metrics batch by batch (batch_eval_metrics=True), or set "
                "prediction_loss_only=True."
            )


def _joined(parts: list[Any], pad: float, what: str) -> Any:
    """Concatenate the rows of all parts; `parts` is emptied on the way, so that memory is not used twice."""
    if not isinstance(parts[0], np.ndarray | np.generic):
        return parts
    parts[:] = map(np.atleast_1d, parts)
    shapes = {part.shape[2:] for part in parts}
    if len(shapes) > 1 or len({part.ndim for part in parts}) > 1:
        odd = next(part for part in parts if part.shape[2:] != parts[0].shape[2:] or part.ndim != parts[0].ndim)
        raise ValueError(
            f"{what}: batches differ in shape, {parts[0].shape} and {odd.shape}."
            " Only the first two dimensions may differ. Set eval_do_concat_batches=False to have one result per batch."
        )
    rows = sum(len(part) for part in parts)
    width = (max(part.shape[1] for part in parts),) if parts[0].ndim > 1 else ()
    kind = np.result_type(*{part.dtype for part in parts})
    if kind.kind == "u" and width and min(part.shape[1] for part in parts) < width[0]:
        kind = np.result_type(kind, np.int32)  # which can say what fills up the rows
    result = np.empty((rows, *width, *parts[0].shape[2:]), kind)
    parts.reverse()
    at = 0
    while parts:
        part = parts.pop()
        place = result[at : at + len(part)]
        if width:
            place[:, : part.shape[1]] = part
            place[:, part.shape[1] :] = pad if kind.kind != "b" else False
        else:
            place[:] = part
        at += len(part)
    return result


def _leaves(tree: object, path: str = "") -> list[tuple[str, Any]]:
    """Return the leaves of a tree with the path of each, such as `['logits'][0]`."""
    if isinstance(tree, Mapping):
        return [leaf for name, value in tree.items() for leaf in _leaves(value, f"{path}[{name!r}]")]
    if isinstance(tree, list | tuple):
        return [leaf for index, value in enumerate(tree) for leaf in _leaves(value, f"{path}[{index}]")]
    return [(path, tree)]


def _map(tree: object, change: Callable[[Any], Any]) -> Any:
    if isinstance(tree, Mapping):
        changed = {name: _map(value, change) for name, value in tree.items()}
        return changed if type(tree) is dict else type(tree)(changed)  # type: ignore[call-arg]
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(_map(value, change) for value in tree))
    if isinstance(tree, list | tuple):
        return type(tree)(_map(value, change) for value in tree)
    return change(tree)


def _filled(outline: object, leaves: list[Any]) -> Any:
    """Return a tree with this structure and these leaves."""
    remaining = iter(leaves)
    return _map(outline, lambda _: next(remaining))


def _on_host(leaf: object) -> Any:
    if not isinstance(leaf, Tensor):
        return leaf
    leaf = leaf.detach()
    if leaf.dtype is torch.bfloat16:
        leaf = leaf.float()  # NumPy has no bfloat16
    return leaf.to("cpu", non_blocking=True) if leaf.is_cuda else leaf.cpu()


def _as_array(leaf: object, *, copy: bool = False) -> Any:
    """Return a tensor as an array; anything else unchanged."""
    if not isinstance(leaf, Tensor):
        return leaf
    return leaf.numpy().copy() if copy else leaf.numpy()


def _listed(paths: list[str]) -> str:
    return "one value" if paths == [""] else f"{len(paths)} values ({', '.join(paths)})"
