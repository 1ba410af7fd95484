"""Attributes that methods copied from the source of the original's Trainer ask for, with what they mean here."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import cached_property
from typing import Any

from torch import nn

from xdpx.engines.pytorch import collectives
from xdpx.engines.pytorch.memory import MemoryWatch
from xdpx.engines.pytorch.strategies.whole import spans_devices
from xdpx.trainer.data import columns


class MemoryTracker:
    """Measures memory around a copied `evaluate` or `predict`.

    Args:
        device: whose memory is measured, with that of the host.
        wanted: False measures nothing.
        stage: prefix of the metrics, e.g. `eval`.
    """

    def __init__(self, device: Any, *, wanted: bool, stage: str = "eval") -> None:
        self._device, self._wanted, self._stage = device, wanted, stage
        self._watch: MemoryWatch | None = None

    def start(self) -> None:
        """Begin to measure."""
        self._watch = MemoryWatch(self._device, wanted=self._wanted)

    def stop_and_update_metrics(self, metrics: dict[str, Any] | None = None) -> None:
        """Add what was measured to the metrics."""
        watch, self._watch = self._watch, None
        if watch is not None and metrics is not None:
            metrics.update(watch.metrics(self._stage))


class Copied:
    """A base of `Trainer`. What it offers is for users' copies alone: the Trainer itself never asks for it."""

    deepspeed: Any = None
    is_fsdp_xla_enabled = is_fsdp_xla_v1_enabled = is_fsdp_xla_v2_enabled = use_apex = False
    args: Any
    data_collator: Any
    model: Any
    _signature_columns: list[str] | None

    @cached_property
    def _memory_tracker(self) -> MemoryTracker:
        return MemoryTracker(self.args.device, wanted=not self.args.skip_memory_metrics)

    def _set_signature_columns_if_needed(self) -> None:
        raise NotImplementedError

    def _get_collator_with_removed_columns(
        self, data_collator: Callable[..., Any], description: str | None = None
    ) -> Callable[..., Any]:
        """Return a collator that leaves out columns that the model does not take."""
        if not self.args.remove_unused_columns:
            return data_collator
        self._set_signature_columns_if_needed()
        name, wanted = type(self.model).__name__, self._signature_columns
        return columns.trimmed([], data_collator, wanted, description=description or "given", model_name=name)[1]

    def _move_model_to_device(self, model: nn.Module, device: Any) -> None:
        """Move a model, such as a teacher, to a device, unless it spans several."""
        if not spans_devices(model):
            model.to(device)

    def _nested_gather(self, tensors: Any, name: str | None = None) -> Any:
        """Return the rows of all processes, concatenated."""
        return collectives.gather_rows(tensors)

    def _pad_across_processes(self, tensor: Any, pad_index: int = -100) -> Any:
        """Return the tensor unchanged: what gathers pads by itself."""
        return tensor

    def _prepare_context_parallel_inputs(self, model: nn.Module, inputs: Any) -> tuple[Callable[[], Any], Any]:
        """Return a context that does nothing, and the inputs: no sequence is shared by processes here."""
        return nullcontext, inputs
